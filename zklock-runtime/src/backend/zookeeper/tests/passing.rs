//! A plain node that goes from one task of a process to the next, and from process to process.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Context,
    time::Duration,
};

use tokio::task::JoinHandle;
use uuid::Uuid;
use zklock_testkit::{Op, Proxy, ZooKeeper as Server};

use super::{
    super::{
        Limit,
        contender::{OwnNode, Place},
        local::Standing,
    },
    support::{Peer, SOON, chroot, made_up, panicking, plain, release, until, within},
};
use crate::{
    backend::Backend,
    error::{Error, LostReason},
    hold::{Hold, State},
    token::FencingToken,
};

const ENDLESS: Limit = Limit { longest: Duration::MAX, most: u32::MAX };

fn most(most: u32) -> Limit {
    Limit { most, ..ENDLESS }
}

/// Who held, and with which token, in this order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(usize, FencingToken)>>>);

impl Log {
    /// Queues up behind `before` others of its process, to hold once.
    async fn queue_up(&self, peer: &Peer, name: usize, before: usize) -> JoinHandle<()> {
        let (asked, log) = (peer.acquire(plain("/p", 3 * SOON)), self.clone());
        let task = tokio::spawn(async move { log.hold(name, &asked.await.unwrap()) });
        is_waiting(peer, before + 1).await;
        task
    }

    fn hold(&self, name: usize, hold: &Arc<Hold>) {
        {
            let mut log = self.0.try_lock().expect("two holders");
            let last = log.last().map(|(_, token)| *token);
            assert!(last < Some(hold.token()), "{last:?} before {:?}", hold.token());
            log.push((name, hold.token()));
        }
        assert!(hold.is_held());
        hold.release();
    }

    fn names(&self) -> Vec<usize> {
        self.0.lock().unwrap().iter().map(|(name, _)| *name).collect()
    }

    /// How many held each node, one after the other.
    fn shares(&self) -> Vec<usize> {
        let log = self.0.lock().unwrap();
        log.chunk_by(|(_, one), (_, next)| node(*one) == node(*next)).map(<[_]>::len).collect()
    }
}

/// The part of a token that names the node, and how many had it before.
fn parts(token: FencingToken) -> (String, String) {
    let mut text = token.to_string();
    let handover = text.split_off(20);
    (text, handover)
}

fn node(token: FencingToken) -> String {
    parts(token).0
}

/// So many wait for "/p" in this process.
async fn is_waiting(peer: &Peer, count: usize) {
    let session = peer.session().unwrap();
    until(&format!("{count} wait here"), async || session.local.queue(&"/p".into()).waiting() == count).await;
}

/// The server has a watch of this process on `node`.
async fn is_watching(server: &Server, peer: &Peer, node: &str) {
    let session = format!("0x{:x}", peer.session().unwrap().id());
    until("it watches", async || {
        let watches = server.word("wchp").await.unwrap();
        let mut sessions = watches.lines().skip_while(|line| *line != node).skip(1);
        sessions.by_ref().take_while(|line| !line.starts_with('/')).any(|line| line.trim() == session)
    })
    .await;
}

async fn nothing_is_left(server: &Server, node: &str, peers: &[&Peer]) {
    until("the node is gone", async || server.node(node).await.unwrap().is_none()).await;
    for peer in peers {
        let session = peer.session().unwrap();
        until("no queue is left, and no delete", async || {
            session.local.count() == 0 && session.janitor.deletes().pending == 0
        })
        .await;
    }
}

#[tokio::test]
async fn one_node_serves_all_who_wait_here_in_their_order() {
    let (server, chroot) = chroot("pass").await;
    let peer = Peer::sharing(&chroot.url(), "a", ENDLESS).await;
    let hold = peer.run_for("/p").await;
    let (name, log) = (format!("{}/p", chroot.path()), Log::default());
    let czxid = server.node(&name).await.unwrap().unwrap().czxid;
    let mut tasks = Vec::new();
    for i in 0..20 {
        tasks.push(log.queue_up(&peer, i, i).await);
    }
    log.hold(100, &hold);
    within(SOON, hold.gone()).await;
    for task in tasks {
        within(SOON, task).await.unwrap();
    }
    assert_eq!(log.names()[1..], (0..20).collect::<Vec<_>>());
    for (i, (_, token)) in log.0.lock().unwrap().iter().enumerate() {
        assert_eq!(parts(*token), (format!("{czxid:016x}0000"), format!("{i:08x}")));
    }
    nothing_is_left(server, &name, &[&peer]).await;
}

