//! Callers that go away, at every point at which they can.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, task::JoinHandle};
use zklock::{Error, Guard};
use zklock_testkit::{Direction, DropMoment, drop_fuzz};

use crate::{
    postgres::shop::{Shop, Then},
    support::{Outcome, chroot, patient, queued, soon},
};

/// Numbers orders, so that each try writes one of its own.
#[derive(Default)]
struct Ids(AtomicI64);

impl Ids {
    fn next(&self) -> i64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_call_dropped_at_every_poll_leaves_nothing() -> Outcome {
    let shop = Shop::open(patient(&chroot().await?.url()), 1).await?;
    let ids = Ids::default();
    let mut polls = 0;
    // The grant, BEGIN, the body's statement, COMMIT: where one of them is there before it is waited for, once more.
    for _ in 0..20 {
        let fuzzed = drop_fuzz(|| shop.write(ids.next(), Then::Return), clean(&shop)).await?;
        fuzzed.output?;
        polls = fuzzed.polls;
        if polls >= 4 {
            break;
        }
    }
    assert!(polls >= 4, "{polls}");
    assert!(shop.is_written(ids.0.load(Ordering::Relaxed)).await?);
    shop.is_clean().await
}

/// The same where every answer takes its time, so that BEGIN and COMMIT are on their way when the caller goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_call_over_a_slow_link_dropped_at_every_poll_leaves_nothing() -> Outcome {
    let (shop, proxy) = Shop::behind(patient(&chroot().await?.url()), 1).await?;
    proxy.delay(Duration::from_millis(10), Direction::Both);
    let ids = Ids::default();
    let fuzzed = drop_fuzz(|| shop.write(ids.next(), Then::Return), clean(&shop)).await?;
    fuzzed.output?;
    assert!(fuzzed.polls >= 4, "{}", fuzzed.polls);
    shop.is_clean().await
}

fn clean(shop: &Shop) -> impl AsyncFnMut(DropMoment) {
    async move |moment| {
        if let Err(error) = shop.is_clean().await {
            panic!("dropped {moment}: {error}");
        }
    }
}

/// Behind a holder who goes as soon as the call stands in the queue: dropped while it waits, when the grant is on its
/// way to it, and at every poll after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g08_a_waiting_call_dropped_at_every_poll_leaves_nothing() -> Outcome {
    let chroot = chroot().await?;
    let (shop, proxy) = Shop::behind(patient(&chroot.url()), 1).await?;
    // So that whatever comes after the grant is waited for.
    proxy.delay(Duration::from_millis(2), Direction::Both);
    // One of the same process, which hands over in memory, and one of another.
    for other in [shop.locks.clone(), patient(&chroot.url()).connect().await?] {
        let ids = Ids::default();
        let first_id =
            shop.number("SELECT coalesce(max(id), 0) FROM orders WHERE id < 1000000".into()).await?;
        let holder = RefCell::new(Some(Holder::take(&other).await?));
        let fuzzed = drop_fuzz(
            || {
                if let Some(holder) = holder.borrow_mut().as_mut() {
                    holder.let_in_the_next();
                }
                shop.write(first_id + ids.next(), Then::Return)
            },
            async |moment| {
                let check = async {
                    let ended = holder.borrow_mut().take().map(Holder::end);
                    if let Some(ended) = ended {
                        ended.await?;
                    }
                    shop.is_clean().await?;
                    let next = Holder::take(&other).await?;
                    holder.replace(Some(next));
                    Outcome::Ok(())
                };
                if let Err(error) = check.await {
                    panic!("dropped {moment}: {error}");
                }
            },
        )
        .await?;
        fuzzed.output?;
        assert!(fuzzed.polls >= 4, "{}", fuzzed.polls);
        let ended = holder.take().map(Holder::end);
        if let Some(ended) = ended {
            ended.await?;
        }
        shop.is_clean().await?;
    }
    Ok(())
}

/// Has the lock, and lets go of it when somebody stands behind.
struct Holder {
    locks: zklock::Locks,
    guard: Option<Guard>,
    going: Option<JoinHandle<Outcome>>,
    go: Arc<Notify>,
}

impl Holder {
    async fn take(locks: &zklock::Locks) -> Outcome<Self> {
        let guard = soon("the lock", locks.mutex("/orders").acquire()).await?;
        Ok(Self { locks: locks.clone(), guard: Some(guard), going: None, go: Arc::default() })
    }

