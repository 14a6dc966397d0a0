use tokio::task::JoinHandle;
use zklock_testkit::{Op, Proxy};
use zookeeper_client as zk;

use super::support::{Peer, SOON, chroot, fair, is_queued, release, until, within};
use crate::error::Error;

#[tokio::test]
async fn others_in_the_directory_do_not_count_and_keep_it() {
    let (server, chroot) = chroot("foreign").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let other = Peer::connect(&chroot.url(), "b").await;
    let directory = format!("{}/a", chroot.path());
    server.create_node(&directory, b"settings").await.unwrap();
    for name in ["config", "foo-bar", "0000000000", "lock-0000000000", "_c_x-lock-0000000000"] {
        server.create_node(&format!("{directory}/{name}"), b"").await.unwrap();
    }
    let hold = peer.lock("/a").await;
    let waiting = other.start(fair("/a", SOON));
    is_queued(server, &chroot, "/a", 7).await;
    assert!(!waiting.is_finished());
    release(hold).await;
    release(within(SOON, waiting).await.unwrap().unwrap()).await;
    is_queued(server, &chroot, "/a", 5).await;
}

#[tokio::test]
async fn a_foreign_child_keeps_a_directory_that_we_made() {
    let (server, chroot) = chroot("kept").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let directory = format!("{}/a", chroot.path());
    let hold = peer.lock("/a").await;
    let kazoo = format!("{directory}/0f0e0d0c0b0a09080706050403020100__lock__0000000001");
    server.create_node(&kazoo, b"").await.unwrap();
    // This one lists, and sees it.
    let second = peer.start(fair("/a", SOON));
    is_queued(server, &chroot, "/a", 3).await;
    release(hold).await;
    let second = within(SOON, second).await.unwrap().unwrap();
    server.delete_node(&kazoo).await.unwrap();
    release(second).await;
    release(peer.lock("/b").await).await;
    assert!(server.node(&directory).await.unwrap().is_some());
}

#[tokio::test]
async fn locks_nest_in_the_tree() {
    let (server, chroot) = chroot("nested").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let outer = peer.lock("/a").await;
    let inner = peer.lock("/a/b").await;
    let innermost = peer.lock("/a/b/c").await;
    release(outer).await;
    let outer = peer.lock("/a").await;
    assert!(outer.is_held() && inner.is_held() && innermost.is_held());
    release(inner).await;
    release(innermost).await;
    release(outer).await;
    for path in ["/a", "/a/b", "/a/b/c"] {
        let children = server.children(&format!("{}{path}", chroot.path())).await.unwrap();
        assert!(children.iter().all(|child| !child.starts_with("_c_")), "{path}: {children:?}");
    }
}

/// Curator's layout by another client: it holds, we wait; we hold, it is behind us.
#[tokio::test]
async fn another_client_with_the_same_layout_is_waited_for() {
    let (server, chroot) = chroot("curator").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let curator = zk::Client::connect(&chroot.connect_string()).await.unwrap();
    let options = zk::LockOptions::new(zk::Acls::anyone_all())
        .with_ancestor_options(zk::CreateMode::Container.with_acls(zk::Acls::anyone_all()))
        .unwrap();
    let lock = || zk::LockPrefix::new_curator("/a", "lock-").unwrap();
    let theirs = curator.lock(lock(), b"10.0.0.1", options.clone()).await.unwrap();
    let waiting = peer.start(fair("/a", SOON));
    is_queued(server, &chroot, "/a", 2).await;
    assert!(!waiting.is_finished());
    drop(theirs);
    let ours = within(SOON, waiting).await.unwrap().unwrap();
    let theirs = tokio::spawn({
        let curator = curator.clone();
        async move { curator.lock(lock(), b"10.0.0.1", options).await.map(zk::LockClient::into_owned) }
    });
    is_queued(server, &chroot, "/a", 2).await;
    assert!(!theirs.is_finished());
    release(ours).await;
    drop(within(SOON, theirs).await.unwrap().unwrap());
    until("all are gone", async || {
        server.children(&format!("{}/a", chroot.path())).await.unwrap().is_empty()
    })
    .await;
}

/// The limit is one of requests: the server sends a list of any length, and the client takes it.
#[tokio::test]
async fn a_list_longer_than_the_servers_buffer_is_read() {
    let server = zklock_testkit::ZooKeeper::builder().jute_max_buffer(4096).start().await.unwrap();
    let (peer, other) = (Peer::connect(&server.url(), "a").await, Peer::connect(&server.url(), "b").await);
    server.create_node("/a", b"").await.unwrap();
    for i in 0..100 {
        server.create_node(&format!("/a/{i}-{}", "x".repeat(100)), b"").await.unwrap();
    }
    let hold = peer.lock("/a").await;
    let waiting = other.start(fair("/a", SOON));
    until("both are queued", async || server.node("/a").await.unwrap().unwrap().children == 102).await;
    release(hold).await;
    release(within(SOON, waiting).await.unwrap().unwrap()).await;
}

/// Nobody may do so while it is in use; but if somebody does, nobody waits for ever.
#[tokio::test]
async fn a_directory_that_was_deleted_and_made_anew_unseen_is_not_taken_for_the_old_one() {
    let (server, chroot) = chroot("anew").await;
    let proxy = Proxy::start(server.connect_string()).await.unwrap();
    let peer = Peer::connect(&chroot.via(proxy.addr()).url(), "a").await;
    let other = Peer::connect(&chroot.url(), "b").await;
    let directory = format!("{}/a", chroot.path());
    let _hold = peer.lock("/a").await;
    let mut waiting = vec![];
    for length in 2..5 {
        waiting.push(peer.start(fair("/a", SOON)));
        is_queued(server, &chroot, "/a", length).await;
    }
    // While these are not answered, what is wanted is gathered.
    let answers = proxy.hold_reply(Op::Multi, 1);
    for path in ["/x", "/y"] {
        waiting.push(peer.start(fair(path, SOON)));
        is_queued(server, &chroot, path, 1).await;
    }
    for name in server.children(&directory).await.unwrap() {
        server.delete_node(&format!("{directory}/{name}")).await.unwrap();
    }
    server.delete_node(&directory).await.unwrap();
    let theirs = other.lock("/a").await;
    // It gets the sequence of one that still waits, by all that is known in its process.
    waiting.push(peer.start(fair("/a", SOON)));
    waiting.push(peer.start(fair("/b", SOON)));
    // In the thread that both of them were sent from.
    peer.session().unwrap().tasks.run(async {}).await.unwrap();
    answers.release();
    is_queued(server, &chroot, "/b", 1).await;
    assert!(theirs.is_held());
    release(theirs).await;
    // Those whose nodes were deleted stand behind it, in whichever order they noticed.
    let serve = async |waiting: JoinHandle<Result<_, Error>>| release(waiting.await.unwrap().unwrap()).await;
    for served in waiting.into_iter().map(|waiting| tokio::spawn(serve(waiting))).collect::<Vec<_>>() {
        within(SOON, served).await.unwrap();
    }
}

/// Requests that are gathered together stay below what a server takes, also where that is little.
#[tokio::test]
async fn a_burst_gets_through_to_a_server_that_takes_little() {
    let server = zklock_testkit::ZooKeeper::builder().jute_max_buffer(4096).start().await.unwrap();
    let peer = Peer::connect(&server.url(), "a").await;
    let burst: Vec<_> = (0..100).map(|i| peer.start(fair(&format!("/{i}"), SOON))).collect();
    for hold in burst {
        release(within(SOON, hold).await.unwrap().unwrap()).await;
    }
}
