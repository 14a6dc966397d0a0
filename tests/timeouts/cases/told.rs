//! What a caller is told of a body that was stopped: that it was rolled back only where that is known.

use std::sync::Arc;

use tokio::sync::oneshot;
use zklock::{
    Error,
    sqlx::{self, AssertSqlSafe, Pool},
    zk_lock,
};

use super::{
    Connection, Database, WRITES_SIDE_BY_SIDE, create, pool,
    shop::{Shop, Then, insert},
};
use crate::support::{Outcome, Problem, soon};

/// What the body does before it is stopped.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// It writes.
    Write,
    /// It ends the transaction, and writes.
    End(&'static str),
    /// It has another call write, in a transaction of its own in another database.
    Elsewhere { fails: bool },
    /// The same in this one.
    New,
}

#[zk_lock(path = "/inner", timeout = "60s", locks = shop.locks, transactional(pool = pool, requires_new))]
async fn elsewhere(
    shop: &Shop,
    pool: &Pool<Database>,
    fails: bool,
    #[tx] tx: &mut Connection,
) -> Result<(), Problem> {
    insert(tx, 2, 1).await?;
    if fails { Err(Problem::Own("the inner one failed")) } else { Ok(()) }
}

#[zk_lock(path = "/outer", timeout = "60s", locks = shop.locks, transactional)]
async fn write(
    shop: &Shop,
    other: &Pool<Database>,
    before: Before,
    reached: oneshot::Sender<()>,
    #[tx] tx: &mut Connection,
) -> Result<(), Problem> {
    insert(tx, 1, 1).await?;
    match before {
        Before::Write => {}
        Before::End(text) => {
            sqlx::query(AssertSqlSafe(text)).execute(&mut *tx).await?;
            insert(tx, 2, 1).await?;
        }
        Before::Elsewhere { fails } => {
            let inner = elsewhere(shop, other, fails).await;
            assert_eq!(inner.is_err(), fails, "{inner:?}");
        }
        Before::New => elsewhere(shop, &shop.pool, false).await?,
    }
    let _ = reached.send(());
    std::future::pending().await
}

/// Loses its lock, since its `Locks` is closed.
async fn lost(before: Before) -> Outcome<(bool, Shop, Shop)> {
    let (shop, other) = (Arc::new(Shop::open(2).await?), Shop::open(1).await?);
    let (reached, is_reached) = oneshot::channel();
    let call = tokio::spawn({
        let (shop, pool) = (shop.clone(), other.pool.clone());
        async move { write(&shop, &pool, before, reached).await }
    });
    soon("the body", is_reached).await?;
    soon("closing", shop.locks.close()).await;
    let result = soon("the answer", call).await?;
    let Err(Problem::Lock(error @ Error::Lost { rolled_back, .. })) = &result else { panic!("{result:?}") };
    assert_eq!(error.is_retryable(), *rolled_back, "{before:?}");
    let rolled_back = *rolled_back;
    let shop = Arc::into_inner(shop).ok_or("the call is over")?;
    soon("a clean pool", shop.pool_is_clean()).await?;
    Ok((rolled_back, shop, other))
}

#[tokio::test]
async fn g12_a_body_that_was_stopped_is_told_as_rolled_back() -> Outcome {
    let (rolled_back, shop, _) = lost(Before::Write).await?;
    assert!(rolled_back, "all of it was in the transaction");
    assert_eq!(shop.writer(1).await?, None);
    Ok(())
}

#[tokio::test]
async fn g12_a_body_that_ended_its_transaction_is_not_told_as_rolled_back() -> Outcome {
    for text in ["COMMIT", "ROLLBACK"] {
        let (rolled_back, shop, _) = lost(Before::End(text)).await?;
        assert!(!rolled_back, "what came after {text} stands");
        assert_eq!(shop.writer(1).await?.is_some(), text == "COMMIT");
        assert_eq!(shop.writer(2).await?, Some(1));
    }
    Ok(())
}

#[tokio::test]
async fn g12_a_body_in_which_another_call_has_committed_is_not_told_as_rolled_back() -> Outcome {
    let (rolled_back, shop, other) = lost(Before::Elsewhere { fails: false }).await?;
    assert!(!rolled_back, "what the inner call wrote stands");
    assert_eq!((shop.writer(1).await?, other.writer(2).await?), (None, Some(1)));
    if WRITES_SIDE_BY_SIDE {
        let (rolled_back, shop, _) = lost(Before::New).await?;
        assert!(!rolled_back, "what the inner call wrote stands");
        assert_eq!((shop.writer(1).await?, shop.writer(2).await?), (None, Some(1)));
    }
    Ok(())
}

#[tokio::test]
async fn g12_a_body_in_which_another_call_was_rolled_back_is_told_as_rolled_back() -> Outcome {
    let (rolled_back, shop, other) = lost(Before::Elsewhere { fails: true }).await?;
    assert!(rolled_back, "neither of them stands");
    assert_eq!((shop.writer(1).await?, other.writer(2).await?), (None, None));
    Ok(())
}

/// Stopped in the middle of a statement, it is known as well.
#[tokio::test]
async fn g12_a_long_statement_that_was_stopped_is_told_as_rolled_back() -> Outcome {
    let shop = Shop::open(1).await?;
    for (then, fenced) in [(Then::Await, true), (Then::Long, true), (Then::Long, false)] {
        let written = oneshot::channel().0;
        let result = if fenced {
            soon("the overrun", shop.hang(1, 1, written, then)).await
        } else {
            soon("the overrun", shop.hang_unfenced(1, 1, written, then)).await
        };
        let is_known = matches!(result, Err(Problem::Lock(Error::Overrun { rolled_back: true, .. })));
        assert!(is_known, "{result:?}");
        assert_eq!(shop.writer(1).await?, None);
    }
    soon("a clean pool", shop.pool_is_clean()).await
}

/// Two pools of one database are one database.
#[tokio::test]
async fn a_transaction_inside_another_on_another_pool_of_the_database_is_refused() -> Outcome {
    let options = create().await?;
    let shop = Shop::open_on(options.clone(), pool(options.clone(), 1)).await?;
    let result = soon("a refusal", inside(&shop, &pool(options, 1))).await;
    assert!(matches!(result, Err(Problem::Lock(Error::NestedTransaction { .. }))), "{result:?}");
    assert_eq!((shop.writer(1).await?, shop.writer(2).await?), (None, None));
    // In another one it is not.
    let other = Shop::open(1).await?;
    soon("a call", inside(&shop, &other.pool)).await?;
    assert_eq!((shop.writer(1).await?, other.writer(2).await?), (Some(1), Some(1)));
    soon("a clean pool", shop.pool_is_clean()).await
}

#[zk_lock(path = "/inner", timeout = "60s", locks = shop.locks, transactional(pool = pool))]
async fn plain(shop: &Shop, pool: &Pool<Database>, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    Ok(insert(tx, 2, 1).await?)
}

#[zk_lock(path = "/outer", timeout = "60s", locks = shop.locks, transactional)]
pub(super) async fn inside(
    shop: &Shop,
    pool: &Pool<Database>,
    #[tx] tx: &mut Connection,
) -> Result<(), Problem> {
    insert(tx, 1, 1).await?;
    plain(shop, pool).await
}
