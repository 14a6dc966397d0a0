use std::sync::{Arc, Mutex};

use zklock::{Error, Guard, sqlx, zk_lock};

use super::{
    Connection,
    shop::{Shop, Then, insert},
};
use crate::support::{Outcome, Problem, queued, soon};

#[zk_lock(path = "/orders", timeout = "60s", locks = shop.locks, transactional)]
async fn look_around(
    shop: &Shop,
    id: i64,
    seen: &Mutex<Vec<&'static str>>,
    #[tx] tx: &mut Connection,
    #[guard] guard: &Guard,
) -> Result<(), Problem> {
    let note = |what| seen.lock().expect("no panic").push(what);
    if guard.is_held() {
        note("granted");
    }
    // The fence row is raised by the first statement of the transaction: it is seen in here, and not outside.
    let fenced: i64 = sqlx::query_scalar("SELECT count(*) FROM zklock_fence WHERE path = '/orders'")
        .fetch_one(&mut *tx)
        .await?;
    if fenced == 1 {
        note("begun");
    }
    insert(tx, id, 1).await?;
    note("body");
    if shop.writer(id).await.is_ok_and(|writer| writer.is_none()) {
        note("not committed yet");
    }
    Ok(())
}

#[tokio::test]
async fn g04_grant_begin_body_commit_release() -> Outcome {
    let shop = Arc::new(Shop::open(1).await?);
    for id in 0..25 {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let first = shop.locks.mutex("/orders").acquire().await?;
        let call = tokio::spawn({
            let (shop, seen) = (shop.clone(), seen.clone());
            async move { look_around(&shop, id, &seen).await }
        });
        queued(&shop.locks, "/orders", 2).await?;
        let observer = tokio::spawn({
            let (shop, seen) = (shop.clone(), seen.clone());
            async move {
                // It gets the lock when the call has released it: then its commit has been acknowledged already.
                let guard = shop.locks.mutex("/orders").acquire().await?;
                let writer = shop.writer(id).await;
                seen.lock().expect("no panic").push("released");
                guard.release().await?;
                writer
            }
        });
        queued(&shop.locks, "/orders", 3).await?;
        assert!(seen.lock().expect("no panic").is_empty(), "nothing of the call runs before the grant");
        first.release().await?;
        let writer = soon("the observer", observer).await??;
        assert_eq!(writer, Some(1), "released before the commit was there");
        soon("the call", call).await??;
        assert_eq!(
            *seen.lock().expect("no panic"),
            ["granted", "begun", "body", "not committed yet", "released"],
            "round {id}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn no_connection_is_taken_while_queueing() -> Outcome {
    let shop = Arc::new(Shop::open(1).await?);
    let first = shop.locks.mutex("/orders").acquire().await?;
    let mut calls = Vec::new();
    for (id, others) in (0..5).zip(1..) {
        let shop_of_call = shop.clone();
        calls.push(tokio::spawn(async move { shop_of_call.write(id, 1, Then::Return).await }));
        queued(&shop.locks, "/orders", others + 1).await?;
    }
    // The only connection is free for whoever holds the lock, and for others.
    for _ in 0..5 {
        let mut connection = soon("the only connection", shop.pool.acquire()).await?;
        sqlx::query("SELECT 1").execute(&mut *connection).await?;
    }
    soon("a clean pool", shop.pool_is_clean()).await?;
    first.release().await?;
    for call in calls {
        soon("a call", call).await??;
    }
    for id in 0..5 {
        assert_eq!(shop.writer(id).await?, Some(1));
    }
    Ok(())
}

#[zk_lock(path = "/orders", timeout = "60s", wait = "50ms", locks = shop.locks, transactional)]
async fn impatient(shop: &Shop, #[tx] tx: &mut Connection) -> Result<(), Problem> {
    insert(tx, 1, 1).await?;
    panic!("no lock, no body");
}

#[zk_lock(path = "/orders", timeout = "60s", locks = shop.locks, transactional)]
async fn extends(shop: &Shop, #[tx] tx: &mut Connection, #[guard] guard: &Guard) -> Result<(), Problem> {
    insert(tx, 1, 1).await?;
    let result = guard.extend(std::time::Duration::from_hours(1));
    assert!(matches!(result, Err(Error::Config { .. })), "{result:?}");
    Ok(())
}

#[tokio::test]
async fn g03_no_lock_no_transaction() -> Outcome {
    let shop = Shop::open(1).await?;
    let held = shop.locks.mutex("/orders").acquire().await?;
    let result = soon("a refusal", impatient(&shop)).await;
    assert!(matches!(result, Err(Problem::Lock(Error::Busy { .. }))), "{result:?}");
    assert_eq!(shop.writer(1).await?, None);
    held.release().await?;
    soon("a clean pool", shop.pool_is_clean()).await
}

#[tokio::test]
async fn the_limit_cannot_be_moved_inside_a_transaction() -> Outcome {
    let shop = Shop::open(1).await?;
    soon("a call", extends(&shop)).await?;
    assert_eq!(shop.writer(1).await?, Some(1));
    Ok(())
}
