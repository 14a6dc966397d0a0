use std::{
    future::Future,
    task::Context,
    time::{Duration, Instant},
};

use zklock_testkit::{Proxy, ZooKeeper as Server};
use zookeeper_client as zk;

use super::{
    super::{
        Config,
        contender::{OwnNode, Place},
    },
    support::{
        Peer, SESSION, SOON, chroot, config, count, fair, is_queued, made_up, panicking, plain, release,
        request, until, within,
    },
};
use crate::{
    backend::Backend,
    error::{Error, LostReason},
    hold::State,
};

/// Ends the session behind the peer's back: a second client takes it over and closes it. The peer is kept away
/// meanwhile, since two clients of one session take it from each other for as long as they live.
async fn expire(server: &Server, proxy: &Proxy, peer: &Peer) {
    let session = peer.session().unwrap();
    let info = session.client().unwrap().session().clone();
    drop(session);
    proxy.refuse();
    proxy.cut();
    let second = zk::Client::connector().with_session(info).connect(server.connect_string()).await.unwrap();
    let mut states = second.state_watcher();
    drop(second);
    within(SOON, async { while !states.changed().await.is_terminated() {} }).await;
    proxy.heal().unwrap();
}

#[tokio::test]
async fn an_expired_session_ends_its_holds_and_is_replaced() {
    let (server, chroot) = chroot("expire").await;
    let proxy = Proxy::start(server.connect_string()).await.unwrap();
    let peer = Peer::connect(&chroot.via(proxy.addr()).url(), "a").await;
    let other = Peer::connect(&chroot.url(), "b").await;
    let (fair_hold, plain_hold) = (peer.lock("/a").await, peer.run_for("/p").await);
    let held_by_other = other.lock("/b").await;
    // These two wait in the session that ends, and must get their locks in the next one.
    let (behind_own, behind_other) = (peer.start(fair("/a", SOON)), peer.start(fair("/b", SOON)));
    is_queued(server, &chroot, "/a", 2).await;
    is_queued(server, &chroot, "/b", 2).await;
    let id = peer.session().unwrap().id();
    expire(server, &proxy, &peer).await;
    for hold in [&fair_hold, &plain_hold] {
        // The second only on a machine so busy that all of this took seconds.
        let reason = within(SOON, hold.ended()).await;
        assert!(matches!(reason, LostReason::SessionExpired | LostReason::Unconfirmed));
        assert!(!hold.is_held());
    }
    let hold = within(SOON, behind_own).await.unwrap().unwrap();
    assert!(hold.is_held() && hold.token() > fair_hold.token());
    assert_ne!(peer.session().unwrap().id(), id);
    // A late release of the old hold takes nothing from the new one.
    release(fair_hold).await;
    release(plain_hold).await;
    let again = peer.run_for("/p").await;
    assert!(hold.is_held() && again.is_held());
    assert_eq!(count(server, &chroot, "/a").await, 1);
    release(held_by_other).await;
    release(within(SOON, behind_other).await.unwrap().unwrap()).await;
    release(hold).await;
    release(again).await;
}

