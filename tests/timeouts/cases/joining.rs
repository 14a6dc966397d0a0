//! Calls that join a transaction: their locks stay until it has ended, and their chain has them until then.

use std::sync::Arc;

use tokio::sync::oneshot;
use zklock::{Error, Guard, HoldPhase, LostReason, zk_lock};

use super::{
    Connection,
    shop::{Shop, insert},
};
use crate::support::{Outcome, Problem, queued, soon, until};

#[zk_lock(path = "/goods/{id}", timeout = "60s", locks = shop.locks, transactional(pool = outer))]
async fn take(
    shop: &Shop,
    outer: &mut Connection,
    id: i64,
    order: i64,
    #[tx] tx: &mut Connection,
    #[guard] guard: &Guard,
) -> Result<String, Problem> {
    insert(tx, order, id).await?;
    Ok(guard.fencing_token().to_string())
}

#[zk_lock(path = "/goods/{id}", timeout = "60s", locks = shop.locks, transactional(pool = outer, unfenced))]
async fn take_unfenced(
    shop: &Shop,
    outer: &mut Connection,
    id: i64,
    order: i64,
    #[tx] tx: &mut Connection,
) -> Result<(), Problem> {
    insert(tx, order, id).await?;
    Ok(())
}

#[zk_lock(path = "/order", timeout = "60s", locks = shop.locks, transactional)]
async fn take_twice(shop: &Shop, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    let first = take(shop, tx, 1, 1).await?;
    take(shop, tx, 2, 2).await?;
    assert_eq!(take(shop, tx, 1, 3).await?, first, "it is the same grant");
    Ok(())
}

/// It is kept for the chain that has joined, and must not wait for itself.
#[tokio::test]
async fn g10_a_path_may_be_joined_twice() -> Outcome {
    let shop = Shop::open(1).await?;
    soon("a call that does not wait for itself", take_twice(&shop)).await?;
    for order in [1, 3] {
        assert_eq!(shop.writer(order).await?, Some(1));
    }
    free(&shop).await
}

/// Joins, then waits for what another one has, which waits for what was joined.
#[zk_lock(path = "/order", timeout = "60s", locks = shop.locks, transactional)]
async fn take_and_wait(
    shop: &Shop,
    joined: oneshot::Sender<()>,
    waits: oneshot::Receiver<()>,
    #[tx] tx: &mut Connection,
) -> Result<(), Problem> {
    take(shop, tx, 1, 1).await?;
    let _ = joined.send(());
    let _ = waits.await;
    shop.locks.mutex("/other").acquire().await?.release().await?;
    Ok(())
}

#[tokio::test]
async fn g10_a_circle_by_way_of_what_was_joined_is_found() -> Outcome {
    let shop = Arc::new(Shop::open(1).await?);
    let other = shop.locks.mutex("/other").acquire().await?;
    let ((joined, is_joined), (go_on, waits)) = (oneshot::channel(), oneshot::channel());
    let call = tokio::spawn({
        let shop = shop.clone();
        async move { take_and_wait(&shop, joined, waits).await }
    });
    soon("the first lock", is_joined).await?;
    let crossing = tokio::spawn({
        let shop = shop.clone();
        async move { other.run(async { shop.locks.mutex("/goods/1").acquire().await.map(drop) }).await }
    });
    queued(&shop.locks, "/goods/1", 2).await?;
    go_on.send(()).map_err(|()| "it does not wait")?;
    let result = soon("an answer instead of a stall", call).await?;
    assert!(matches!(result, Err(Problem::Lock(Error::Deadlock { .. }))), "{result:?}");
    soon("the other one", crossing).await???;
    assert_eq!(shop.writer(1).await?, None);
    free(&shop).await
}

/// Joins under a lock that is given back before the transaction ends.
#[zk_lock(path = "/order", timeout = "60s", locks = shop.locks, transactional)]
async fn take_under_a_guard(shop: &Shop, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    let guard = shop.locks.mutex("/goods/1").acquire().await?;
    guard.run(take(shop, tx, 1, 1)).await??;
    // Not awaited: it is given back when the transaction has ended.
    drop(guard);
    let tried = tokio::spawn(shop.locks.mutex("/goods/1").try_acquire());
    assert!(matches!(tried.await, Ok(Ok(None))), "the lock of what is not committed yet is free");
    Ok(())
}

