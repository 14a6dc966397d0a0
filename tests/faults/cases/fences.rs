//! What the fence row alone holds, with no lock around it and no clock: two places of locks over one database, each of
//! which grants the same path.

use std::{sync::Arc, time::Duration};

use zklock::{Error, LocksBuilder, zk_lock};

use super::{
    Connection,
    shop::{Shop, Then, database, increment, insert},
};
use crate::support::{Outcome, Pause, Problem, patient, pause, soon, until};

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

fn memory() -> LocksBuilder {
    patient("memory:")
}

/// Two that know nothing of each other. The first has one connection.
async fn two() -> Outcome<(Arc<Shop>, Arc<Shop>)> {
    let first = Shop::open(memory(), 1).await?;
    let second = first.beside(memory()).await?;
    Ok((Arc::new(first), Arc::new(second)))
}

impl Shop {
    #[zk_lock(path = "/orders", timeout = "120s", locks = self.locks, transactional(isolation = "read committed"))]
    async fn count_read_committed(
        &self,
        at: Option<Pause>,
        #[tx] tx: &mut Connection,
    ) -> Result<(), Problem> {
        count(tx, at).await
    }

    #[zk_lock(path = "/orders", timeout = "120s", locks = self.locks, transactional(isolation = "repeatable read"))]
    async fn count_repeatable_read(
        &self,
        at: Option<Pause>,
        #[tx] tx: &mut Connection,
    ) -> Result<(), Problem> {
        count(tx, at).await
    }

    #[zk_lock(path = "/orders", timeout = "120s", locks = self.locks, transactional(isolation = "serializable"))]
    async fn count_serializable(&self, at: Option<Pause>, #[tx] tx: &mut Connection) -> Result<(), Problem> {
        count(tx, at).await
    }

    async fn count(&self, level: &str, at: Option<Pause>) -> Result<(), Problem> {
        match level {
            "read committed" => self.count_read_committed(at).await,
            "repeatable read" => self.count_repeatable_read(at).await,
            _ => self.count_serializable(at).await,
        }
    }

    async fn counted(&self) -> Outcome<i64> {
        self.number("SELECT value FROM counter".to_owned()).await
    }

    #[zk_lock(path = "/orders", timeout = "120s", locks = self.locks, transactional(requires_new))]
    async fn write_anew(&self, id: i64, #[tx] tx: &mut Connection) -> Result<(), Problem> {
        Ok(insert(tx, id).await?)
    }

    #[zk_lock(path = "/orders", timeout = "120s", locks = self.locks, transactional)]
    async fn write_inside_out(&self, id: i64, #[tx] tx: &mut Connection) -> Result<(), Problem> {
        insert(tx, id).await?;
        self.write_anew(id + 1).await
    }
}

async fn count(tx: &mut Connection, at: Option<Pause>) -> Result<(), Problem> {
    increment(tx).await?;
    if let Some(at) = at {
        at.here().await;
    }
    Ok(())
}

/// Granted first, and slow to begin: the second has come and gone meanwhile.
#[tokio::test]
async fn g02_a_superseded_holder_cannot_commit_at_any_isolation() -> Outcome {
    let (late, second) = two().await?;
    for (counted, level) in (1..).zip(LEVELS) {
        // The lock is granted, and there is no connection for it.
        let connection = late.pool.acquire().await?;
        let call = tokio::spawn({
            let late = late.clone();
            async move { late.count(level, None).await }
        });
        until("the first grant", async || late.locks.snapshot().held.len() == 1).await?;
        soon("the second call", second.count(level, None)).await?;
        drop(connection);
        let result = soon("the first call", call).await?;
        let Err(Problem::Lock(error @ Error::Fenced { .. })) = result else { panic!("{level}: {result:?}") };
        assert!(error.is_retryable(), "rolled back");
        assert_eq!(late.counted().await?, counted, "{level}");
        late.is_clean().await?;
    }
    // Asked anew, it is the newest.
    soon("the first call again", late.count(LEVELS[0], None)).await?;
    assert_eq!(late.counted().await?, 4);
    Ok(())
}

/// The first has begun, and the second is granted over its head: the row keeps the two apart, and no update is lost.
#[tokio::test]
async fn g02_a_newer_holder_waits_for_an_older_transaction_at_every_isolation() -> Outcome {
    let (first, second) = two().await?;
    for (counted, level) in (1..).zip(LEVELS) {
        let (at, mut paused) = pause();
        let older = tokio::spawn({
            let first = first.clone();
            async move { first.count(level, Some(at)).await }
        });
        paused.reached().await?;
        assert!(!first.is_idle().await?);
        let newer = tokio::spawn({
            let second = second.clone();
            async move { second.count(level, None).await }
        });
        until("the second to wait for the row of the first", async || {
            first.waiting().await.is_ok_and(|waiting| waiting == 1)
        })
        .await?;
        paused.go_on();
        soon("the older call", older).await?.map_err(|problem| format!("{level}: {problem}"))?;
        soon("the newer call", newer).await?.map_err(|problem| format!("{level}: {problem}"))?;
        assert_eq!(first.counted().await?, 2 * counted, "{level}: an update was lost");
    }
    first.is_clean().await?;
    second.is_clean().await
}

#[tokio::test]
async fn g02_a_cleaned_up_row_lets_no_stale_holder_in() -> Outcome {
    let (late, second) = two().await?;
    soon("a call, so that there is a row", second.write(1, Then::Return)).await?;
    let connection = late.pool.acquire().await?;
    let call = tokio::spawn({
        let late = late.clone();
        async move { late.write(2, Then::Return).await }
    });
    until("the first grant", async || late.locks.snapshot().held.len() == 1).await?;
    soon("the second call", second.write(3, Then::Return)).await?;
    let cleaned = soon("the clean-up", second.locks.clean_fence(&second.pool, Duration::ZERO)).await?;
    assert_eq!(cleaned, 1);
    drop(connection);
    let result = soon("the late call", call).await?;
    assert!(matches!(result, Err(Problem::Lock(Error::Fenced { .. }))), "{result:?}");
    assert!(!late.is_written(2).await? && late.is_written(3).await?);
    // Whoever is granted it from now on comes through.
    soon("a call after the clean-up", second.write(4, Then::Return)).await?;
    soon("another", late.write(5, Then::Return)).await?;
    late.is_clean().await
}

/// A service without a lock server, started again over the database that its last run has left.
#[tokio::test]
async fn g02_memory_started_anew_over_an_old_database_goes_on() -> Outcome {
    let options = database().await?;
    for run in 0..3 {
        let shop = Shop::over(memory(), options.clone(), options.clone(), 2).await?;
        for id in 0..3 {
            soon("a call", shop.write(10 * run + id, Then::Return)).await?;
        }
        shop.is_clean().await?;
        shop.locks.close().await;
    }
    Ok(())
}

/// It would wait for the row that its own caller has raised.
#[tokio::test]
async fn g02_a_new_transaction_on_the_path_of_the_outer_one_is_refused() -> Outcome {
    let shop = Shop::open(memory(), 2).await?;
    let result = soon("a refusal", shop.write_inside_out(1)).await;
    assert!(matches!(result, Err(Problem::Lock(Error::NestedTransaction { .. }))), "{result:?}");
    assert!(!shop.is_written(1).await? && !shop.is_written(2).await?);
    shop.is_clean().await
}
