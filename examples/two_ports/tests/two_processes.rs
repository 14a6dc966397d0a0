//! Two processes that share ZooKeeper and a database.
#![allow(missing_docs)]

mod process;

use std::time::{Duration, Instant};

use process::{Demo, SOON, demo, ends, get, post, send, until};
use rustix::process::Signal;
use zklock_testkit::{MariaDb, Postgres, ZooKeeper};

#[tokio::test]
async fn the_story_plays_itself_on_zookeeper_and_postgres() {
    let (locks, database) = (ZooKeeper::start().await.unwrap(), Postgres::start().await.unwrap());
    plays_itself(&locks.url(), &database.url()).await;
}

#[tokio::test]
async fn the_story_plays_itself_on_zookeeper_and_mariadb() {
    let (locks, database) = (ZooKeeper::start().await.unwrap(), MariaDb::start().await.unwrap());
    plays_itself(&locks.url(), &database.url()).await;
}

async fn plays_itself(locks: &str, database: &str) {
    let drive = demo(["--port", "0,0", "--drive", "--url", locks, "--database", database]);
    let (code, told, complaints) = ends(drive).await;
    assert_eq!((code, &*complaints), (Some(0), ""), "{told}");
}

/// The session would outlive the test: that the other one gets the lock is the work of `close`.
#[tokio::test]
async fn the_other_takes_over_when_the_holder_is_asked_to_end() {
    let locks = ZooKeeper::builder().min_session_timeout(4 * SOON).max_session_timeout(4 * SOON);
    let (locks, database) = (locks.start().await.unwrap(), Postgres::start().await.unwrap());
    let (mut holder, mut waiter) = two(&locks.url(), &database.url()).await;

    let held = tokio::spawn(post(holder.ports[0], "/orders/42/pay?ms=60000"));
    until(holder.ports[0], "holds").await;
    let paid = tokio::spawn(post(waiter.ports[0], "/orders/42/pay"));
    until(waiter.ports[0], "waits").await;
    assert_eq!(holder.end(Signal::TERM).await, Some(0));

    assert_eq!(paid.await.unwrap(), (200, r#"{"id":42,"paid":100}"#.into()));
    let (status, answer) = held.await.unwrap();
    assert_eq!(status, 503, "{answer}");
    assert!(answer.starts_with(r#"{"error":"lost""#), "{answer}");
    assert_eq!(waiter.end(Signal::TERM).await, Some(0));
}

#[tokio::test]
async fn the_other_takes_over_when_the_holder_is_killed() {
    const SESSION: Duration = Duration::from_secs(5);
    let locks = ZooKeeper::builder().max_session_timeout(SESSION);
    let (locks, database) = (locks.start().await.unwrap(), Postgres::start().await.unwrap());
    let (mut holder, mut waiter) = two(&locks.url(), &database.url()).await;

    let held = tokio::spawn(send("POST", holder.ports[0], "/orders/42/pay?ms=60000"));
    until(holder.ports[0], "holds").await;
    let paid = tokio::spawn(post(waiter.ports[0], "/orders/42/pay"));
    until(waiter.ports[0], "waits").await;
    let killed = Instant::now();
    assert_eq!(holder.end(Signal::KILL).await, None);

    assert_eq!(paid.await.unwrap(), (200, r#"{"id":42,"paid":100}"#.into()));
    // A tick is two seconds; the rest is for a machine that is busy.
    assert!(killed.elapsed() < SESSION + Duration::from_secs(2 + 10), "{:?}", killed.elapsed());
    assert_eq!(held.await.unwrap(), None);
    assert_eq!(get(waiter.ports[0], "/orders/42").await.1, r#"{"id":42,"paid":100}"#);
    assert_eq!(waiter.end(Signal::TERM).await, Some(0));
}

async fn two(locks: &str, database: &str) -> (Demo, Demo) {
    let args = ["--port", "0", "--url", locks, "--database", database];
    tokio::join!(Demo::start(1, args), Demo::start(1, args))
}
