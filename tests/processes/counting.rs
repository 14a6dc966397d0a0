use std::time::Duration;

use zklock::sqlx;
use zklock_testkit::{Postgres, Signal, ZooKeeper};

use crate::{
    child::Child,
    roles::{DATABASE, MODE, ROUNDS, SESSION, Shop, URL},
    support::Outcome,
};

#[tokio::test(flavor = "multi_thread")]
async fn g09_two_processes_count_exactly_and_in_order() -> Outcome {
    let log = count("fair", &[250, 250]).await?;
    is_first_come_first_served(&log);
    Ok(())
}

/// With nothing but the lock between them.
#[tokio::test(flavor = "multi_thread")]
async fn g01_two_processes_count_exactly_without_a_fence() -> Outcome {
    let log = count("fair unfenced", &[250, 250]).await?;
    is_first_come_first_served(&log);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g01_two_processes_count_exactly_unfair_without_a_fence() -> Outcome {
    count("unfair unfenced", &[250, 250]).await.map(drop)
}

/// One more of them is killed in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn g02_a_killed_process_neither_loses_nor_doubles_a_count() -> Outcome {
    for mode in ["fair", "unfair unfenced"] {
        count(mode, &[60, 60, usize::MAX]).await?;
    }
    Ok(())
}

/// One row of the log.
#[derive(Debug)]
struct Entry {
    value: i64,
    token: String,
    node: String,
}

/// Lets processes count to so much each, and kills those without an end when they are on their way.
async fn count(mode: &str, rounds: &[usize]) -> Outcome<Vec<Entry>> {
    let zookeeper = ZooKeeper::shared().await?;
    let chroot = zookeeper.chroot("counting").await?;
    if mode.starts_with("fair") {
        // A node that stays keeps the directory, and so the numbers that the server gives in it.
        zookeeper.create_node(&format!("{}/counter", chroot.path()), b"").await?;
        zookeeper.create_node(&format!("{}/counter/stays", chroot.path()), b"").await?;
    }
    let database = Postgres::shared().await?.create_database("counting").await?;
    let shop = Shop::open(&chroot.url(), &database, Duration::from_secs(10)).await?;
    tables(&shop).await?;
    let mut children = Vec::new();
    for rounds in rounds {
        let settings = [
            (URL, chroot.url()),
            (DATABASE, database.clone()),
            (SESSION, "4000".to_owned()),
            (MODE, mode.to_owned()),
            (ROUNDS, rounds.to_string()),
        ];
        let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
        children.push((*rounds, Child::start("count", &settings)?));
    }
    for (_, child) in &mut children {
        child.says("ready")?;
    }
    for (_, child) in &mut children {
        child.tell("go")?;
    }
    let mut told = 0;
    tokio::task::spawn_blocking(move || {
        let (endless, finite): (Vec<_>, Vec<_>) =
            children.into_iter().partition(|(rounds, _)| *rounds == usize::MAX);
        for (_, child) in endless {
            for _ in 0..20 {
                child.says("one")?;
                told += 1;
            }
            child.signal(Signal::Kill)?;
        }
        for (rounds, child) in finite {
            for _ in 0..rounds {
                child.says("one")?;
                told += 1;
            }
            child.says("done")?;
            child.ends()?;
        }
        Outcome::Ok(told)
    })
    .await?
    .map(|all| told = all)?;

    let value: i64 = sqlx::query_scalar("SELECT value FROM counter").fetch_one(&shop.pool).await?;
    let rows: Vec<(i64, String, String)> =
        sqlx::query_as("SELECT value, token, node FROM log ORDER BY value, token")
            .fetch_all(&shop.pool)
            .await?;
    let log: Vec<_> = rows.into_iter().map(|(value, token, node)| Entry { value, token, node }).collect();
    // Each increment wrote its line in its own transaction: none is lost, none is doubled.
    assert_eq!(i64::try_from(log.len())?, value, "lines against the count");
    let killed = rounds.contains(&usize::MAX);
    assert!(if killed { value >= told } else { value == told }, "{told} were told as done, {value} are");
    for (number, entry) in (0..).zip(&log) {
        assert_eq!(entry.value, number, "two read the same: {entry:?}");
    }
    for pair in log.windows(2) {
        assert!(pair[0].token < pair[1].token, "an older token after a newer one: {pair:?}");
    }
    shop.locks.close().await;
    Ok(log)
}

/// The order of the grants is the order of the queue.
fn is_first_come_first_served(log: &[Entry]) {
    let place =
        |entry: &Entry| entry.node.rsplit_once("-lock-").and_then(|(_, place)| place.parse::<u32>().ok());
    for pair in log.windows(2) {
        let (first, second) = (place(&pair[0]), place(&pair[1]));
        assert!(first.is_some() && first < second, "overtaken: {pair:?}");
    }
}

pub(crate) async fn tables(shop: &Shop) -> Outcome {
    for text in [
        "CREATE TABLE counter (value bigint NOT NULL)",
        "INSERT INTO counter VALUES (0)",
        "CREATE TABLE log (value bigint NOT NULL, token text NOT NULL, node text NOT NULL)",
        "CREATE TABLE writes (writer text NOT NULL)",
    ] {
        sqlx::query(text).execute(&shop.pool).await?;
    }
    Ok(())
}
