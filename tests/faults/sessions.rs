//! Sessions that end, and servers that are silent, while a body runs and writes.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use zklock::{Error, LocksBuilder, LostReason};
use zklock_testkit::{Chroot, Direction, Proxy, ZooKeeper};

use crate::{
    postgres::shop::{Shop, Then},
    support::{Outcome, Paused, Problem, chroot, patient, pause, queued, soon, until},
};

/// A holder behind a proxy of the lock server, and another process with a way of its own.
struct Stage {
    chroot: Chroot,
    proxy: Proxy,
    shop: Arc<Shop>,
    other: Arc<Shop>,
}

impl Stage {
    async fn set(settings: impl FnOnce(LocksBuilder) -> LocksBuilder) -> Outcome<Self> {
        let chroot = chroot().await?;
        let proxy = Proxy::start(ZooKeeper::shared().await?.connect_string()).await?;
        let shop = Shop::open(settings(patient(&chroot.via(proxy.addr()).url())), 1).await?;
        let other = shop.beside(patient(&chroot.url())).await?;
        Ok(Self { chroot, proxy, shop: Arc::new(shop), other: Arc::new(other) })
    }

    /// A call in the middle of its body, and one of the other process behind it.
    async fn call(&self) -> Outcome<(Call, Paused, Call)> {
        let (at, mut paused) = pause();
        let call = spawn(&self.shop, 1, Then::Pause(at));
        paused.reached().await?;
        let next = spawn(&self.other, 2, Then::Return);
        queued(&self.other.locks, "/orders", 2).await?;
        Ok((call, paused, next))
    }

    /// Ends the session of whoever has this place in the queue behind its back; it has its way through the proxy.
    async fn expire(&self, place: usize) -> Outcome {
        let zookeeper = ZooKeeper::shared().await?;
        let entry = self.other.locks.inspect("/orders").await?.swap_remove(place);
        let node = zookeeper.node(&format!("{}/orders/{}", self.chroot.path(), entry.name)).await?;
        let session = node.ok_or("it has a node")?.ephemeral_owner;
        // Two clients of one session take it from each other for as long as they live.
        self.proxy.refuse();
        self.proxy.cut();
        zookeeper.expire_session(session).await?;
        Ok(self.proxy.heal()?)
    }

    /// The next holder's work is there and the first one's is not, nothing is left, and all works on.
    async fn only_the_next_one_wrote(&self, next: Call) -> Outcome {
        soon("the next call", next).await??;
        assert!(!self.shop.is_written(1).await? && self.shop.is_written(2).await?);
        soon("a later call", self.shop.write(3, Then::Return)).await?;
        self.shop.is_clean().await?;
        self.other.is_clean().await
    }
}

type Call = JoinHandle<Result<(), Problem>>;

fn spawn(shop: &Arc<Shop>, id: i64, then: Then) -> Call {
    let shop = shop.clone();
    tokio::spawn(async move { shop.write(id, then).await })
}