    fn let_in_the_next(&mut self) {
        let Some(guard) = self.guard.take() else { return };
        let (locks, go) = (self.locks.clone(), self.go.clone());
        self.going = Some(tokio::spawn(async move {
            let mut go = std::pin::pin!(go.notified());
            while locks.inspect("/orders").await?.len() < 2 {
                // The call may be gone before it ever stands there.
                if tokio::time::timeout(Duration::from_millis(1), go.as_mut()).await.is_ok() {
                    break;
                }
            }
            Ok(guard.release().await?)
        }));
    }

    async fn end(self) -> Outcome {
        self.go.notify_one();
        match self.going {
            Some(going) => soon("the holder to go", going).await?,
            None => Ok(()),
        }
    }
}

/// The caller goes while BEGIN, or the fence behind it, is on its way or its answer is. The pool has one connection,
/// which must not come back with a transaction in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_begin_that_is_cancelled_leaves_the_only_connection_clean() -> Outcome {
    let (shop, proxy) = Shop::behind(patient(&chroot().await?.url()), 1).await?;
    let shop = Arc::new(shop);
    let mut id = 0;
    for statement in ["BEGIN", "zklock_fence"] {
        for answered in [false, true] {
            id += 1;
            let rule =
                if answered { proxy.hold_reply(statement, 1) } else { proxy.hold_request(statement, 1) };
            let call = tokio::spawn({
                let shop = shop.clone();
                async move { shop.write(id, Then::Return).await }
            });
            rule.fired().await?;
            call.abort();
            assert!(soon("the end of the caller", call).await.is_err_and(|error| error.is_cancelled()));
            rule.release();
            let case = format!("{statement}, answered: {answered}");
            shop.is_clean().await.map_err(|error| format!("{case}: {error}"))?;
            assert!(!shop.is_written(id).await?, "{case}");
        }
    }
    soon("a call", shop.write(id + 1, Then::Return)).await?;
    Ok(())
}

/// The caller goes while COMMIT is on its way, which nobody can call back: it is seen through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_commit_is_seen_through_when_its_caller_goes() -> Outcome {
    let (shop, proxy) = Shop::behind(patient(&chroot().await?.url()), 1).await?;
    let shop = Arc::new(shop);
    for (id, answered) in [(1, false), (2, true)] {
        let rule = if answered { proxy.hold_reply("COMMIT", 1) } else { proxy.hold_request("COMMIT", 1) };
        let call = tokio::spawn({
            let shop = shop.clone();
            async move { shop.write(id, Then::Return).await }
        });
        rule.fired().await?;
        call.abort();
        assert!(soon("the end of the caller", call).await.is_err_and(|error| error.is_cancelled()));
        // The lock stays until the end of the transaction is known.
        let next = shop.locks.mutex("/orders").try_acquire().await?;
        assert!(next.is_none(), "the lock is free while COMMIT is on its way");
        rule.release();
        let next = soon("the lock", shop.locks.mutex("/orders").acquire()).await?;
        assert!(shop.is_written(id).await?);
        next.release().await?;
        shop.is_clean().await?;
    }
    Ok(())
}

/// `wait` ends at the moment of the grant: either the call runs and is committed, or it is told that it did not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g03_a_wait_that_ends_with_the_grant_has_one_outcome() -> Outcome {
    let chroot = chroot().await?;
    let [holder, waiter] = [patient(&chroot.url()).connect().await?, patient(&chroot.url()).connect().await?];
    let (mut granted, mut busy) = (0, 0);
    // How long after the call the release must come to meet the end of its wait, found out on the way.
    let (wait, mut release_after) = (Duration::from_millis(20), Duration::from_millis(18));
    for _ in 0..150 {
        let guard = soon("the lock", holder.mutex("/a").acquire()).await?;
        let waiting = tokio::spawn(waiter.mutex("/a").wait(wait).acquire());
        tokio::time::sleep(release_after).await;
        guard.release().await?;
        match soon("an answer", waiting).await? {
            Ok(guard) => {
                granted += 1;
                release_after = (release_after * 21 / 20).min(2 * wait);
                assert!(guard.is_held());
                guard.release().await?;
            }
            Err(Error::Busy { .. }) => {
                busy += 1;
                release_after = release_after * 19 / 20;
            }
            Err(error) => return Err(error.into()),
        }
    }
    assert!(granted > 10 && busy > 10, "{granted} granted, {busy} told busy: that was no race");
    queued(&holder, "/a", 0).await
}
