use std::{sync::Arc, time::Duration};

use super::support::{Peer, SOON, chroot, config, fair, is_queued, plain, release, until, within};
use crate::{
    backend::{Backend, zookeeper::ensemble},
    error::{Error, LostReason},
    hold::State,
    path::LockPath,
};

#[tokio::test]
async fn a_free_lock_is_granted_and_leaves_nothing_behind() {
    let (server, chroot) = chroot("free").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let hold = peer.lock("/orders/42").await;
    assert!(hold.is_held());
    assert_eq!(hold.fence_key(), format!("{}/orders/42", chroot.path()));
    let directory = format!("{}/orders/42", chroot.path());
    let name = server.children(&directory).await.unwrap().remove(0);
    let node = server.node(&format!("{directory}/{name}")).await.unwrap().unwrap();
    assert!(hold.token().to_string().starts_with(&format!("{:016x}", node.czxid)));
    let data = String::from_utf8(node.data).unwrap();
    assert!(data.contains("\"identity\":\"a\"") && data.contains("\"function\":\"tests::f\""), "{data}");
    release(hold).await;
    assert!(server.node(&directory).await.unwrap().is_none());
}

#[tokio::test]
async fn a_free_lock_takes_one_request() {
    // A server of its own, since requests are counted.
    let server = zklock_testkit::ZooKeeper::start().await.unwrap();
    let peer = Peer::connect(&server.url(), "a").await;
    release(peer.lock("/a").await).await;
    let packets = async || server.metric("zk_packets_received").await.unwrap();
    // Heartbeats, pings and this question itself are noise: the least of some tries counts.
    let mut least = u64::MAX;
    for _ in 0..5 {
        let before = packets().await;
        for _ in 0..10 {
            release(peer.lock("/a").await).await;
        }
        least = least.min(packets().await - before);
    }
    assert!((20..=24).contains(&least), "{least} packets for ten times lock and release");
}

#[tokio::test]
async fn waiters_are_served_in_order_across_processes() {
    let (server, chroot) = chroot("order").await;
    let peers = [Peer::connect(&chroot.url(), "a").await, Peer::connect(&chroot.url(), "b").await];
    let mut hold = peers[0].lock("/a").await;
    let mut waiting = Vec::new();
    for i in 0..6 {
        waiting.push(peers[i % 2].start(fair("/a", SOON)));
        is_queued(server, &chroot, "/a", i + 2).await;
    }
    for next in waiting {
        let token = hold.token();
        assert!(!next.is_finished());
        release(hold).await;
        hold = within(SOON, next).await.unwrap().unwrap();
        assert!(hold.token() > token);
    }
    release(hold).await;
    // The last one goes alone, and the first session made the directory.
    until("the directory is gone or empty", async || {
        server.children(&format!("{}/a", chroot.path())).await.unwrap().is_empty()
    })
    .await;
}

#[tokio::test]
async fn one_try_says_who_holds() {
    let (server, chroot) = chroot("try").await;
    let peer = Peer::connect(&chroot.url(), "holder-1").await;
    for (path, request) in [("/a", fair as fn(&str, Duration) -> _), ("/b", plain)] {
        let hold = peer.acquire(request(path, SOON)).await.unwrap();
        let error = peer.acquire(request(path, Duration::ZERO)).await.unwrap_err();
        let Error::Busy { holder, .. } = &error else { panic!("{error}") };
        assert!(holder.as_ref().is_some_and(|holder| holder.starts_with("holder-1")), "{error}");
        let error = peer.acquire(request(path, Duration::from_millis(50))).await.unwrap_err();
        assert!(matches!(&error, Error::Busy { holder: Some(_), .. }), "{error}");
        release(hold).await;
        until("nobody is left", async || {
            server.node(&format!("{}{path}", chroot.path())).await.unwrap().is_none()
        })
        .await;
        let hold = peer.acquire(request(path, Duration::ZERO)).await.unwrap();
        release(hold).await;
    }
}

#[tokio::test]
async fn a_plain_lock_excludes_across_processes_and_tasks() {
    let (server, chroot) = chroot("plain").await;
    let peers = [Peer::connect(&chroot.url(), "a").await, Peer::connect(&chroot.url(), "b").await];
    let hold = peers[0].run_for("/a/b").await;
    let node = server.node(&format!("{}/a/b", chroot.path())).await.unwrap().unwrap();
    assert!(hold.token().to_string().starts_with(&format!("{:016x}", node.czxid)));
    let mut waiting: Vec<_> = (0..6).map(|i| peers[i % 2].start(plain("/a/b", SOON))).collect();
    let mut current = hold;
    while !waiting.is_empty() {
        assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
        release(current).await;
        let (next, rest) = within(SOON, first(waiting)).await;
        (current, waiting) = (next, rest);
    }
    release(current).await;
    assert!(server.node(&format!("{}/a/b", chroot.path())).await.unwrap().is_none());
}

