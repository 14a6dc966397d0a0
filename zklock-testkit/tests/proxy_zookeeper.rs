//! Rules about ZooKeeper's requests, seen by a real client and a real server.

use std::time::Duration;

use tokio::time::timeout;
use zklock_testkit::{Chroot, Error, Op, Proxy, Request, ZooKeeper, expire_session, wait_until};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, SessionState};

const ENOUGH: Duration = Duration::from_secs(30);
const A_WHILE: Duration = Duration::from_millis(200);
const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());

#[tokio::test]
async fn a_swallowed_reply_means_done_and_not_known() -> Result<(), Error> {
    let Setup { zookeeper, proxy, client, chroot } = setup().await?;
    let lost = proxy.swallow_reply(Op::Create, 2);
    client.create("/first", b"", &PERSISTENT).await.expect("the first passes");
    assert!(!lost.has_fired());
    let second = client.create("/second", b"", &PERSISTENT).await;
    assert!(second.is_err(), "{second:?}");
    lost.fired().await?;
    assert_eq!(lost.seen(), 2);
    assert_eq!(zookeeper.children(chroot.path()).await?, ["first", "second"]);
    // Once only.
    client.create("/third", b"", &PERSISTENT).await.expect("the third passes");
    Ok(())
}

#[tokio::test]
async fn a_dropped_request_means_not_done_and_not_known() -> Result<(), Error> {
    let Setup { zookeeper, proxy, client, chroot } = setup().await?;
    client.create("/node", b"", &PERSISTENT).await.expect("it passes");
    let lost = proxy.drop_request(Op::Delete, 1);
    assert!(client.delete("/node", None).await.is_err());
    lost.fired().await?;
    assert_eq!(zookeeper.children(chroot.path()).await?, ["node"]);
    client.delete("/node", None).await.expect("the next passes");
    Ok(())
}

#[tokio::test]
async fn a_multi_is_a_kind_of_its_own() -> Result<(), Error> {
    let Setup { zookeeper, proxy, client, chroot } = setup().await?;
    let (creates, multis) = (proxy.count(Op::Create), proxy.count(Op::Multi));
    let lost = proxy.swallow_reply(Op::Multi, 1);
    let mut multi = client.new_multi_writer();
    multi.add_create("/a", b"", &PERSISTENT).expect("a create");
    multi.add_create("/b", b"", &PERSISTENT).expect("a create");
    assert!(multi.commit().await.is_err());
    lost.fired().await?;
    assert_eq!(zookeeper.children(chroot.path()).await?, ["a", "b"]);
    assert_eq!((creates.seen(), multis.seen()), (0, 1));
    Ok(())
}

#[tokio::test]
async fn every_kind_of_request_is_told_apart() -> Result<(), Error> {
    let Setup { proxy, client, .. } = setup().await?;
    let kinds = [
        Op::Create,
        Op::CreateContainer,
        Op::Exists,
        Op::GetData,
        Op::SetData,
        Op::GetChildren,
        Op::Sync,
        Op::Delete,
        Op::AddWatch,
    ];
    let counts = kinds.map(|kind| proxy.count(kind));
    let all = proxy.count(Request::Any);
    client.create("/n", b"", &PERSISTENT).await.expect("create");
    client.create("/c", b"", &CreateMode::Container.with_acls(Acls::anyone_all())).await.expect("container");
    client.check_stat("/n").await.expect("exists");
    client.get_data("/n").await.expect("getData");
    client.set_data("/n", b"x", None).await.expect("setData");
    client.list_children("/n").await.expect("getChildren");
    client.sync("/n").await.expect("sync");
    client.delete("/n", None).await.expect("delete");
    client.watch("/", zookeeper_client::AddWatchMode::Persistent).await.expect("addWatch");
    assert_eq!(counts.map(|count| count.seen()), [1; 9]);
    assert_eq!(all.seen(), 9);
    Ok(())
}

#[tokio::test]
async fn a_held_reply_comes_when_released() -> Result<(), Error> {
    let Setup { zookeeper, proxy, client, chroot } = setup().await?;
    let held = proxy.hold_reply(Op::Create, 1);
    let create = client.create("/node", b"", &PERSISTENT);
    tokio::pin!(create);
    assert!(timeout(A_WHILE, &mut create).await.is_err());
    held.fired().await?;
    assert!(zookeeper.node(&format!("{}/node", chroot.path())).await?.is_some());
    held.release();
    timeout(ENOUGH, create).await.expect("in time").expect("the answer");
    Ok(())
}

#[tokio::test]
async fn a_held_request_does_not_get_to_the_server() -> Result<(), Error> {
    let Setup { zookeeper, proxy, client, chroot } = setup().await?;
    let held = proxy.hold_request(Op::Create, 1);
    let create = client.create("/node", b"", &PERSISTENT);
    held.fired().await?;
    assert!(zookeeper.children(chroot.path()).await?.is_empty());
    // Healing lets go, too.
    proxy.heal()?;
    timeout(ENOUGH, create).await.expect("in time").expect("the answer");
    assert_eq!(zookeeper.children(chroot.path()).await?, ["node"]);
    Ok(())
}

/// The server has a session that no client knows of.
#[tokio::test]
async fn even_the_first_message_can_be_lost() -> Result<(), Error> {
    let zookeeper = ZooKeeper::shared().await?;
    let proxy = Proxy::start(zookeeper.connect_string()).await?;
    let lost = proxy.swallow_reply(Op::Connect, 1);
    let client = Client::connector().with_session_timeout(Duration::from_secs(6));
    let client = client.connect(&proxy.addr().to_string()).await.expect("the second time it connects");
    lost.fired().await?;
    assert_eq!(lost.seen(), 2);
    client.list_children("/").await.expect("it works");
    Ok(())
}

#[tokio::test]
async fn a_session_is_ended_from_outside() -> Result<(), Error> {
    let Setup { zookeeper, proxy: _proxy, client, chroot } = setup().await?;
    client.create("/mine", b"", &EPHEMERAL).await.expect("an ephemeral node");
    let path = format!("{}/mine", chroot.path());
    let owner = zookeeper.node(&path).await?.expect("the node").ephemeral_owner;
    assert_eq!(owner, client.session_id().0);

    // With a wrong password it is not.
    assert!(expire_session(zookeeper.connect_string(), owner, &[1; 16]).await.is_err());
    assert!(zookeeper.node(&path).await?.is_some());

    zookeeper.expire_session(owner).await?;
    assert_eq!(zookeeper.node(&path).await?, None);
    wait_until(ENOUGH, "the client to hear of it", async || client.state() == SessionState::Expired).await?;
    assert!(zookeeper.expire_session(owner).await.is_err(), "it is over already");
    Ok(())
}

struct Setup {
    zookeeper: &'static ZooKeeper,
    proxy: Proxy,
    client: Client,
    chroot: Chroot,
}

async fn setup() -> Result<Setup, Error> {
    let zookeeper = ZooKeeper::shared().await?;
    let chroot = zookeeper.chroot("proxy").await?;
    let proxy = Proxy::start(zookeeper.connect_string()).await?;
    let client = Client::connector().with_session_timeout(Duration::from_secs(10));
    let client = client.connect(&chroot.via(proxy.addr()).connect_string()).await.expect("a session");
    Ok(Setup { zookeeper, proxy, client, chroot })
}