/// All holds of a session are told of its end, by the one who is to build the next.
#[tokio::test]
async fn a_waker_that_panics_does_not_keep_the_next_session_away() {
    let (server, chroot) = chroot("panics").await;
    let proxy = Proxy::start(server.connect_string()).await.unwrap();
    let peer = Peer::connect(&chroot.via(proxy.addr()).url(), "a").await;
    let holds = [peer.lock("/a").await, peer.lock("/b").await, peer.run_for("/p").await];
    let waker = panicking();
    let mut all: Vec<_> = holds.iter().map(|hold| Box::pin(hold.ended())).collect();
    for ended in &mut all {
        assert!(ended.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    expire(server, &proxy, &peer).await;
    release(peer.lock("/c").await).await;
    assert!(holds.iter().all(|hold| matches!(hold.state(), State::Ended(_))));
}

#[tokio::test]
async fn a_silent_server_costs_the_locks_before_the_session_can_be_given_away() {
    let server = Server::start().await.unwrap();
    let peer = Peer::connect(&server.url(), "a").await;
    let (first, second) = (peer.lock("/a").await, peer.run_for("/p").await);
    let session = peer.session().unwrap();
    assert_eq!(session.timeout, SESSION);
    let paused = Instant::now();
    server.pause().unwrap();
    for hold in [&first, &second] {
        assert_eq!(within(SOON, hold.ended()).await, LostReason::Unconfirmed);
    }
    let took = paused.elapsed();
    assert!(took < SESSION * 3 / 4, "held for {took:?} without a confirmation");
    assert!(took > SESSION / 2, "given up after {took:?} already");
    assert!(!session.validity.is_connected());
    // Nothing is granted, however it came by its node.
    let own = OwnNode::new(session.clone(), made_up("/x"), Place::nobodys());
    let (call, _answer) = peer.call(fair("/x", SOON));
    let (_, own) = call.claim(uuid::Uuid::nil()).grant(own).unwrap_err();
    own.node().is_seen_gone();
    let start = Instant::now();
    let error = peer.acquire(fair("/b", Duration::from_millis(300))).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_millis(600));
    server.resume().unwrap();
    // Whether the session survived or not: what ended stays ended, and its nodes go.
    let third = peer.lock("/c").await;
    assert_eq!(first.state(), State::Ended(LostReason::Unconfirmed));
    release(first).await;
    release(second).await;
    let again = peer.lock("/a").await;
    assert!(third.is_held() && again.is_held());
    release(peer.run_for("/p").await).await;
    until("the node of what timed out is gone", async || server.node("/b").await.unwrap().is_none()).await;
}

#[tokio::test]
async fn a_short_silence_costs_nothing() {
    let server = Server::start().await.unwrap();
    let peer = Peer::connect(&server.url(), "a").await;
    let hold = peer.lock("/a").await;
    let id = peer.session().unwrap().id();
    server.pause().unwrap();
    // Longer than the library's own patience, which is two fifths of the session timeout.
    let session = peer.session().unwrap();
    until("disconnected", async || !session.validity.is_connected()).await;
    assert!(hold.is_held() && hold.may_commit().is_err());
    // Sent into the silence: done when the server goes on.
    let waiting = peer.start(fair("/b", SOON));
    server.resume().unwrap();
    let other = within(SOON, waiting).await.unwrap().unwrap();
    until("a commit may start again", async || hold.may_commit().is_ok()).await;
    assert!(hold.is_held());
    assert_eq!(peer.session().unwrap().id(), id);
    release(hold).await;
    release(other).await;
    // Nor did the silence leave a second node.
    until("nothing is left", async || server.node("/b").await.unwrap().is_none()).await;
}

#[tokio::test]
async fn a_dead_server_is_survived() {
    let server = Server::start().await.unwrap();
    let peer = Peer::connect(&server.url(), "a").await;
    let hold = peer.lock("/a").await;
    server.kill().unwrap();
    assert_eq!(within(SOON, hold.ended()).await, LostReason::Unconfirmed);
    let session = peer.session();
    let error = peer.acquire(fair("/b", Duration::from_millis(200))).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains(server.connect_string()), "{error}");
    until("the session is given up", async || peer.session().is_none()).await;
    drop(session);
    let waiting = peer.start(fair("/a", 3 * SOON));
    server.restart().await.unwrap();
    // The server starts all sessions' time anew, so the old node stays for that long.
    let again = within(2 * SOON, waiting).await.unwrap().unwrap();
    assert!(again.token() > hold.token());
    release(again).await;
}

#[tokio::test]
async fn wiped_data_is_another_ensemble() {
    let server = Server::start().await.unwrap();
    let peer = Peer::connect(&format!("{}/x", server.url()), "a").await;
    let hold = peer.lock("/a").await;
    server.wipe().await.unwrap();
    within(2 * SOON, hold.ended()).await;
    let again = peer.acquire(fair("/a", 3 * SOON)).await.unwrap();
    assert_ne!(again.token().ensemble(), hold.token().ensemble());
    release(again).await;
}

#[tokio::test]
async fn a_deleted_chroot_is_made_again_for_the_same_ensemble() {
    let (server, chroot) = chroot("rmr").await;
    let url = format!("{}/x", chroot.url());
    let peer = Peer::connect(&url, "a").await;
    let hold = peer.lock("/a").await;
    let ensemble = hold.token().ensemble();
    release(hold).await;
    for node in server.children(&format!("{}/x", chroot.path())).await.unwrap() {
        server.delete_node(&format!("{}/x/{node}", chroot.path())).await.unwrap();
    }
    assert!(server.delete_node(&format!("{}/x", chroot.path())).await.unwrap());
    for hold in [peer.lock("/a/b/c").await, peer.run_for("/p/q").await] {
        release(hold).await;
    }
    let other = Peer::connect(&url, "b").await;
    assert_eq!(other.lock("/a").await.token().ensemble(), ensemble);
}

