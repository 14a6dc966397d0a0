use std::sync::Arc;

use tokio::sync::oneshot;
use zklock::{Error, Locks, sqlx, zk_lock};

use super::{
    Connection, WRITES_SIDE_BY_SIDE,
    shop::{Shop, Then, insert, writer},
};
use crate::support::{Outcome, Problem, queued, soon};

#[tokio::test]
async fn g12_ok_is_committed() -> Outcome {
    let shop = Shop::open(1).await?;
    assert_eq!(soon("a call", shop.write(1, 5, Then::Return)).await?, 0);
    assert_eq!(shop.writer(1).await?, Some(5));
    free_and_clean(&shop).await
}

#[tokio::test]
async fn g05_an_error_is_rolled_back() -> Outcome {
    let shop = Shop::open(1).await?;
    let result = soon("a call", shop.write(1, 5, Then::Fail)).await;
    assert!(matches!(result, Err(Problem::Own("the body failed"))), "{result:?}");
    assert_eq!(shop.writer(1).await?, None);
    free_and_clean(&shop).await
}

#[tokio::test]
async fn g05_a_panic_is_rolled_back() -> Outcome {
    let shop = Arc::new(Shop::open(1).await?);
    let call = tokio::spawn({
        let shop = shop.clone();
        async move { shop.write(1, 5, Then::Panic).await }
    });
    assert!(soon("a panic", call).await.is_err_and(|error| error.is_panic()));
    free_and_clean(&shop).await?;
    assert_eq!(shop.writer(1).await?, None);
    Ok(())
}

#[tokio::test]
async fn g05_a_dropped_future_is_rolled_back() -> Outcome {
    for then in [Then::Await, Then::Long] {
        let shop = Arc::new(Shop::open(1).await?);
        let (written, is_written) = oneshot::channel();
        let call = tokio::spawn({
            let shop = shop.clone();
            async move { shop.hang(1, 5, written, then).await }
        });
        soon("the write", is_written).await?;
        call.abort();
        // Whoever gets the lock next finds the row gone.
        let guard = soon("the lock", shop.locks.mutex("/orders").acquire()).await?;
        assert_eq!(shop.writer(1).await?, None);
        shop.is_writable_at_once(1).await??;
        guard.release().await?;
        free_and_clean(&shop).await?;
    }
    Ok(())
}

#[zk_lock(path = "/orders", timeout = "60s", locks = shop.locks, transactional)]
async fn swallow(shop: &Shop, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    insert(tx, 1, 5).await?;
    // The key is there already: an error, which the body does not pass on.
    assert!(insert(tx, 1, 6).await.is_err());
    Ok(())
}

#[tokio::test]
async fn g12_an_error_that_the_body_swallowed_is_not_told_as_a_commit() -> Outcome {
    let shop = Shop::open(1).await?;
    match soon("a call", swallow(&shop)).await {
        // Databases that undo the statement alone.
        Ok(()) => assert_eq!(shop.writer(1).await?, Some(5)),
        Err(Problem::Lock(Error::NotCommitted { .. } | Error::TransactionEnded { .. })) => {
            assert_eq!(shop.writer(1).await?, None);
        }
        Err(problem) => return Err(problem.into()),
    }
    free_and_clean(&shop).await
}

#[zk_lock(path = "/orders", timeout = "60s", locks = shop.locks, transactional)]
async fn end_it_by_hand(shop: &Shop, end: &'static str, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    insert(tx, 1, 5).await?;
    sqlx::query(end).execute(&mut *tx).await?;
    Ok(())
}

#[tokio::test]
async fn g12_a_transaction_that_the_body_ended_is_not_told_as_a_commit() -> Outcome {
    let shop = Shop::open(1).await?;
    let result = soon("a call", end_it_by_hand(&shop, "ROLLBACK")).await;
    assert!(matches!(result, Err(Problem::Lock(Error::TransactionEnded { .. }))), "{result:?}");
    assert_eq!(shop.writer(1).await?, None);
    free_and_clean(&shop).await
}

#[zk_lock(path = "/inner", timeout = "60s", locks = shop.locks, transactional)]
async fn inner(shop: &Shop, id: i64, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    Ok(insert(tx, id, 1).await?)
}