#[tokio::test]
async fn many_holds_take_few_requests() {
    // A server of its own, since requests are counted.
    let server = Server::start().await.unwrap();
    let peer = Peer::sharing(&server.url(), "a", ENDLESS).await;
    let packets = async || server.metric("zk_packets_received").await.unwrap();
    // Heartbeats, pings and this question itself are noise: the least of some tries counts.
    let mut least = u64::MAX;
    for _ in 0..3 {
        let (hold, log) = (peer.run_for("/p").await, Log::default());
        let mut tasks = Vec::new();
        for i in 0..50 {
            tasks.push(log.queue_up(&peer, i, i).await);
        }
        let before = packets().await;
        release(hold).await;
        for task in tasks {
            within(SOON, task).await.unwrap();
        }
        nothing_is_left(&server, "/p", &[&peer]).await;
        least = least.min(packets().await - before);
    }
    // One is the delete.
    assert!((1..=10).contains(&least), "{least} packets for fifty holds");
}

#[tokio::test]
async fn a_share_ends_by_count_and_by_time() {
    let (server, chroot) = chroot("share").await;
    let short = Limit { longest: Duration::ZERO, most: u32::MAX };
    for (share, shares) in [(most(4), vec![4, 4, 4, 1]), (short, vec![1; 13])] {
        let peer = Peer::sharing(&chroot.url(), "a", share).await;
        let (hold, log) = (peer.run_for("/p").await, Log::default());
        let mut tasks = Vec::new();
        for i in 0..12 {
            tasks.push(log.queue_up(&peer, i, i).await);
        }
        log.hold(100, &hold);
        for task in tasks {
            within(SOON, task).await.unwrap();
        }
        assert_eq!(log.shares(), shares, "{share:?}");
        assert_eq!(log.names()[1..], (0..12).collect::<Vec<_>>());
        nothing_is_left(server, &format!("{}/p", chroot.path()), &[&peer]).await;
    }
}

/// However long it takes the others to ask, within a round trip of ours.
#[tokio::test]
async fn who_has_had_its_share_asks_after_those_who_wait() {
    let (server, chroot) = chroot("turn").await;
    let proxy = Proxy::start(server.connect_string()).await.unwrap();
    let peer = Peer::sharing(&chroot.via(proxy.addr()).url(), "a", most(3)).await;
    let other = Peer::sharing(&chroot.url(), "b", most(3)).await;
    let (hold, log) = (peer.run_for("/p").await, Log::default());
    let name = format!("{}/p", chroot.path());
    let mut tasks = Vec::new();
    for i in 0..5 {
        tasks.push(log.queue_up(&peer, i, i).await);
    }
    let waiting = other.start(plain("/p", SOON));
    is_watching(server, &other, &name).await;
    let (deleted, look) = (proxy.hold_reply(Op::Delete, 1), proxy.hold_request(Op::GetData, 1));
    log.hold(100, &hold);
    let theirs = within(SOON, waiting).await.unwrap().unwrap();
    // Not as long as the others may not have heard.
    deleted.fired().await.unwrap();
    assert!(!look.has_fired());
    deleted.release();
    look.fired().await.unwrap();
    assert_eq!(log.names(), [100, 0, 1]);
    look.release();
    is_waiting(&peer, 3).await;
    assert!(theirs.is_held());
    log.hold(200, &theirs);
    for task in tasks {
        within(SOON, task).await.unwrap();
    }
    assert_eq!(log.names(), [100, 0, 1, 200, 2, 3, 4]);
    nothing_is_left(server, &name, &[&peer, &other]).await;
}

