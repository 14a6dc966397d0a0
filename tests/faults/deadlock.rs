//! A deadlock in MariaDB rolls back the whole transaction of one of the two, and whatever that one does next is a
//! transaction of its own, statement by statement.

use std::sync::Arc;

use tokio::sync::Barrier;
use zklock::{
    Error,
    sqlx::{self, AssertSqlSafe, ConnectOptions as _},
    zk_lock,
};

use crate::{
    mariadb::{
        Connection,
        shop::{Shop, insert},
    },
    support::{Outcome, Problem, chroot, patient, soon},
};

/// Takes a piece of each of two goods; two of these may want them in opposite order. It does not care when the second
/// is not to be had, and writes its order all the same.
#[zk_lock(path = "/goods/{first}", timeout = "60s", locks = shop.locks, transactional)]
async fn take(
    shop: &Shop,
    first: i64,
    second: i64,
    both: &Barrier,
    #[tx] tx: &mut Connection,
) -> Result<(), Problem> {
    take_one(tx, first).await?;
    both.wait().await;
    let _ = take_one(tx, second).await;
    insert(tx, first).await?;
    Ok(())
}

async fn take_one(tx: &mut Connection, id: i64) -> Result<(), sqlx::Error> {
    let text = format!("UPDATE goods SET taken = taken + 1 WHERE id = {id}");
    sqlx::query(AssertSqlSafe(text)).execute(tx).await.map(drop)
}

#[tokio::test]
async fn g12_what_follows_a_deadlock_is_not_told_as_committed() -> Outcome {
    let shop = Arc::new(Shop::open(patient(&chroot().await?.url()), 2).await?);
    let mut connection = shop.direct.connect().await?;
    for text in [
        "CREATE TABLE goods (id BIGINT NOT NULL PRIMARY KEY, taken BIGINT NOT NULL)",
        "INSERT INTO goods VALUES (1, 0), (2, 0)",
    ] {
        sqlx::query(text).execute(&mut connection).await?;
    }
    let both = Arc::new(Barrier::new(2));
    let calls = [(1, 2), (2, 1)].map(|(first, second)| {
        let (shop, both) = (shop.clone(), both.clone());
        tokio::spawn(async move { take(&shop, first, second, &both).await })
    });
    let mut losers = Vec::new();
    for (id, call) in (1..).zip(calls) {
        match soon("a call", call).await? {
            Ok(()) => {}
            Err(Problem::Lock(error @ Error::TransactionEnded { .. })) => {
                assert!(!error.is_retryable(), "a part of it stands");
                losers.push(id);
            }
            Err(problem) => return Err(problem.into()),
        }
    }
    let [loser] = losers[..] else { panic!("one of the two is rolled back: {losers:?}") };
    for id in [1, 2] {
        let taken = shop.number(format!("SELECT taken FROM goods WHERE id = {id}")).await?;
        assert_eq!(taken, 1, "by the one who was not rolled back");
    }
    // What MariaDB has done and nobody can undo: the statement that came after stands by itself, and its caller is
    // told to look.
    assert!(shop.is_written(loser).await?);
    assert!(shop.is_written(3 - loser).await?);
    for path in ["/goods/1", "/goods/2"] {
        crate::support::queued(&shop.locks, path, 0).await?;
    }
    shop.pool_is_clean().await
}
