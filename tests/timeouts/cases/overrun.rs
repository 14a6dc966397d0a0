use std::{
    future::Future,
    sync::{Arc, mpsc},
};

use tokio::{sync::oneshot, task::JoinHandle};
use zklock::Error;

use super::{
    ENDS_OVER_A_BLOCKED_OWNER,
    shop::{Shop, Then},
};
use crate::support::{Outcome, Problem, queued, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn g06_an_awaiting_body_is_rolled_back_before_the_next_holder_comes() -> Outcome {
    overrun(Then::Await, true, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn g06_a_blocking_body_is_rolled_back_before_the_next_holder_comes() -> Outcome {
    let (unblock, blocked) = mpsc::channel();
    overrun(Then::Block(blocked), true, Some(unblock)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn g06_a_long_statement_is_stopped_and_rolled_back_before_the_next_holder_comes() -> Outcome {
    overrun(Then::Long, true, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn g06_the_same_without_a_fence() -> Outcome {
    overrun(Then::Await, false, None).await?;
    overrun(Then::Long, false, None).await
}

/// Behind one that overruns stand one who looks, and one who writes the same row.
async fn overrun(then: Then, fenced: bool, unblock: Option<mpsc::Sender<()>>) -> Outcome {
    let blocks = unblock.is_some();
    let shop = Arc::new(Shop::open(1).await?);
    let (written, is_written) = oneshot::channel();
    let first = spawn(&shop, async move |shop| {
        if fenced {
            shop.hang(1, 1, written, then).await
        } else {
            shop.hang_unfenced(1, 1, written, then).await
        }
    });
    soon("the first write", is_written).await?;
    let looking = spawn(&shop, async |shop| {
        let guard = shop.locks.mutex("/orders").acquire().await?;
        Ok((shop.writer(1).await, shop.is_writable_at_once(1).await, guard.release().await))
    });
    queued(&shop.locks, "/orders", 2).await?;
    let second = spawn(&shop, async |shop| shop.write(1, 2, Then::Return).await);
    queued(&shop.locks, "/orders", 3).await?;
    assert_eq!(shop.writer(1).await?, None, "nothing is committed while the body runs");

    // The lock is granted: what the first one wrote is gone by then, and nobody is in the way.
    let (seen, writable, released) = soon("the lock, after the overrun", looking).await??;
    assert_eq!(seen?, None);
    if !blocks || ENDS_OVER_A_BLOCKED_OWNER {
        writable??;
    }
    released?;
    if let Some(unblock) = unblock {
        assert!(!first.is_finished());
        unblock.send(())?;
    }
    let result = soon("the first caller's answer", first).await?;
    assert!(matches!(result, Err(Problem::Lock(Error::Overrun { .. }))), "{result:?}");
    let before = soon("the second write", second).await??;
    assert_eq!(before, 0, "its own read saw no row");
    assert_eq!(shop.writer(1).await?, Some(2));
    soon("a clean pool", shop.pool_is_clean()).await
}

fn spawn<T, F>(shop: &Arc<Shop>, call: impl FnOnce(Arc<Shop>) -> F) -> JoinHandle<Result<T, Problem>>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Problem>> + Send + 'static,
{
    tokio::spawn(call(shop.clone()))
}