fn reason(result: Result<(), Problem>) -> LostReason {
    match result {
        Err(Problem::Lock(Error::Lost { reason, .. })) => reason,
        result => panic!("{result:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g07_a_session_that_ends_stops_the_body_and_rolls_it_back() -> Outcome {
    let stage = Stage::set(|locks| locks).await?;
    let (call, _paused, next) = stage.call().await?;
    stage.expire(0).await?;
    let reason = reason(soon("the end of the body", call).await?);
    assert!(matches!(reason, LostReason::SessionExpired | LostReason::Unconfirmed), "{reason:?}");
    stage.only_the_next_one_wrote(next).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g07_a_silent_server_stops_the_body_and_rolls_it_back() -> Outcome {
    let stage = Stage::set(|locks| locks.session_timeout(Duration::from_secs(4))).await?;
    let (call, _paused, next) = stage.call().await?;
    stage.proxy.black_hole(Direction::Both);
    assert_eq!(reason(soon("the end of the body", call).await?), LostReason::Unconfirmed);
    assert!(!stage.shop.is_written(1).await?);
    soon("the next call", next).await??;
    stage.proxy.heal()?;
    let next = spawn(&stage.other, 4, Then::Return);
    stage.only_the_next_one_wrote(next).await
}

/// The body ends well, but the server is out of reach at that moment: the lock is ours still, by the clock, and yet
/// nothing is committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g07_no_commit_starts_while_disconnected() -> Outcome {
    // So long that the lock cannot be lost before the body has ended.
    let stage = Stage::set(|locks| locks.session_timeout(Duration::from_mins(1))).await?;
    let (call, mut paused, next) = stage.call().await?;
    stage.proxy.refuse();
    stage.proxy.cut();
    until("the client to notice", async || {
        let probe = stage.shop.locks.mutex("/probe").wait(Duration::from_millis(50)).acquire().await;
        matches!(probe, Err(Error::Unavailable { .. }))
    })
    .await?;
    paused.go_on();
    assert_eq!(reason(soon("the answer", call).await?), LostReason::Unconfirmed);
    assert!(!stage.shop.is_written(1).await?);
    assert!(!next.is_finished(), "the session lives, so the other one does not have the lock yet");
    // With the server back the node goes, and the other one comes.
    stage.proxy.heal()?;
    stage.only_the_next_one_wrote(next).await
}

/// The session ends while COMMIT is on its way: what the database answers is told. The next holder has the lock by
/// then, and the fence row keeps its transaction waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g07_the_answer_to_a_commit_counts_though_the_session_ends() -> Outcome {
    let chroot = chroot().await?;
    let proxy = Proxy::start(ZooKeeper::shared().await?.connect_string()).await?;
    let locks = patient(&chroot.via(proxy.addr()).url()).grace(Duration::from_mins(1));
    let (shop, database) = Shop::behind(locks, 1).await?;
    let other = Arc::new(shop.beside(patient(&chroot.url())).await?);
    let stage = Stage { chroot, proxy, shop: Arc::new(shop), other };
    let commit = database.hold_request("COMMIT", 1);
    let call = spawn(&stage.shop, 1, Then::Return);
    commit.fired().await?;
    let next = spawn(&stage.other, 2, Then::Return);
    queued(&stage.other.locks, "/orders", 2).await?;
    stage.expire(0).await?;
    until("the next holder to wait for the row", async || {
        stage.other.waiting().await.is_ok_and(|waiting| waiting == 1)
    })
    .await?;
    assert!(!call.is_finished() && !next.is_finished());
    commit.release();
    soon("the answer", call).await??;
    soon("the next call", next).await??;
    assert!(stage.shop.is_written(1).await? && stage.shop.is_written(2).await?);
    stage.shop.is_clean().await?;
    stage.other.is_clean().await
}

/// An operator deletes the node of the holder: it is stopped, rolled back and told why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g07_a_holder_whose_node_is_deleted_is_stopped_and_rolled_back() -> Outcome {
    let stage = Stage::set(|locks| locks).await?;
    let (call, _paused, next) = stage.call().await?;
    delete(&stage, 0).await?;
    assert_eq!(reason(soon("the end of the body", call).await?), LostReason::NodeGone);
    stage.only_the_next_one_wrote(next).await
}

/// A waiter whose node is deleted stands in the queue anew, and is served in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g09_a_waiter_whose_node_is_deleted_queues_anew() -> Outcome {
    let stage = Stage::set(|locks| locks).await?;
    let (call, mut paused, next) = stage.call().await?;
    let deleted = delete(&stage, 1).await?;
    until("it to stand in the queue again", async || {
        let queue = stage.other.locks.inspect("/orders").await;
        queue.is_ok_and(|queue| queue.len() == 2 && queue.iter().all(|entry| entry.name != deleted))
    })
    .await?;
    assert!(!call.is_finished() && !next.is_finished());
    paused.go_on();
    soon("the holder", call).await??;
    soon("the waiter", next).await??;
    assert!(stage.shop.is_written(1).await? && stage.shop.is_written(2).await?);
    stage.shop.is_clean().await
}

/// Deletes the node of whoever has this place in the queue; its name.
async fn delete(stage: &Stage, place: usize) -> Outcome<String> {
    let name = stage.other.locks.inspect("/orders").await?.swap_remove(place).name;
    let node = format!("{}/orders/{name}", stage.chroot.path());
    assert!(ZooKeeper::shared().await?.delete_node(&node).await?);
    Ok(name)
}

/// A call whose session ends while it waits does not notice: it stands in the queue anew, in the next session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g08_a_waiting_call_whose_session_ends_is_served_in_the_next_one() -> Outcome {
    let stage = Stage::set(|locks| locks).await?;
    let holder = soon("the lock", stage.other.locks.mutex("/orders").acquire()).await?;
    let waiting = spawn(&stage.shop, 1, Then::Return);
    queued(&stage.other.locks, "/orders", 2).await?;
    let before = stage.other.locks.inspect("/orders").await?.swap_remove(1).name;
    stage.expire(1).await?;
    until("it to stand in the queue again", async || {
        let queue = stage.other.locks.inspect("/orders").await;
        queue.is_ok_and(|queue| queue.len() == 2 && queue[1].name != before)
    })
    .await?;
    assert!(holder.is_held() && !waiting.is_finished());
    holder.release().await?;
    soon("the waiting call", waiting).await??;
    assert!(stage.shop.is_written(1).await?);
    stage.shop.is_clean().await
}