#[zk_lock(path = "/inner", timeout = "60s", locks = shop.locks, transactional(requires_new))]
async fn inner_new(shop: &Shop, id: i64, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    Ok(insert(tx, id, 1).await?)
}

#[zk_lock(path = "/inner", timeout = "60s", locks = locks, transactional(pool = outer))]
async fn inner_joined(
    locks: &Locks,
    outer: &mut Connection,
    id: i64,
    fail: bool,
    #[tx] tx: &mut Connection,
) -> Result<(), Problem> {
    insert(tx, id, 1).await?;
    if fail { Err(Problem::Own("the inner one failed")) } else { Ok(()) }
}

#[derive(Clone, Copy)]
enum Inner {
    Plain,
    New,
    Joined { fails: bool },
}

#[zk_lock(path = "/outer", timeout = "60s", locks = shop.locks, transactional)]
async fn outer(shop: &Shop, how: Inner, fail: bool, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    insert(tx, 1, 1).await?;
    match how {
        Inner::Plain => inner(shop, 2).await?,
        Inner::New => inner_new(shop, 2).await?,
        Inner::Joined { fails } => {
            let joined = inner_joined(&shop.locks, tx, 2, fails).await;
            assert_eq!(joined.is_err(), fails, "{joined:?}");
            // What the inner one wrote, or not, is seen by the outer one; the lock stays until it is committed.
            assert_eq!(writer(tx, 2).await?.is_some(), !fails);
            if !fails {
                let tried = tokio::spawn(shop.locks.mutex("/inner").try_acquire());
                assert!(matches!(tried.await, Ok(Ok(None))), "the lock of what is not committed yet is free");
            }
        }
    }
    if fail { Err(Problem::Own("the outer one failed")) } else { Ok(()) }
}

#[tokio::test]
async fn a_transaction_inside_another_on_the_same_pool_is_refused() -> Outcome {
    let shop = Shop::open(1).await?;
    let result = soon("a refusal", outer(&shop, Inner::Plain, false)).await;
    let Err(Problem::Lock(Error::NestedTransaction { outer, .. })) = &result else { panic!("{result:?}") };
    assert!(outer.ends_with("outer"), "{outer}");
    assert_eq!((shop.writer(1).await?, shop.writer(2).await?), (None, None));
    free_and_clean(&shop).await
}

#[tokio::test]
async fn an_inner_transaction_may_join() -> Outcome {
    let shop = Shop::open(1).await?;
    for (fails, outer_fails) in [(true, true), (false, true), (true, false)] {
        let result = soon("a call", outer(&shop, Inner::Joined { fails }, outer_fails)).await;
        assert_eq!(result.is_err(), outer_fails, "{result:?}");
        assert_eq!(shop.writer(1).await?.is_some(), !outer_fails);
        assert_eq!(shop.writer(2).await?, None);
        free_and_clean(&shop).await?;
    }
    let shop = Shop::open(1).await?;
    soon("a call", outer(&shop, Inner::Joined { fails: false }, false)).await?;
    assert_eq!((shop.writer(1).await?, shop.writer(2).await?), (Some(1), Some(1)));
    free_and_clean(&shop).await
}

#[tokio::test]
async fn an_inner_transaction_may_be_its_own() -> Outcome {
    let shop = Shop::open(2).await?;
    if !WRITES_SIDE_BY_SIDE {
        // It would wait for the outer one, which waits for it.
        let result = soon("a refusal", outer(&shop, Inner::New, false)).await;
        assert!(matches!(result, Err(Problem::Lock(Error::NestedTransaction { .. }))), "{result:?}");
        assert_eq!((shop.writer(1).await?, shop.writer(2).await?), (None, None));
        return free_and_clean(&shop).await;
    }
    let result = soon("a call", outer(&shop, Inner::New, true)).await;
    assert!(matches!(result, Err(Problem::Own("the outer one failed"))), "{result:?}");
    assert_eq!((shop.writer(1).await?, shop.writer(2).await?), (None, Some(1)));
    free_and_clean(&shop).await
}

/// The lock is to be had at once, nothing is in the queue, and the pool is as it was.
async fn free_and_clean(shop: &Shop) -> Outcome {
    for path in ["/orders", "/outer", "/inner"] {
        queued(&shop.locks, path, 0).await?;
    }
    soon("a clean pool", shop.pool_is_clean()).await
}
