use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, mpsc},
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use zklock::{Error, LostReason};

use crate::support::{Outcome, World, queued, soon, until};

const BRIEF: Duration = Duration::from_millis(60);

pub(crate) async fn g06_an_awaiting_body_is_stopped_before_the_next_holder_comes(world: World) -> Outcome {
    /// Notes when the body is gone, slowly, as a destructor may be.
    struct Noted(Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Noted {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(50));
            self.0.lock().expect("no panic").push("the body is gone");
        }
    }
    let [holder, other] = [world.locks().await?, world.locks().await?];
    let order: Arc<Mutex<Vec<&str>>> = Arc::default();
    let guard = holder.mutex("/a").timeout(BRIEF).acquire().await?;
    let next = tokio::spawn({
        let order = order.clone();
        async move {
            let guard = other.mutex("/a").acquire().await?;
            order.lock().expect("no panic").push("the next holder came");
            guard.release().await
        }
    });
    let noted = Noted(order.clone());
    let body = async move {
        let _noted = noted;
        std::future::pending::<()>().await;
    };
    let error = soon("the overrun", guard.run(body)).await.expect_err("it hangs");
    let Error::Overrun { path, held, .. } = &error else { panic!("{error:?}") };
    assert_eq!(path.as_str(), "/a");
    assert!(*held >= BRIEF, "stopped after {held:?}");
    assert!(!error.is_retryable());
    let result = soon("the release", guard.release()).await;
    assert!(matches!(result, Err(Error::Overrun { .. })), "{result:?}");
    soon("the next holder", next).await??;
    assert_eq!(*order.lock().expect("no panic"), ["the body is gone", "the next holder came"]);
    Ok(())
}

pub(crate) async fn g06_a_blocking_body_is_released_over_its_head(world: World) -> Outcome {
    let [holder, other] = [world.locks().await?, world.locks().await?];
    let (unblock, blocked) = mpsc::channel::<()>();
    let (running, runs) = oneshot::channel();
    let call = tokio::spawn(async move {
        let guard = holder.mutex("/a").timeout(BRIEF).acquire().await?;
        let token = guard.fencing_token();
        let body = async move {
            let _ = running.send(token);
            // Blocks its worker until it is told to go on: after the next holder has the lock.
            let _ = blocked.recv();
        };
        let result = guard.run(body).await;
        assert!(!guard.is_held());
        result
    });
    let token = soon("the body", runs).await?;
    let next = soon("the lock, while the body still blocks", other.mutex("/a").acquire()).await?;
    assert!(next.fencing_token() > token);
    assert!(next.is_held());
    unblock.send(())?;
    let result = soon("the end of the blocked call", call).await?;
    assert!(matches!(result, Err(Error::Overrun { .. })), "{result:?}");
    assert!(next.is_held());
    queued(&other, "/a", 1).await?;
    next.release().await?;
    Ok(())
}

pub(crate) async fn g06_a_forgotten_child_task_does_not_keep_the_lock(world: World) -> Outcome {
    let [holder, other] = [world.locks().await?, world.locks().await?];
    let (end, ended) = oneshot::channel::<()>();
    let guard = holder.mutex("/a").timeout(BRIEF).acquire().await?;
    let (started, child) = oneshot::channel();
    let body = async {
        // Nobody awaits it: the body ends, the child goes on.
        let _ = started.send(tokio::spawn(async move { ended.await.is_ok() }));
    };
    guard.run(body).await?;
    let child = child.await?;
    guard.release().await?;
    let next = soon("the lock, beside the child", other.mutex("/a").acquire()).await?;
    assert!(!child.is_finished());
    next.release().await?;

    // The body waits for its child, past its limit.
    let guard = holder.mutex("/a").timeout(BRIEF).acquire().await?;
    let (never, waits) = oneshot::channel::<()>();
    let body = async {
        let child = tokio::spawn(async move { waits.await.is_ok() });
        child.await
    };
    let error = soon("the overrun", guard.run(body)).await.expect_err("the child hangs");
    assert!(matches!(error, Error::Overrun { .. }), "{error:?}");
    drop(guard);
    let next = soon("the lock, beside the child", other.mutex("/a").acquire()).await?;
    assert!(!never.is_closed(), "the child is not the body's to stop");
    next.release().await?;
    end.send(()).expect("the first child waits");
    assert!(soon("the first child", child).await?);
    Ok(())
}

pub(crate) async fn g06_a_guard_that_nobody_runs_is_taken_back(world: World) -> Outcome {
    let [holder, other] = [world.locks().await?, world.locks().await?];
    let guard = holder.mutex("/a").timeout(BRIEF).acquire().await?;
    let next = soon("the lock", other.mutex("/a").acquire()).await?;
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Overrun);
    assert!(!guard.is_held());
    let result = guard.check();
    assert!(matches!(result, Err(Error::Overrun { .. })), "{result:?}");
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(next.is_held());
    Ok(())
}

