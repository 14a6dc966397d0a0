use std::time::Duration;

use zookeeper_client::{self as zk, Permission as P};

use super::support::{Peer, SOON, chroot, config, fair, plain, release, until, within};
use crate::{
    backend::{Backend, zookeeper::Acl},
    error::Error,
};

/// A client with all rights, to set up what the peer may not do.
async fn admin(server: &zklock_testkit::ZooKeeper, chroot: &zklock_testkit::Chroot) -> zk::Client {
    let client =
        zk::Client::connector().with_auth("digest", b"admin:secret").connect(server.connect_string()).await;
    client.unwrap().chroot(chroot.path()).unwrap()
}

fn anyone(rights: P) -> [zk::Acl; 2] {
    [zk::Acl::new(rights, zk::AuthId::anyone()), zk::Acl::new(P::ALL, zk::AuthId::authed())]
}

async fn make(admin: &zk::Client, path: &str, rights: P) {
    let acls = anyone(rights);
    admin.create(path, b"", &zk::CreateMode::Persistent.with_acls(zk::Acls::new(&acls))).await.unwrap();
}

#[track_caller]
fn assert_refused(error: &Error, right: &str, node: &str) {
    let message = error.to_string();
    assert!(matches!(error, Error::Refused { .. }), "{message}");
    assert!(
        message.contains(&format!("the right {right} on node \"")) && message.contains(node),
        "{message}"
    );
}

#[tokio::test]
async fn a_missing_right_is_named_and_nothing_is_left() {
    let (server, chroot) = chroot("rights").await;
    let admin = admin(server, &chroot).await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    make(&admin, "/read", P::READ).await;
    make(&admin, "/none", P::NONE).await;
    for node in ["/read", "/none"] {
        assert_refused(&peer.acquire(fair(node, SOON)).await.unwrap_err(), "CREATE", node);
        assert_refused(&peer.acquire(fair(&format!("{node}/x"), SOON)).await.unwrap_err(), "CREATE", node);
        assert_refused(&peer.acquire(plain(&format!("{node}/x"), SOON)).await.unwrap_err(), "CREATE", node);
        assert_refused(&peer.acquire(plain(&format!("{node}/x/y"), SOON)).await.unwrap_err(), "CREATE", node);
    }
    // Alone it works without reading, behind another process it does not.
    make(&admin, "/unread", P::CREATE | P::DELETE | P::WRITE).await;
    let hold = peer.lock("/unread").await;
    let other = Peer::connect(&chroot.url(), "b").await;
    assert_refused(&other.acquire(fair("/unread", SOON)).await.unwrap_err(), "READ", "/unread");
    until("only the holder is left", async || admin.list_children("/unread").await.unwrap().len() == 1).await;
    release(hold).await;
}

/// Not listed, the node whose answer was lost is still found, and with the error that comes it goes.
#[tokio::test]
async fn a_lost_create_that_may_not_be_looked_for_leaves_nothing() {
    let (server, chroot) = chroot("lostunread").await;
    let admin = admin(server, &chroot).await;
    let proxy = zklock_testkit::Proxy::start(server.connect_string()).await.unwrap();
    let peer = Peer::connect(&chroot.via(proxy.addr()).url(), "a").await;
    make(&admin, "/unread", P::CREATE | P::DELETE | P::WRITE).await;
    release(peer.lock("/unread").await).await;
    // Somebody else was there since, so that the place in line is not known without a look.
    release(Peer::connect(&chroot.url(), "b").await.lock("/unread").await).await;
    let session = peer.session().unwrap();
    let rule = proxy.swallow_reply(zklock_testkit::Op::Multi, 1);
    assert_refused(&peer.acquire(fair("/unread", SOON)).await.unwrap_err(), "READ", "/unread");
    assert!(rule.has_fired());
    until("nothing is left", async || admin.list_children("/unread").await.unwrap().is_empty()).await;
    assert!(std::sync::Arc::ptr_eq(&session, &peer.session().unwrap()));
    release(peer.lock("/unread").await).await;
    // Nor is another's node, which may not be read, an error when the answer that it is there is lost.
    let acls = anyone(P::NONE);
    admin.create("/p", b"", &zk::CreateMode::Ephemeral.with_acls(zk::Acls::new(&acls))).await.unwrap();
    let rule = proxy.swallow_reply(zklock_testkit::Op::Create, 1);
    let waiting = peer.start(plain("/p", SOON));
    rule.fired().await.unwrap();
    admin.delete("/p", None).await.unwrap();
    release(within(SOON, waiting).await.unwrap().unwrap()).await;
}