/// A node that is deleted and made again in one request is never free, so that it counts as one that stands.
#[tokio::test]
async fn nodes_that_follow_each_other_are_one_share() {
    let (server, chroot) = chroot("follow").await;
    let proxy = Proxy::start(server.connect_string()).await.unwrap();
    let peer = Peer::sharing(&chroot.via(proxy.addr()).url(), "a", most(3)).await;
    let other = Peer::sharing(&chroot.url(), "b", most(3)).await;
    // As a delete on its way would, this keeps the share in mind.
    let queue = peer.session().unwrap().local.queue(&"/p".into());
    let (look, log) = (proxy.hold_request(Op::GetData, 1), Log::default());
    for _ in 0..3 {
        let hold = peer.run_for("/p").await;
        log.hold(0, &hold);
        within(SOON, hold.gone()).await;
    }
    let fourth = peer.start(plain("/p", SOON));
    look.fired().await.unwrap();
    let theirs = other.run_for("/p").await;
    look.release();
    log.hold(1, &theirs);
    log.hold(0, &within(SOON, fourth).await.unwrap().unwrap());
    assert_eq!(log.shares(), [1; 5]);
    drop(queue);
    nothing_is_left(server, &format!("{}/p", chroot.path()), &[&peer, &other]).await;
}

#[tokio::test]
async fn whoever_waited_for_others_has_a_whole_share() {
    let (server, chroot) = chroot("whole").await;
    let [peer, other] =
        [Peer::sharing(&chroot.url(), "a", most(2)).await, Peer::sharing(&chroot.url(), "b", most(2)).await];
    let queue = peer.session().unwrap().local.queue(&"/p".into());
    let log = Log::default();
    let hold = peer.run_for("/p").await;
    log.hold(0, &hold);
    within(SOON, hold.gone()).await;
    let theirs = other.run_for("/p").await;
    let mut tasks = Vec::new();
    for i in 0..2 {
        tasks.push(log.queue_up(&peer, i, i).await);
    }
    let name = format!("{}/p", chroot.path());
    is_watching(server, &peer, &name).await;
    log.hold(1, &theirs);
    for task in tasks {
        within(SOON, task).await.unwrap();
    }
    assert_eq!(log.shares(), [1, 1, 2]);
    drop(queue);
    nothing_is_left(server, &name, &[&peer, &other]).await;
}

#[tokio::test]
async fn when_the_one_who_asks_withdraws_the_next_one_asks() {
    let (server, chroot) = chroot("asker").await;
    let peer = Peer::sharing(&chroot.url(), "a", ENDLESS).await;
    let other = Peer::sharing(&chroot.url(), "b", ENDLESS).await;
    let (theirs, log) = (other.run_for("/p").await, Log::default());
    let name = format!("{}/p", chroot.path());
    let first = log.queue_up(&peer, 0, 0).await;
    is_watching(server, &peer, &name).await;
    let second = log.queue_up(&peer, 1, 1).await;
    first.abort();
    is_waiting(&peer, 1).await;
    log.hold(2, &theirs);
    within(SOON, second).await.unwrap();
    assert_eq!(log.names(), [2, 1]);
    nothing_is_left(server, &name, &[&peer, &other]).await;
}