pub(crate) async fn g06_the_limit_is_not_cut_short(world: World) -> Outcome {
    let locks = world.locks().await?;
    for limit in [1, 20, 70, 200].map(Duration::from_millis) {
        let asked = Instant::now();
        let guard = locks.mutex("/a").timeout(limit).acquire().await?;
        let granted = Instant::now();
        assert!(guard.remaining().is_some_and(|remaining| remaining <= limit));
        assert_eq!(soon("the overrun", guard.lost()).await, LostReason::Overrun);
        // The grant lies between the two.
        assert!(asked.elapsed() >= limit, "taken back {:?} after the grant", granted.elapsed());
        let _ = guard.release().await;
    }
    Ok(())
}

pub(crate) async fn g06_the_limit_runs_from_the_grant_not_from_the_call(world: World) -> Outcome {
    let [holder, other] = [world.locks().await?, world.locks().await?];
    let first = holder.mutex("/a").timeout(None).acquire().await?;
    let limit = Duration::from_millis(500);
    let waiter = tokio::spawn({
        let other = other.clone();
        async move { other.mutex("/a").timeout(limit).acquire().await }
    });
    queued(&holder, "/a", 2).await?;
    // The wait is longer than the limit: the time passes here, not a hope.
    tokio::time::sleep(limit).await;
    let released = Instant::now();
    first.release().await?;
    let guard = soon("the grant", waiter).await??;
    assert_eq!(soon("the overrun", guard.lost()).await, LostReason::Overrun);
    assert!(released.elapsed() >= limit, "the wait was counted as holding");
    Ok(())
}

pub(crate) async fn g06_no_limit_is_no_limit(world: World) -> Outcome {
    let locks = world.locks().await?;
    let free = locks.mutex("/a").timeout(None).acquire().await?;
    let bound = locks.mutex("/b").timeout(BRIEF).acquire().await?;
    assert_eq!(free.remaining(), None);
    assert_eq!(soon("the overrun", bound.lost()).await, LostReason::Overrun);
    assert!(free.is_held());
    free.release().await?;
    Ok(())
}

pub(crate) async fn g06_an_overrun_wakes_only_its_own_path(world: World) -> Outcome {
    let locks = world.locks().await?;
    // Deadlines that come in another order than they were set.
    let mut guards = Vec::new();
    for number in [5_u64, 1, 4, 2, 3] {
        let path = format!("/{number}");
        let limit = Duration::from_millis(100 * number);
        guards.push((number, locks.mutex(path.as_str()).timeout(limit).acquire().await?));
    }
    let last = Instant::now();
    guards.sort_by_key(|(number, _)| *number);
    for position in 0..guards.len() {
        let guard = &guards[position].1;
        assert_eq!(soon("the overrun", guard.lost()).await, LostReason::Overrun);
        for (number, later) in &guards[position + 1..] {
            // A slow machine may see two of them end at once, but none before its time.
            let due = Duration::from_millis(100 * number);
            assert!(later.is_held() || last.elapsed() >= due.saturating_sub(Duration::from_millis(100)));
        }
    }
    until("an empty snapshot", async || locks.snapshot().held.is_empty()).await
}

pub(crate) async fn g06_a_body_that_ended_past_its_limit_did_not_end_well(world: World) -> Outcome {
    let locks = world.locks().await?;
    let guard = locks.mutex("/a").timeout(BRIEF).acquire().await?;
    let body = async {
        // It blocks past the limit and ends without an await at which it could be stopped.
        std::thread::sleep(2 * BRIEF);
        "done"
    };
    let result = soon("the end", guard.run(body)).await;
    assert!(matches!(result, Err(Error::Overrun { .. })), "{result:?}");
    Ok(())
}

/// It is called by whoever ends the hold, who has others to see to.
pub(crate) async fn g06_a_waker_that_panics_does_not_end_the_watch(world: World) -> Outcome {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as a waker may");
        }
    }
    let [locks, other] = [world.locks().await?, world.locks().await?];
    let guard = locks.mutex("/a").timeout(BRIEF).acquire().await?;
    let later = locks.mutex("/b").timeout(3 * BRIEF).acquire().await?;
    let waker = Waker::from(Arc::new(Panics));
    {
        let mut lost = pin!(guard.lost());
        let mut context = Context::from_waker(&waker);
        let _ = lost.as_mut().poll(&mut context);
        assert_eq!(soon("the later overrun", later.lost()).await, LostReason::Overrun);
    }
    let next = soon("the lock", other.mutex("/a").acquire()).await?;
    assert!(!guard.is_held() && next.is_held());
    next.release().await?;
    Ok(())
}