#[tokio::test]
async fn a_directory_that_may_not_be_written_still_locks() {
    let (server, chroot) = chroot("nowrite").await;
    let admin = admin(server, &chroot).await;
    let peers = [Peer::connect(&chroot.url(), "a").await, Peer::connect(&chroot.url(), "b").await];
    make(&admin, "/a", P::CREATE | P::DELETE | P::READ).await;
    let hold = peers[0].lock("/a").await;
    let waiting = peers[1].start(fair("/a", SOON));
    until("both are queued", async || admin.list_children("/a").await.unwrap().len() == 2).await;
    assert!(!waiting.is_finished());
    let token = hold.token();
    release(hold).await;
    let next = within(SOON, waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    release(next).await;
    assert!(admin.list_children("/a").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_delete_that_is_refused_is_neither_silent_nor_waited_for() {
    let (server, chroot) = chroot("nodelete").await;
    let admin = admin(server, &chroot).await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    make(&admin, "/a", P::CREATE | P::READ | P::WRITE).await;
    let session = peer.session().unwrap();
    let hold = peer.lock("/a").await;
    release(hold).await;
    assert!(session.janitor.deletes().refused >= 1);
    assert_eq!(session.janitor.deletes().pending, 1);
    // The node that cannot go is ours, so here it is as good as gone. For others the lock stays taken.
    peer.lock("/a").await.release();
    let other = Peer::connect(&chroot.url(), "b").await;
    let error = other.acquire(fair("/a", Duration::from_millis(300))).await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    // Granted later, the right is used: nothing is forgotten.
    let acls = anyone(P::ALL);
    admin.set_acl("/a", &acls, None).await.unwrap();
    until("the nodes are gone", async || admin.list_children("/a").await.unwrap().is_empty()).await;
    until("the janitor is done", async || session.janitor.deletes().pending == 0).await;
    assert!(session.janitor.deletes().retried >= 1);
    release(peer.lock("/a").await).await;
}

#[tokio::test]
async fn a_chroot_without_rights_is_refused_at_once() {
    let (server, chroot) = chroot("nochroot").await;
    let admin = admin(server, &chroot).await;
    make(&admin, "/mine", P::READ).await;
    let asked = config(&format!("{}/mine/x", chroot.url()), "a");
    let error = within(SOON, Peer::with(asked)).await.err().unwrap();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(error.to_string().contains("CREATE") && error.to_string().contains("/mine"), "{error}");
    // With the right password it works, and only for those who have it.
    let mut ours = config(&format!("{}/mine", chroot.url()), "a");
    ours.auth.push(("digest".into(), b"admin:secret".to_vec()));
    ours.acl = Acl::Creator;
    let peer = Peer::with(ours).await.unwrap();
    let hold = peer.lock("/a").await;
    let stranger = Peer::connect(&format!("{}/mine", chroot.url()), "b").await;
    assert_refused(&stranger.acquire(fair("/a", SOON)).await.unwrap_err(), "CREATE", "/mine");
    release(hold).await;
    let mut wrong = config(&format!("{}/mine", chroot.url()), "a");
    wrong.auth.push(("digest".into(), b"admin:wrong".to_vec()));
    let stranger = Peer::with(wrong).await.unwrap();
    assert_refused(&stranger.acquire(fair("/a", SOON)).await.unwrap_err(), "CREATE", "/mine");
}

#[tokio::test]
async fn a_root_without_rights_has_the_id_below_the_chroot() {
    let server = zklock_testkit::ZooKeeper::start().await.unwrap();
    let admin = zk::Client::connector().with_auth("digest", b"admin:secret");
    let admin = admin.connect(server.connect_string()).await.unwrap();
    make(&admin, "/ours", P::ALL).await;
    make(&admin, "/none", P::READ).await;
    admin.set_acl("/", &anyone(P::READ), None).await.unwrap();
    let (a, b) = (
        Peer::connect(&format!("{}/ours", server.url()), "a").await,
        Peer::connect(&format!("{}/ours", server.url()), "b").await,
    );
    let hold = a.lock("/x").await;
    let id = hold.token().ensemble();
    assert_eq!(admin.get_data("/ours/_c_zklock_ensemble").await.unwrap().0, id.to_string().as_bytes());
    release(hold).await;
    assert_eq!(b.lock("/x").await.token().ensemble(), id);
    // Where it can be in neither place, that is said at once.
    let error = within(SOON, Peer::with(config(&format!("{}/none", server.url()), "a"))).await.err().unwrap();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(error.to_string().contains("CREATE") && error.to_string().contains("/none"), "{error}");
}

#[tokio::test]
async fn an_acl_that_needs_credentials_is_refused_without_them() {
    let (_, chroot) = chroot("noauth").await;
    let mut ours = config(&format!("{}/x", chroot.url()), "a");
    ours.acl = Acl::Creator;
    let error = within(SOON, Peer::with(ours)).await.err().unwrap();
    assert!(matches!(error, Error::Refused { .. }) && error.to_string().contains("auth"), "{error}");
    let mut ours = config(&chroot.url(), "a");
    ours.auth.push(("nosuchscheme".into(), b"x".to_vec()));
    let error = within(SOON, Peer::with(ours)).await.err().unwrap();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}
