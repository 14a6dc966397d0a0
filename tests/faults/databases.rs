//! Databases that fall silent or die under a lock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use zklock::{
    Error,
    sqlx::{self, ConnectOptions as _, postgres::PgConnectOptions},
};
use zklock_testkit::{Direction, Postgres, Proxy};

use crate::{
    postgres::shop::{Shop, Then, via},
    support::{Outcome, Problem, chroot, patient, pause, queued, soon},
};

/// Before BEGIN, and in the body: the limit of the lock ends it, and the lock does not wait for the database for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g06_a_database_that_falls_silent_keeps_the_lock_no_longer_than_its_limit() -> Outcome {
    for in_the_body in [false, true] {
        let (shop, database) = Shop::behind(patient(&chroot().await?.url()), 1).await?;
        let shop = Arc::new(shop);
        let (at, mut paused) = pause();
        let spawned = |then| {
            let shop = shop.clone();
            tokio::spawn(async move { shop.write_briefly(1, then).await })
        };
        let asked = Instant::now();
        let call = if in_the_body {
            let call = spawned(Then::Pause(at));
            paused.reached().await?;
            database.black_hole(Direction::Both);
            call
        } else {
            database.black_hole(Direction::Both);
            spawned(Then::Return)
        };
        let result = soon("an answer", call).await?;
        let is_told = match &result {
            Err(Problem::Lock(Error::Overrun { .. })) => in_the_body,
            Err(Problem::Lock(Error::Database { .. })) => !in_the_body,
            _ => false,
        };
        assert!(is_told, "{result:?}");
        let next = soon("the lock", shop.locks.mutex("/orders").acquire()).await?;
        assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
        assert!(!shop.is_written(1).await?);
        next.release().await?;
        database.heal()?;
        shop.is_clean().await?;
        assert!(!shop.is_written(1).await?, "in_the_body: {in_the_body}");
    }
    Ok(())
}

/// Killed with COMMIT before its door, or with its answer on the way: whatever is told, it is not told wrongly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g12_a_database_that_dies_during_commit_is_told_honestly() -> Outcome {
    let postgres = Postgres::start().await?;
    let direct: PgConnectOptions = postgres.create_database("dies").await?.parse()?;
    let mut connection = direct.connect().await?;
    sqlx::query("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY)").execute(&mut connection).await?;
    drop(connection);
    let proxy = Proxy::start(direct.to_url_lossy().as_str()).await?;
    let locks = patient(&chroot().await?.url());
    let shop = Arc::new(Shop::over(locks, via(&direct, &proxy), direct.clone(), 1).await?);
    for (id, arrives) in [(1, false), (2, true)] {
        soon("a call", shop.write(10 + id, Then::Return)).await?;
        let rule = if arrives { proxy.hold_reply("COMMIT", 1) } else { proxy.hold_request("COMMIT", 1) };
        let call = tokio::spawn({
            let shop = shop.clone();
            async move { shop.write(id, Then::Return).await }
        });
        rule.fired().await?;
        postgres.kill()?;
        proxy.cut();
        let result = soon("an answer", call).await?;
        postgres.restart().await?;
        let is_written = shop.is_written(id).await?;
        match &result {
            Ok(()) => assert!(is_written),
            Err(Problem::Lock(Error::NotCommitted { .. })) => assert!(!is_written),
            Err(Problem::Lock(Error::CommitUnknown { .. })) => {}
            Err(problem) => panic!("{problem:?}"),
        }
        assert_eq!(is_written, arrives, "{result:?}");
        queued(&shop.locks, "/orders", 0).await?;
        shop.is_clean().await?;
    }
    Ok(())
}
