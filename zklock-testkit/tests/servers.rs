//! Each server starts, is paused, killed, brought back, and shared.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use zklock_testkit::{Error, MariaDb, Mode, Postgres, ZooKeeper, wait_until};

const ENOUGH: Duration = Duration::from_secs(30);

#[tokio::test]
async fn zookeeper_serves_and_forgets_nothing_when_killed() -> Result<(), Error> {
    let zookeeper = ZooKeeper::start().await?;
    assert_eq!(zookeeper.mode().await?, Mode::Standalone);
    zookeeper.create_node("/kept", b"safe").await?;
    let port = zookeeper.port();

    zookeeper.kill()?;
    assert!(TcpStream::connect(zookeeper.connect_string()).await.is_err());
    zookeeper.restart().await?;

    assert_eq!(zookeeper.port(), port);
    let node = zookeeper.node("/kept").await?.expect("the node is still there");
    assert_eq!((node.data.as_slice(), node.ephemeral_owner, node.children), (b"safe".as_slice(), 0, 0));
    assert_eq!(zookeeper.children("/").await?, ["kept", "zookeeper"]);
    assert!(zookeeper.delete_node("/kept").await?);
    assert!(!zookeeper.delete_node("/kept").await?);
    assert!(zookeeper.metric("zk_packets_received").await? > 0);
    Ok(())
}
