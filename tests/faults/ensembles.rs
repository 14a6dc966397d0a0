//! Tokens of different ensembles do not compare: who comes with such a one is refused until an operator decides.

use std::sync::Arc;

use zklock::{Error, LockPath};
use zklock_testkit::ZooKeeper;

use crate::{
    postgres::shop::{Shop, Then},
    support::{Outcome, Problem, patient, soon, until},
};

fn is_foreign(result: Result<(), Problem>) {
    let Err(Problem::Lock(error @ Error::ForeignFence { .. })) = result else { panic!("{result:?}") };
    let Error::ForeignFence { theirs, ours, .. } = &error else { unreachable!() };
    assert_ne!(theirs, ours);
    assert!(!error.is_retryable(), "an operator must decide");
    assert!(error.to_string().contains("adopt"), "{error}");
}

/// The lock server's data is wiped, and its transaction numbers begin anew, far below those in the database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g02_after_a_wipe_nothing_is_written_until_the_rows_are_adopted() -> Outcome {
    let server = ZooKeeper::start().await?;
    let url = format!("{}/shop", server.url());
    let shop = Shop::open(patient(&url), 2).await?;
    soon("a call", shop.write(1, Then::Return)).await?;
    server.wipe().await?;
    let other = shop.beside(patient(&url)).await?;
    is_foreign(soon("a refusal", other.write(2, Then::Return)).await);
    // The one who was there before the wipe, as well.
    is_foreign(soon("a refusal", shop.write(2, Then::Return)).await);
    let path = LockPath::new("/orders")?;
    let elsewhere = LockPath::new("/elsewhere")?;
    assert_eq!(soon("an answer", other.locks.adopt_fence(&other.pool, Some(&elsewhere))).await?, 0);
    is_foreign(soon("a refusal", other.write(2, Then::Return)).await);
    assert_eq!(soon("the adoption", other.locks.adopt_fence(&other.pool, Some(&path))).await?, 1);
    soon("a call", other.write(3, Then::Return)).await?;
    soon("a call", shop.write(4, Then::Return)).await?;
    assert!(!shop.is_written(2).await?);
    shop.is_clean().await
}

/// Two places of locks are in use at a time, by mistake: they do not exclude each other, and only one of them writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g02_of_two_ensembles_over_one_database_one_writes() -> Outcome {
    // Without a chroot the path has one name in both.
    let server = ZooKeeper::start().await?;
    let first = Arc::new(Shop::open(patient(&server.url()), 1).await?);
    let second = first.beside(patient("memory:")).await?;
    soon("a call", first.write(1, Then::Return)).await?;
    is_foreign(soon("a refusal", second.write(2, Then::Return)).await);
    soon("a call", first.write(3, Then::Return)).await?;
    // Adopted while a holder of the first has its lock and is about to begin: it can no longer commit.
    let connection = first.pool.acquire().await?;
    let call = tokio::spawn({
        let first = first.clone();
        async move { first.write(4, Then::Return).await }
    });
    until("the grant", async || first.locks.snapshot().held.len() == 1).await?;
    assert_eq!(soon("the adoption", second.locks.adopt_fence(&second.pool, None)).await?, 1);
    soon("a call", second.write(5, Then::Return)).await?;
    drop(connection);
    is_foreign(soon("a refusal", call).await?);
    assert!(!first.is_written(2).await? && !first.is_written(4).await?);
    first.is_clean().await?;
    second.is_clean().await
}