#[tokio::test]
async fn a_deleted_node_ends_its_hold() {
    let (server, chroot) = chroot("gone").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let (first, second) = (peer.lock("/a").await, peer.run_for("/p").await);
    let directory = format!("{}/a", chroot.path());
    // Watched only when they have lasted for a second.
    let session = peer.session().unwrap();
    until("both are watched", async || session.watched() == 2).await;
    for name in server.children(&directory).await.unwrap() {
        server.delete_node(&format!("{directory}/{name}")).await.unwrap();
    }
    server.delete_node(&format!("{}/p", chroot.path())).await.unwrap();
    for hold in [&first, &second] {
        assert_eq!(within(SOON, hold.ended()).await, LostReason::NodeGone);
    }
    // The next holder's node has the same name, and must survive the release of the lost hold.
    let other = Peer::connect(&chroot.url(), "b").await;
    let next = other.run_for("/p").await;
    release(second).await;
    release(first).await;
    release(peer.lock("/x").await).await;
    assert!(server.node(&format!("{}/p", chroot.path())).await.unwrap().is_some());
    release(next).await;
}

/// Its own node is not watched yet, and went with the holder's.
#[tokio::test]
async fn who_has_lost_its_node_does_not_pass_the_lock_on() {
    let (server, chroot) = chroot("lostboth").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let directory = format!("{}/a", chroot.path());
    let hold = peer.lock("/a").await;
    let session = peer.session().unwrap();
    until("it is watched", async || session.watched() == 1).await;
    let waiting = peer.start(fair("/a", SOON));
    is_queued(server, &chroot, "/a", 2).await;
    for name in server.children(&directory).await.unwrap() {
        server.delete_node(&format!("{directory}/{name}")).await.unwrap();
    }
    assert_eq!(within(SOON, hold.ended()).await, LostReason::NodeGone);
    release(hold).await;
    let next = within(SOON, waiting).await.unwrap().unwrap();
    let names = server.children(&directory).await.unwrap();
    assert_eq!(names.len(), 1, "granted without a node");
    let node = server.node(&format!("{directory}/{}", names[0])).await.unwrap().unwrap();
    assert!(next.token().to_string().starts_with(&format!("{:016x}", node.czxid)));
    release(next).await;
}

/// Its body may be long in ending; the directory is not the one any more in which it stood.
#[tokio::test]
async fn who_has_lost_its_node_keeps_nobody_waiting_in_a_directory_made_anew() {
    let (server, chroot) = chroot("lostdir").await;
    let [peer, other] = [Peer::connect(&chroot.url(), "a").await, Peer::connect(&chroot.url(), "b").await];
    let directory = format!("{}/a", chroot.path());
    let lost = peer.lock("/a").await;
    let session = peer.session().unwrap();
    until("it is watched", async || session.watched() == 1).await;
    for name in server.children(&directory).await.unwrap() {
        server.delete_node(&format!("{directory}/{name}")).await.unwrap();
    }
    server.delete_node(&directory).await.unwrap();
    assert_eq!(within(SOON, lost.ended()).await, LostReason::NodeGone);
    let theirs = other.lock("/a").await;
    let waiting = peer.start(fair("/a", SOON));
    is_queued(server, &chroot, "/a", 2).await;
    release(theirs).await;
    let next = within(SOON, waiting).await.unwrap().unwrap();
    assert!(next.is_held() && !lost.is_held());
    release(lost).await;
    assert!(next.is_held());
    release(next).await;
}

