//! Guards by hand, on the in-process locks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};
use zklock::{Error, Guard, Locks, LostReason};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn g09_waiters_are_served_in_order() -> Result<(), Error> {
    let locks = Locks::memory();
    let first = locks.mutex("/a").acquire().await?;
    let order = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for expected in 0..8 {
        let (locks, order) = (locks.clone(), order.clone());
        let waiting = locks.snapshot().waiting.len();
        let watch = locks.clone();
        tasks.push(tokio::spawn(async move {
            let guard = locks.mutex("/a").acquire().await?;
            assert_eq!(order.fetch_add(1, Ordering::SeqCst), expected);
            guard.release().await
        }));
        while watch.snapshot().waiting.len() == waiting {
            tokio::task::yield_now().await;
        }
    }
    first.release().await?;
    for task in tasks {
        task.await.expect("no panic")?;
    }
    assert!(locks.snapshot().held.is_empty());
    locks.close().await;
    Ok(())
}

#[tokio::test]
async fn g03_a_lock_that_is_held_is_busy() -> Result<(), Error> {
    let locks = Locks::memory();
    let guard = locks.mutex("/a").function("pay").acquire().await?;
    assert!(locks.mutex("/a").try_acquire().await?.is_none());
    let error = locks.mutex("/a").wait(Duration::from_millis(20)).acquire().await.unwrap_err();
    assert!(
        matches!(&error, Error::Busy { holder: Some(holder), .. } if holder.ends_with(" in pay")),
        "{error}"
    );
    drop(guard);
    assert!(locks.mutex("/a").try_acquire().await?.is_some());
    Ok(())
}

#[tokio::test]
async fn g06_a_body_past_its_limit_is_stopped() -> Result<(), Error> {
    let locks = Locks::memory();
    let guard = locks.mutex("/a").timeout(Duration::from_millis(30)).acquire().await?;
    let (alive, dropped) = oneshot::channel::<()>();
    let error = guard
        .run(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        })
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Overrun { .. }), "{error}");
    assert!(dropped.await.is_err(), "the body is gone");
    assert!(!guard.is_held());
    assert!(matches!(guard.release().await, Err(Error::Overrun { .. })));
    assert!(locks.mutex("/a").try_acquire().await?.is_some());
    Ok(())
}

#[tokio::test]
async fn g06_a_guard_that_nobody_runs_is_taken_back_after_the_grace_time() -> Result<(), Error> {
    let locks = Locks::builder("memory:").grace(Duration::from_millis(10)).connect().await?;
    let guard = locks.mutex("/a").timeout(Duration::from_millis(30)).acquire().await?;
    let next = timeout(SOON, locks.mutex("/a").acquire()).await.expect("force-released")?;
    assert_eq!(guard.lost().await, LostReason::Overrun);
    assert!(next.fencing_token() > guard.fencing_token());
    Ok(())
}

#[tokio::test]
async fn g10_opposite_orders_are_a_deadlock_not_a_stall() -> Result<(), Error> {
    let locks = Locks::memory();
    let a = locks.mutex("/a").acquire().await?;
    let b = locks.mutex("/b").acquire().await?;
    let enter = |guard: Guard, path: &'static str| {
        let locks = &locks;
        async move {
            let result = guard.run(async { locks.mutex(path).acquire().await.map(drop) }).await;
            drop(guard);
            result
        }
    };
    let both = async { tokio::join!(enter(a, "/b"), enter(b, "/a")) };
    let (one, other) = timeout(SOON, both).await.expect("not a silent stall");
    let errors = [one?, other?];
    assert!(errors.iter().any(|result| matches!(result, Err(Error::Deadlock { .. }))), "{errors:?}");
    Ok(())
}

#[tokio::test]
async fn g10_the_same_chain_enters_again() -> Result<(), Error> {
    let locks = Locks::memory();
    let outer = locks.mutex("/a").acquire().await?;
    let token = outer.fencing_token();
    outer
        .run(async {
            let inner = locks.mutex("/a").acquire().await?;
            assert_eq!(inner.fencing_token(), token);
            inner.release().await
        })
        .await??;
    assert!(outer.is_held());
    outer.release().await
}

#[tokio::test]
async fn closing_stops_bodies_and_waiters() -> Result<(), Error> {
    let locks = Locks::memory();
    let guard = locks.mutex("/a").acquire().await?;
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { locks.mutex("/a").acquire().await.map(drop) }
    });
    let body = tokio::spawn(async move { guard.run(std::future::pending::<()>()).await });
    while locks.snapshot().waiting.is_empty() {
        tokio::task::yield_now().await;
    }
    timeout(SOON, locks.close()).await.expect("closed");
    assert!(matches!(waiter.await.expect("no panic"), Err(Error::Closed)));
    assert!(matches!(body.await.expect("no panic"), Err(Error::Lost { reason: LostReason::Closed, .. })));
    assert!(matches!(locks.mutex("/a").acquire().await, Err(Error::Closed)));
    Ok(())
}