#[tokio::test]
async fn one_task_that_always_comes_back_does_not_keep_others_out() {
    let (server, chroot) = chroot("loop").await;
    let peer = Arc::new(Peer::sharing(&chroot.url(), "a", most(8)).await);
    let other = Peer::sharing(&chroot.url(), "b", most(8)).await;
    let (log, is_over, rounds) = (Log::default(), Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let task = tokio::spawn({
        let (peer, log, is_over, rounds) = (peer.clone(), log.clone(), is_over.clone(), rounds.clone());
        async move {
            while !is_over.load(Ordering::Relaxed) {
                log.hold(0, &peer.run_for("/p").await);
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    for _ in 0..5 {
        let before = rounds.load(Ordering::Relaxed);
        until("it goes round", async || rounds.load(Ordering::Relaxed) > before).await;
        log.hold(1, &within(SOON, other.run_for("/p")).await);
    }
    is_over.store(true, Ordering::Relaxed);
    within(SOON, task).await.unwrap();
    nothing_is_left(server, &format!("{}/p", chroot.path()), &[&peer, &other]).await;
}

#[tokio::test]
async fn two_crowds_share() {
    const ENOUGH: usize = 200;
    let (server, chroot) = chroot("crowds").await;
    let peers = [
        Arc::new(Peer::sharing(&chroot.url(), "a", most(16)).await),
        Arc::new(Peer::sharing(&chroot.url(), "b", most(16)).await),
    ];
    let log = Log::default();
    let counts = || [0, 1].map(|name| log.names().iter().filter(|each| **each == name).count());
    let is_over = Arc::<AtomicBool>::default();
    let mut tasks = Vec::new();
    for i in 0..16 {
        let (peer, log, is_over) = (peers[i % 2].clone(), log.clone(), is_over.clone());
        tasks.push(tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                log.hold(i % 2, &peer.run_for("/p").await);
            }
        }));
    }
    until("both had it often", async || counts().iter().all(|count| *count >= ENOUGH)).await;
    let counts = counts();
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        within(SOON, task).await.unwrap();
    }
    assert!(counts.iter().all(|count| *count <= 10 * ENOUGH), "{counts:?}");
    nothing_is_left(server, &format!("{}/p", chroot.path()), &[&peers[0], &peers[1]]).await;
}

/// A chain of callers that are gone is worked off in a loop: as calls in each other it would not fit the stack.
#[tokio::test]
async fn callers_that_are_gone_are_passed_over() {
    let (server, chroot) = chroot("chain").await;
    let peer = Peer::sharing(&chroot.url(), "a", ENDLESS).await;
    let session = peer.session().unwrap();
    let queue = session.local.queue(&"/p".into());
    let claim = || {
        let (call, answer) = peer.call(plain("/p", SOON));
        (call.claim(Uuid::new_v4()), answer)
    };
    let places: Vec<_> = (0..20_000).map(|_| queue.enter(claim().0)).collect();
    let (last, mut answer) = claim();
    let last = queue.enter(last);
    let own = OwnNode::new(session.clone(), made_up("/p"), Place::plain(queue.clone()));
    queue.receive(own, None);
    assert!(places.iter().all(|place| place.standing(false) == Standing::Granted));
    let hold = answer.try_recv().unwrap().unwrap();
    assert_eq!(parts(hold.token()).1, format!("{:08x}", 20_000));
    drop((places, last, queue));
    release(hold).await;
    nothing_is_left(server, &format!("{}/p", chroot.path()), &[&peer]).await;
}

#[tokio::test]
async fn who_withdrew_is_passed_over() {
    let (server, chroot) = chroot("withdraw").await;
    let peer = Peer::sharing(&chroot.url(), "a", ENDLESS).await;
    let (hold, log) = (peer.run_for("/p").await, Log::default());
    let mut tasks = Vec::new();
    for i in 0..6 {
        tasks.push(log.queue_up(&peer, i, i).await);
    }
    for i in [0, 3, 5] {
        tasks[i].abort();
    }
    is_waiting(&peer, 3).await;
    log.hold(100, &hold);
    for (i, task) in tasks.into_iter().enumerate() {
        assert_eq!(within(SOON, task).await.is_ok(), ![0, 3, 5].contains(&i));
    }
    assert_eq!((log.names(), log.shares()), (vec![100, 1, 2, 4], vec![4]));
    nothing_is_left(server, &format!("{}/p", chroot.path()), &[&peer]).await;
}

/// One watch serves all holds of a node.
#[tokio::test]
async fn a_node_that_was_passed_on_and_is_deleted_ends_the_hold_of_whoever_has_it() {
    let (server, chroot) = chroot("rmpassed").await;
    let peer = Peer::sharing(&chroot.url(), "a", ENDLESS).await;
    let session = peer.session().unwrap();
    let name = format!("{}/p", chroot.path());
    let first = peer.run_for("/p").await;
    until("it is watched", async || session.watched() == 1).await;
    let waiting = peer.start(plain("/p", SOON));
    is_waiting(&peer, 1).await;
    release(first).await;
    let second = within(SOON, waiting).await.unwrap().unwrap();
    assert_eq!((parts(second.token()).1, session.watched()), (format!("{:08x}", 1), 1));
    let waiting = peer.start(plain("/p", SOON));
    is_waiting(&peer, 1).await;
    assert!(server.delete_node(&name).await.unwrap());
    assert_eq!(within(SOON, second.ended()).await, LostReason::NodeGone);
    // Nor is it passed on: the next one needs a node of its own, which the release of the lost one spares.
    let token = second.token();
    release(second).await;
    let third = within(SOON, waiting).await.unwrap().unwrap();
    assert!(third.token() > token && node(third.token()) != node(token));
    release(peer.run_for("/other").await).await;
    assert!(third.is_held() && server.node(&name).await.unwrap().is_some());
    release(third).await;
    nothing_is_left(server, &name, &[&peer]).await;
}

/// Unseen by the watch, but then somebody of ours makes the node that should be there.
#[tokio::test]
async fn a_node_that_can_be_made_again_is_held_by_nobody() {
    let (server, chroot) = chroot("remade").await;
    let peer = Peer::sharing(&chroot.url(), "a", ENDLESS).await;
    let name = format!("{}/p", chroot.path());
    let lost = peer.run_for("/p").await;
    assert!(server.delete_node(&name).await.unwrap());
    let hold = peer.acquire(plain("/p", Duration::ZERO)).await.unwrap();
    assert_eq!(lost.state(), State::Ended(LostReason::NodeGone));
    release(lost).await;
    release(peer.run_for("/other").await).await;
    assert!(hold.is_held() && server.node(&name).await.unwrap().is_some());
    release(hold).await;
    nothing_is_left(server, &name, &[&peer]).await;
}

#[tokio::test]
async fn what_a_session_may_have_lost_is_not_passed_on() {
    let server = Server::start().await.unwrap();
    let peer = Peer::sharing(&server.url(), "a", ENDLESS).await;
    let hold = peer.run_for("/p").await;
    let waiting = peer.start(plain("/p", 6 * SOON));
    is_waiting(&peer, 1).await;
    let session = peer.session().unwrap();
    server.pause().unwrap();
    assert_eq!(within(SOON, hold.ended()).await, LostReason::Unconfirmed);
    let token = hold.token();
    hold.release();
    assert_eq!(session.local.queue(&"/p".into()).waiting(), 1, "passed on without a valid session");
    // Who was about to get something is first in line again, if it is still there.
    let queue = session.local.queue(&"/x".into());
    for (is_there, waits) in [(true, 1), (false, 0)] {
        let (call, _answer) = peer.call(plain("/x", SOON));
        let place = queue.pass_by();
        let newcomer = place.newcomer(call.claim(Uuid::new_v4()));
        let place = is_there.then_some(place);
        let node = made_up("/x");
        let own = OwnNode::new(session.clone(), node, Place::plain(queue.clone()));
        queue.receive(own, Some(newcomer));
        assert_eq!(queue.waiting(), waits);
        drop(place);
        assert_eq!(queue.waiting(), 0);
    }
    drop(queue);
    drop(session);
    server.resume().unwrap();
    let next = within(3 * SOON, waiting).await.unwrap().unwrap();
    assert!(next.is_held() && next.token() > token);
    assert!(hold.state() == State::Ended(LostReason::Unconfirmed));
    release(next).await;
    nothing_is_left(&server, "/p", &[&peer]).await;
}

/// The body of one that overran may still run. What it writes is told from the next holder's by the token.
#[tokio::test]
async fn what_was_taken_by_force_is_passed_on_with_a_higher_token() {
    let (server, chroot) = chroot("force").await;
    let peer = Peer::sharing(&chroot.url(), "a", ENDLESS).await;
    let hold = peer.run_for("/p").await;
    let waiting = peer.start(plain("/p", SOON));
    is_waiting(&peer, 1).await;
    assert!(hold.end(LostReason::Overrun));
    hold.force_release();
    let next = within(SOON, waiting).await.unwrap().unwrap();
    assert_eq!(node(next.token()), node(hold.token()));
    assert!(next.token().to_bytes() > hold.token().to_bytes() && next.attempt() != hold.attempt());
    // The late release of the first takes nothing away.
    hold.release();
    drop(hold);
    release(peer.run_for("/other").await).await;
    let name = format!("{}/p", chroot.path());
    assert!(next.is_held() && server.node(&name).await.unwrap().is_some());
    release(next).await;
    nothing_is_left(server, &name, &[&peer]).await;
}

/// Others wait, and the answer to the delete after a share, or to the create for the next, is lost.
#[tokio::test]
async fn an_answer_that_is_lost_between_two_shares_costs_nobody_the_lock() {
    let (server, chroot) = chroot("lostshare").await;
    let proxy = Proxy::start(server.connect_string()).await.unwrap();
    let peer = Peer::sharing(&chroot.via(proxy.addr()).url(), "a", most(2)).await;
    let other = Peer::sharing(&chroot.url(), "b", most(2)).await;
    let name = format!("{}/p", chroot.path());
    for op in [Op::Delete, Op::Create] {
        for is_done in [true, false] {
            let (hold, log) = (peer.run_for("/p").await, Log::default());
            let mut tasks = Vec::new();
            for (i, peer) in [&peer, &other].into_iter().enumerate() {
                for before in 0..4 {
                    tasks.push(log.queue_up(peer, i, before).await);
                }
            }
            let rule = if is_done { proxy.swallow_reply(op, 1) } else { proxy.drop_request(op, 1) };
            log.hold(0, &hold);
            for task in tasks {
                within(3 * SOON, task).await.unwrap();
            }
            assert!(rule.has_fired(), "{op:?}");
            assert_eq!(log.names().len(), 9);
            assert!(log.shares().iter().all(|share| *share <= 2), "{:?}", log.shares());
            nothing_is_left(server, &name, &[&peer, &other]).await;
        }
    }
}

/// Its create was on its way when the node came for one who tries once.
#[tokio::test]
async fn who_asked_in_vain_waits_no_longer_than_it_may() {
    let (server, chroot) = chroot("vain").await;
    let proxy = Proxy::start(server.connect_string()).await.unwrap();
    let peer = Peer::sharing(&chroot.via(proxy.addr()).url(), "a", ENDLESS).await;
    let asked = proxy.hold_request(Op::Create, 1);
    let tries = peer.start(plain("/p", Duration::ZERO));
    asked.fired().await.unwrap();
    let waits = peer.start(plain("/p", Duration::from_secs(2)));
    is_waiting(&peer, 1).await;
    asked.release();
    let hold = within(SOON, tries).await.unwrap().unwrap();
    let error = within(SOON, waits).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    release(hold).await;
    nothing_is_left(server, &format!("{}/p", chroot.path()), &[&peer]).await;
}

/// Whoever gives a lock back tells those who wait for its end, in the midst of passing it on.
#[tokio::test]
async fn a_waker_that_panics_does_not_stop_the_queue() {
    let (server, chroot) = chroot("panics").await;
    let peer = Peer::sharing(&chroot.url(), "a", ENDLESS).await;
    let hold = peer.run_for("/p").await;
    let waiting = peer.start(plain("/p", SOON));
    is_waiting(&peer, 1).await;
    {
        let mut gone = pin!(hold.gone());
        assert!(gone.as_mut().poll(&mut Context::from_waker(&panicking())).is_pending());
        hold.release();
        assert!(hold.is_gone());
    }
    release(within(SOON, waiting).await.unwrap().unwrap()).await;
    nothing_is_left(server, &format!("{}/p", chroot.path()), &[&peer]).await;
}