#[tokio::test]
async fn g04_what_has_joined_is_kept_though_the_lock_around_it_is_given_back() -> Outcome {
    let shop = Shop::open(1).await?;
    soon("a call", take_under_a_guard(&shop)).await?;
    assert_eq!(shop.writer(1).await?, Some(1));
    free(&shop).await
}

/// With a limit of its own that passes before the outer one commits.
#[zk_lock(path = "/goods/1", timeout = "1500ms", locks = shop.locks, transactional(pool = outer, unfenced))]
async fn take_briefly(shop: &Shop, outer: &mut Connection, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    insert(tx, 1, 1).await?;
    Ok(())
}

#[zk_lock(path = "/order", timeout = "60s", locks = shop.locks, transactional(unfenced))]
async fn outlast(shop: &Shop, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    take_briefly(shop, tx).await?;
    let over = until("the limit to pass", async || {
        let held = shop.locks.snapshot().held;
        held.iter().any(|held| held.path.as_str() == "/goods/1" && held.phase == HoldPhase::Ending)
    });
    over.await.map_err(|_| Problem::Own("it does not pass"))
}

#[tokio::test]
async fn g07_no_commit_when_a_lock_that_joined_is_over() -> Outcome {
    let shop = Shop::open(1).await?;
    let result = soon("a refusal", outlast(&shop)).await;
    let Err(Problem::Lock(error @ Error::Overrun { .. })) = &result else { panic!("{result:?}") };
    assert_eq!(error.path().map(ToString::to_string).as_deref(), Some("/goods/1"));
    assert_eq!(shop.writer(1).await?, None);
    free(&shop).await
}

/// No row keeps the next holder's transaction waiting, and nobody knows when this one ends.
#[tokio::test]
async fn g04_joining_a_foreign_transaction_without_a_fence_is_refused() -> Outcome {
    use zklock::sqlx::Connection as _;
    let shop = Shop::open(1).await?;
    let mut connection = shop.pool.acquire().await?;
    let mut foreign = connection.begin().await?;
    let result = soon("a refusal", take_unfenced(&shop, &mut foreign, 1, 1)).await;
    assert!(matches!(&result, Err(Problem::Lock(Error::Config { .. }))), "{result:?}");
    foreign.commit().await?;
    drop(connection);
    assert_eq!(shop.writer(1).await?, None, "the body did not run");
    free(&shop).await?;
    // One of ours may be joined so.
    soon("a call", take_within(&shop)).await?;
    assert_eq!(shop.writer(1).await?, Some(1));
    free(&shop).await
}

#[zk_lock(path = "/order", timeout = "60s", locks = shop.locks, transactional)]
async fn take_within(shop: &Shop, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    take_unfenced(shop, tx, 1, 1).await
}

/// What is lost while it waits in the body is found at the next look.
#[zk_lock(path = "/order", timeout = "60s", locks = shop.locks, transactional)]
async fn take_and_close(shop: &Shop, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    take(shop, tx, 1, 1).await?;
    shop.locks.close().await;
    Ok(())
}

#[tokio::test]
async fn g07_a_close_stops_a_transaction_and_what_has_joined_it() -> Outcome {
    let shop = Shop::open(1).await?;
    let result = soon("an answer", take_and_close(&shop)).await;
    let Err(Problem::Lock(error @ Error::Lost { reason: LostReason::Closed, .. })) = &result else {
        panic!("{result:?}")
    };
    assert!(error.is_retryable(), "all of it is known to be rolled back: {error}");
    assert_eq!(shop.writer(1).await?, None);
    soon("a clean pool", shop.pool_is_clean()).await
}

async fn free(shop: &Shop) -> Outcome {
    for path in ["/order", "/other", "/goods/1", "/goods/2"] {
        queued(&shop.locks, path, 0).await?;
    }
    soon("a clean pool", shop.pool_is_clean()).await
}