#[tokio::test]
async fn waiters_survive_what_an_operator_deletes() {
    let (server, chroot) = chroot("rmnode").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let other = Peer::connect(&chroot.url(), "b").await;
    let directory = format!("{}/a", chroot.path());
    let hold = peer.lock("/a").await;
    let holder = server.children(&directory).await.unwrap().remove(0);
    let waiting = other.start(fair("/a", SOON));
    is_queued(server, &chroot, "/a", 2).await;
    // The waiter's own node, first.
    let names = server.children(&directory).await.unwrap();
    let own = names.iter().find(|name| **name != holder).unwrap();
    server.delete_node(&format!("{directory}/{own}")).await.unwrap();
    until("it stands in the queue again", async || {
        let names = server.children(&directory).await.unwrap();
        names.len() == 2 && !names.contains(own)
    })
    .await;
    // Then everything, the directory included; at once, since the waiter comes back.
    let operator = zk::Client::connect(server.connect_string()).await.unwrap();
    until("all of it is gone", async || {
        let names = server.children(&directory).await.unwrap();
        let mut all = operator.new_multi_writer();
        for name in names {
            all.add_delete(&format!("{directory}/{name}"), None).unwrap();
        }
        all.add_delete(&directory, None).unwrap();
        all.commit().await.is_ok()
    })
    .await;
    let next = within(SOON, waiting).await.unwrap().unwrap();
    assert_eq!(within(SOON, hold.ended()).await, LostReason::NodeGone);
    assert!(next.is_held());
    release(hold).await;
    release(next).await;
}

#[tokio::test]
async fn sessions_are_closed_with_their_peers() {
    let server = Server::start().await.unwrap();
    for round in 0..10 {
        let peer = Peer::connect(&server.url(), "a").await;
        let (hold, other) = (peer.lock("/a").await, peer.run_for("/p").await);
        if round % 2 == 0 {
            within(Duration::from_secs(1), peer.close()).await;
        }
        drop(peer);
        drop((hold, other));
    }
    until("no node and no session is left", async || {
        server.node("/p").await.unwrap().is_none()
            && server.children("/a").await.unwrap().is_empty()
            && server.metric("zk_num_alive_connections").await.unwrap() <= 1
    })
    .await;
}

#[tokio::test]
async fn many_take_turns_and_some_give_up() {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };
    let (server, chroot) = chroot("many").await;
    for is_fair in [true, false] {
        let path = if is_fair { "/fair" } else { "/plain" };
        let peers = [Peer::connect(&chroot.url(), "a").await, Peer::connect(&chroot.url(), "b").await];
        let inside = Arc::new(AtomicU32::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for i in 0..16_u64 {
            let inside = inside.clone();
            let asked: Vec<_> = (0..30)
                .map(|_| peers[usize::from(i % 2 == 0)].acquire(request(path, is_fair, 6 * SOON)))
                .collect();
            tasks.spawn(async move {
                let mut done = 0;
                for (k, asked) in asked.into_iter().enumerate() {
                    // Every third one gives up, after anything from nothing to some milliseconds.
                    let patience = Duration::from_micros((i * 997 + k as u64 * 331) % 7_000);
                    let hold = if k % 3 == 2 {
                        match tokio::time::timeout(patience, asked).await {
                            Ok(hold) => hold.unwrap(),
                            Err(_) => continue,
                        }
                    } else {
                        asked.await.unwrap()
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    tokio::task::yield_now().await;
                    assert!(hold.is_held());
                    inside.fetch_sub(1, Ordering::SeqCst);
                    hold.release();
                    done += 1;
                }
                done
            });
        }
        let mut done = 0;
        while let Some(task) = within(6 * SOON, tasks.join_next()).await {
            done += task.unwrap();
        }
        assert!(done >= 16 * 20);
        until("nobody is left in the queue", async || {
            count(server, &chroot, "/fair").await == 0
                && server.node(&format!("{}/plain", chroot.path())).await.unwrap().is_none()
        })
        .await;
        for peer in peers {
            let session = peer.session().unwrap();
            until("the janitor is done", async || session.janitor.deletes().pending == 0).await;
            assert_eq!(session.janitor.deletes().refused, 0);
        }
    }
}

/// Who hears nothing for longer than a second is not told that others have the lock.
#[tokio::test]
async fn a_server_that_does_not_answer_is_not_somebody_else() {
    let server = Server::start().await.unwrap();
    // So long that the connection still counts as good when the wait is over.
    let config = Config { session_timeout: 10 * SESSION, ..config(&server.url(), "a") };
    let peer = Peer::with(config).await.unwrap();
    release(peer.lock("/fair").await).await;
    release(peer.run_for("/plain").await).await;
    server.pause().unwrap();
    let wait = Duration::from_secs(2);
    let (fair, plain) = tokio::join!(
        within(SOON, peer.acquire(fair("/fair", wait))),
        within(SOON, peer.acquire(plain("/plain", wait)))
    );
    assert!(peer.session().unwrap().validity.is_connected());
    for error in [fair.unwrap_err(), plain.unwrap_err()] {
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
    server.resume().unwrap();
}
