//! Each server starts, is paused, killed, brought back, and shared.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use zklock_testkit::{Error, MariaDb, Mode, Postgres, Shutdown, ZooKeeper, expire_session, wait_until};

const ENOUGH: Duration = Duration::from_secs(30);
/// For what must not happen: long enough that it would have.
const A_WHILE: Duration = Duration::from_millis(300);

#[tokio::test]
async fn zookeeper_forgets_nothing_when_killed() -> Result<(), Error> {
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
    assert!(!zookeeper.delete_node_while("/kept", "/missing").await?);
    assert!(!zookeeper.delete_node_while("/missing", "/kept").await?);
    zookeeper.create_node("/goes", b"").await?;
    assert!(zookeeper.delete_node_while("/goes", "/kept").await?);
    assert_eq!(zookeeper.children("/").await?, ["kept", "zookeeper"]);
    assert!(zookeeper.delete_node("/kept").await?);
    assert!(!zookeeper.delete_node("/kept").await?);
    assert!(zookeeper.metric("zk_packets_received").await? > 0);
    Ok(())
}

#[tokio::test]
async fn zookeeper_is_empty_after_a_wipe() -> Result<(), Error> {
    let zookeeper = ZooKeeper::start().await?;
    zookeeper.create_node("/gone", b"").await?;
    zookeeper.wipe().await?;
    assert_eq!(zookeeper.node("/gone").await?, None);
    Ok(())
}

#[tokio::test]
async fn zookeeper_answers_nothing_while_paused() -> Result<(), Error> {
    let zookeeper = ZooKeeper::start().await?;
    zookeeper.pause()?;
    // The kernel still accepts connections for it, as it does for a server that hangs.
    TcpStream::connect(zookeeper.connect_string()).await.expect("a connection to a paused server");
    assert!(timeout(A_WHILE, zookeeper.children("/")).await.is_err());
    zookeeper.resume()?;
    assert_eq!(timeout(ENOUGH, zookeeper.children("/")).await.expect("an answer")?, ["zookeeper"]);
    Ok(())
}

#[tokio::test]
async fn zookeeper_takes_its_settings() -> Result<(), Error> {
    let zookeeper = ZooKeeper::builder()
        .tick_time(Duration::from_millis(400))
        .min_session_timeout(Duration::from_millis(600))
        .max_session_timeout(Duration::from_secs(5))
        .max_client_connections(7)
        .jute_max_buffer(4_000)
        .extended_types(true)
        .fsync(true)
        .start()
        .await?;
    let conf = zookeeper.word("conf").await?;
    for line in ["tickTime=400", "minSessionTimeout=600", "maxSessionTimeout=5000", "maxClientCnxns=7"] {
        assert!(conf.contains(line), "{line} in {conf}");
    }
    let environment = zookeeper.word("envi").await?;
    assert!(environment.contains("zookeeper"), "{environment}");
    // The limit in action: the server cuts the connection.
    assert!(zookeeper.create_node("/large", &[0; 10_000]).await.is_err());
    zookeeper.create_node("/small", &[0; 1_000]).await
}

#[tokio::test]
async fn ending_a_session_needs_its_password() -> Result<(), Error> {
    let zookeeper = ZooKeeper::shared().await?;
    let error = expire_session(zookeeper.connect_string(), 0x1234, &[7; 16]).await.unwrap_err();
    assert!(error.to_string().contains("no such session"), "{error}");
    Ok(())
}