type Waiting = tokio::task::JoinHandle<Result<Arc<crate::hold::Hold>, Error>>;

async fn first(mut waiting: Vec<Waiting>) -> (Arc<crate::hold::Hold>, Vec<Waiting>) {
    loop {
        if let Some(i) = waiting.iter().position(Waiting::is_finished) {
            return (waiting.remove(i).await.unwrap().unwrap(), waiting);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn the_two_kinds_do_not_mix() {
    let (server, chroot) = chroot("kinds").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let hold = peer.lock("/a").await;
    let error = peer.acquire(plain("/a", SOON)).await.unwrap_err();
    assert!(matches!(error, Error::WrongKind { .. }), "{error}");
    release(hold).await;
    let hold = peer.run_for("/a").await;
    let error = peer.acquire(fair("/a", SOON)).await.unwrap_err();
    assert!(matches!(error, Error::WrongKind { .. }), "{error}");
    release(hold).await;
    server.create_node(&format!("{}/p", chroot.path()), b"").await.unwrap();
    let error = peer.acquire(plain("/p", SOON)).await.unwrap_err();
    assert!(matches!(error, Error::WrongKind { .. }), "{error}");
}

#[tokio::test]
async fn a_plain_lock_waits_for_an_empty_directory_to_be_swept() {
    let sweep = "-Dznode.container.checkIntervalMs=500";
    let server = zklock_testkit::ZooKeeper::builder().java_option(sweep).start().await.unwrap();
    let (a, b) = (Peer::connect(&server.url(), "a").await, Peer::connect(&server.url(), "b").await);
    let hold = a.lock("/q").await;
    let second = b.start(fair("/q", SOON));
    until("both are queued", async || server.children("/q").await.unwrap().len() == 2).await;
    release(hold).await;
    // Not of the session that made the directory, so it stays.
    release(second.await.unwrap().unwrap()).await;
    let error = a.acquire(plain("/q", Duration::ZERO)).await.unwrap_err();
    assert!(matches!(error, Error::WrongKind { .. }), "{error}");
    release(a.run_for("/q").await).await;
    // Somebody's own directory is not touched.
    server.create_node("/p", b"").await.unwrap();
    let hold = a.lock("/p/x").await;
    release(hold).await;
    until("it is empty", async || server.children("/p").await.unwrap().is_empty()).await;
    let error = a.acquire(plain("/p", Duration::from_millis(300))).await.unwrap_err();
    assert!(matches!(error, Error::WrongKind { .. }), "{error}");
    assert!(server.node("/p").await.unwrap().is_some());
}

#[tokio::test]
async fn close_frees_at_once_and_ends_everything() {
    let (server, chroot) = chroot("close").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let other = Peer::connect(&chroot.url(), "b").await;
    let hold = peer.lock("/a").await;
    let waiting = peer.start(fair("/a", SOON));
    is_queued(server, &chroot, "/a", 2).await;
    let next = other.start(fair("/a", SOON));
    is_queued(server, &chroot, "/a", 3).await;
    within(Duration::from_secs(1), peer.close()).await;
    assert_eq!(hold.state(), State::Ended(LostReason::Closed));
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    release(within(Duration::from_secs(1), next).await.unwrap().unwrap()).await;
    assert!(matches!(peer.acquire(fair("/a", SOON)).await, Err(Error::Closed)));
    within(Duration::from_secs(1), peer.close()).await;
}

#[tokio::test]
async fn the_queue_can_be_read() {
    let (server, chroot) = chroot("inspect").await;
    let peers = [Peer::connect(&chroot.url(), "a").await, Peer::connect(&chroot.url(), "b").await];
    let path = LockPath::new("/a").unwrap();
    assert!(peers[0].inspect(&path).await.unwrap().is_empty());
    let hold = peers[0].lock("/a").await;
    let next = peers[1].start(fair("/a", SOON));
    is_queued(server, &chroot, "/a", 2).await;
    server.create_node(&format!("{}/a/config", chroot.path()), b"").await.unwrap();
    let queue = peers[1].inspect(&path).await.unwrap();
    let seen: Vec<_> = queue.iter().map(|entry| (entry.is_holder, entry.identity.as_deref())).collect();
    assert_eq!(seen, [(true, Some("a")), (false, Some("b"))]);
    assert!(queue.iter().all(|entry| entry.since.is_some() && entry.function.as_deref() == Some("tests::f")));
    release(hold).await;
    release(next.await.unwrap().unwrap()).await;
    let hold = peers[0].run_for("/plain").await;
    let queue = peers[1].inspect(&LockPath::new("/plain").unwrap()).await.unwrap();
    assert_eq!(queue.len(), 1);
    assert!(queue[0].is_holder && queue[0].identity.as_deref() == Some("a") && queue[0].name == "plain");
    release(hold).await;
}

#[tokio::test]
async fn the_chroot_is_made_and_the_ensemble_has_one_id() {
    let (server, chroot) = chroot("id").await;
    let url = format!("{}/deep/er", chroot.url());
    let (a, b) = (Peer::connect(&url, "a").await, Peer::connect(&url, "b").await);
    let hold = a.lock("/x").await;
    let ensemble = hold.token().ensemble();
    release(hold).await;
    let hold = b.lock("/x").await;
    assert_eq!(hold.token().ensemble(), ensemble);
    release(hold).await;
    let node = server.node(ensemble::NODE).await.unwrap().unwrap();
    assert_eq!(node.data, ensemble.to_string().as_bytes());
    assert_eq!(node.ephemeral_owner, 0);
    assert!(LockPath::new(ensemble::NODE).is_err(), "a lock could stand where the id is");
}

/// The row of a fence is found by the whole path, so that tokens of one lock must compare from wherever it is named.
#[tokio::test]
async fn a_lock_has_one_ensemble_from_whichever_chroot() {
    let (server, chroot) = chroot("alias").await;
    let inner = Peer::connect(&format!("{}/shop", chroot.url()), "a").await;
    let outer = Peer::connect(&chroot.url(), "b").await;
    let root = Peer::connect(&server.url(), "c").await;
    let mut last = None;
    for (peer, path) in [
        (&inner, "/orders/1".to_owned()),
        (&outer, "/shop/orders/1".to_owned()),
        (&root, format!("{}/shop/orders/1", chroot.path())),
    ] {
        let hold = peer.lock(&path).await;
        let now = Some((hold.token().ensemble(), hold.fence_key(), hold.token()));
        if let (Some((ensemble, key, token)), Some(now)) = (&last, &now) {
            assert_eq!((ensemble, key), (&now.0, &now.1));
            assert!(*token < now.2);
        }
        last = now;
        release(hold).await;
    }
}

#[tokio::test]
async fn no_server_is_said_within_the_bound() {
    // A port that is free, and one that accepts and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [silent.local_addr().unwrap(), free] {
        let start = std::time::Instant::now();
        let config = config(&format!("zk://{address}/x"), "a");
        let error = Peer::within(config, Duration::from_millis(500)).await.err().unwrap();
        assert!(start.elapsed() < Duration::from_millis(1500));
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_future_that_is_never_polled_does_nothing() {
    let (server, chroot) = chroot("lazy").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    drop(peer.acquire(fair("/a", SOON)));
    release(peer.lock("/b").await).await;
    assert!(server.node(&format!("{}/a", chroot.path())).await.unwrap().is_none());
}

/// What travels with the delete of our last node in a directory need not ask which directory it is, which would be a write to
/// it. One of them all must: it tells in which transaction they were made.
#[tokio::test]
async fn of_locks_taken_again_at_once_one_is_counted() {
    let (server, chroot) = chroot("again").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let seen = async |path: &str| {
        let node = server.node(&format!("{}{path}", chroot.path())).await.unwrap().unwrap();
        (node.czxid, node.version)
    };
    let mut holds = (peer.lock("/a").await, peer.lock("/b").await);
    // Whether they travel together is for the engine's thread to say, which is only slow to be woken.
    until("two that follow others, one of them uncounted", async || {
        let before = (seen("/a").await, seen("/b").await);
        let tokens = (holds.0.token(), holds.1.token());
        holds.0.release();
        holds.1.release();
        holds = tokio::join!(peer.lock("/a"), peer.lock("/b"));
        assert!(holds.0.token() > tokens.0 && holds.1.token() > tokens.1);
        let after = (seen("/a").await, seen("/b").await);
        after.0 == before.0 || after.1 == before.1
    })
    .await;
    release(holds.0).await;
    release(holds.1).await;
}