#[tokio::test]
async fn postgres_keeps_what_was_committed_and_comes_back() -> Result<(), Error> {
    let postgres = Postgres::start().await?;
    let url = postgres.create_database("shop").await?;
    postgres.sql(&url, "CREATE TABLE orders AS SELECT 42 AS id").await?;

    // A busy child does not notice by itself that its server is gone.
    let busy = tokio::process::Command::new("psql")
        .args([&url, "-c", "SELECT count(*) FROM generate_series(1, 1000000000000)"])
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("psql");
    let running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%generate_series(1, 10%' \
                   AND pid <> pg_backend_pid()";
    wait_until(ENOUGH, "the long query to run", async || {
        postgres.sql(&url, running).await.is_ok_and(|count| count == "1")
    })
    .await?;
    postgres.restart().await?;
    drop(busy);

    assert_eq!(postgres.sql(&url, "SELECT id FROM orders").await?, "42");
    assert_eq!(postgres.sql(&url, running).await?, "0");
    Ok(())
}

#[tokio::test]
async fn postgres_is_shut_down_and_comes_back() -> Result<(), Error> {
    let postgres = Postgres::start().await?;
    let url = postgres.create_database("shop").await?;
    postgres.sql(&url, "CREATE TABLE orders (id int)").await?;
    for (shutdown, orders) in [(Shutdown::Fast, "1"), (Shutdown::Immediate, "2")] {
        postgres.sql(&url, "INSERT INTO orders VALUES (1)").await?;
        postgres.restart_after(shutdown).await?;
        assert_eq!(postgres.sql(&url, "SELECT count(*) FROM orders").await?, orders, "{shutdown:?}");
    }
    Ok(())
}

#[tokio::test]
async fn postgres_answers_nothing_while_paused() -> Result<(), Error> {
    let postgres = Postgres::start().await?;
    let url = postgres.url();
    postgres.pause()?;
    assert!(timeout(A_WHILE, postgres.sql(&url, "SELECT 1")).await.is_err());
    postgres.resume()?;
    assert_eq!(timeout(ENOUGH, postgres.sql(&url, "SELECT 1")).await.expect("an answer")?, "1");
    Ok(())
}

#[tokio::test]
async fn postgres_takes_its_settings() -> Result<(), Error> {
    let postgres =
        Postgres::builder().max_connections(17).fsync(true).setting("lock_timeout", "3s").start().await?;
    let settings = "SELECT current_setting('max_connections') || current_setting('fsync') \
                    || current_setting('lock_timeout')";
    assert_eq!(postgres.sql(&postgres.url(), settings).await?, "17on3s");
    Ok(())
}

#[tokio::test]
async fn mariadb_keeps_what_was_committed_and_comes_back() -> Result<(), Error> {
    let mariadb = MariaDb::builder().fsync(true).option("--lock-wait-timeout=3").start().await?;
    let url = mariadb.create_database("shop").await?;
    mariadb.sql(&url, "CREATE TABLE orders AS SELECT 42 AS id").await?;
    mariadb.restart().await?;
    assert_eq!(mariadb.sql(&url, "SELECT id, @@lock_wait_timeout FROM orders").await?, "42\t3");
    Ok(())
}

#[tokio::test]
async fn mariadb_answers_nothing_while_paused() -> Result<(), Error> {
    let mariadb = MariaDb::start().await?;
    let url = mariadb.url();
    mariadb.pause()?;
    assert!(timeout(A_WHILE, mariadb.sql(&url, "SELECT 1")).await.is_err());
    mariadb.resume()?;
    assert_eq!(timeout(ENOUGH, mariadb.sql(&url, "SELECT 1")).await.expect("an answer")?, "1");
    Ok(())
}

#[tokio::test]
async fn a_statement_that_fails_is_an_error_that_says_why() -> Result<(), Error> {
    let postgres = Postgres::shared().await?;
    let error = postgres.sql(&postgres.url(), "SELECT nonsense").await.unwrap_err();
    assert!(error.to_string().contains("nonsense"), "{error}");
    let mariadb = MariaDb::shared().await?;
    let error = mariadb.sql(&mariadb.url(), "SELECT nonsense").await.unwrap_err();
    assert!(error.to_string().contains("nonsense"), "{error}");
    Ok(())
}

/// MariaDB removes the temporary tables of others if they lie in one folder.
#[tokio::test(flavor = "multi_thread")]
async fn several_start_at_once() -> Result<(), Error> {
    let (a, b, c, d) =
        tokio::try_join!(MariaDb::start(), MariaDb::start(), MariaDb::start(), MariaDb::start())?;
    for mariadb in [a, b, c, d] {
        let folder = mariadb.sql(&mariadb.url(), "SELECT @@tmpdir, @@datadir").await?;
        let (temporary, data) = folder.split_once('\t').expect("two folders");
        assert!(data.starts_with(temporary), "{temporary} is its own, beside {data}");
    }
    let (postgres, other) = tokio::try_join!(Postgres::start(), Postgres::start())?;
    assert_ne!(postgres.port(), other.port());
    let (zookeeper, other) = tokio::try_join!(ZooKeeper::start(), ZooKeeper::start())?;
    assert_ne!(zookeeper.port(), other.port());
    Ok(())
}

/// What every test with a shared server does: runtimes come and go, the server stays.
#[test]
fn shared_servers_outlive_the_runtime_that_started_them() {
    let seen = [1, 2].map(|_| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let zookeeper = ZooKeeper::shared().await.unwrap();
            let chroot = zookeeper.chroot("mine").await.unwrap();
            assert!(chroot.url().starts_with(&format!("{}/mine-", zookeeper.url())));
            assert!(zookeeper.node(chroot.path()).await.unwrap().is_some());
            let postgres = Postgres::shared().await.unwrap();
            let mariadb = MariaDb::shared().await.unwrap();
            let url = postgres.create_database("mine").await.unwrap();
            assert_eq!(postgres.sql(&url, "SELECT 1").await.unwrap(), "1");
            let url = mariadb.create_database("mine").await.unwrap();
            assert_eq!(mariadb.sql(&url, "SELECT 1").await.unwrap(), "1");
            (chroot, zookeeper.process_id(), postgres.process_id(), mariadb.process_id())
        })
    });
    assert_ne!(seen[0].0, seen[1].0, "each test has its own node");
    assert_eq!(seen[0].1, seen[1].1);
    assert_eq!(seen[0].2, seen[1].2);
    assert_eq!(seen[0].3, seen[1].3);
}

/// A test may want to start them from a task of a runtime with many threads.
#[test]
fn futures_can_be_sent() {
    fn is_send<T: Send>(_: T) {}
    is_send(ZooKeeper::start());
    is_send(ZooKeeper::shared());
    is_send(Postgres::start());
    is_send(MariaDb::start());
    is_send(async {
        let zookeeper = ZooKeeper::shared().await.unwrap();
        let _ = zookeeper.chroot("x").await;
        let _ = zookeeper.children("/").await;
        let _ = Postgres::shared().await.unwrap().create_database("x").await;
    });
}
