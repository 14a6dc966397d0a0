//! In which order the parts of a call begin and end, on every way out (G4, G5).
#![deny(warnings, clippy::pedantic)]
#![allow(missing_docs, clippy::missing_errors_doc, clippy::unwrap_used)]

mod recorder;

use std::{
    fmt,
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicU32, Ordering},
    task::Poll,
    time::Duration,
};

use recorder::{Connection, Database, Noisy, Pool, Transaction, log, take_log};
use zklock::{Error, Guard, Locks, zk_lock};

#[derive(Clone, Copy)]
enum Way {
    Ok,
    Err,
    Panic,
    Hang,
}

async fn go(way: Way) -> Result<(), Error> {
    match way {
        Way::Ok => Ok(()),
        Way::Err => Err(Error::Closed),
        Way::Panic => panic!("on purpose"),
        Way::Hang => std::future::pending().await,
    }
}

#[zk_lock(path = "/plain", crate = crate::recorder)]
async fn plain(arg: Noisy, _unused: Noisy, way: Way) -> Result<(), Error> {
    let _local = Noisy("local");
    let _ = &arg;
    go(way).await?;
    log("done");
    Ok(())
}

#[zk_lock(path = "/transactional", transactional, crate = crate::recorder)]
async fn transactional(
    arg: Noisy,
    way: Way,
    #[tx] tx: &mut Transaction<'_, Database>,
    #[guard] guard: &Guard,
) -> Result<(), Error> {
    let _local = Noisy("local");
    let _ = &arg;
    assert!(guard.is_held());
    tx.execute("statement").await;
    go(way).await?;
    log("done");
    Ok(())
}

/// Calls `function` with locks of its own, drops it when it makes no more progress, and gives what was written down but
/// for the first line.
async fn record<F: Future<Output = Result<(), Error>>>(function: impl FnOnce() -> F) -> Vec<String> {
    let locks = Locks::memory();
    let _ = take_log();
    {
        let mut call = pin!(locks.scope(function()));
        let caught = poll_fn(|cx| {
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call.as_mut().poll(cx))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(_)) | Err(_) => Poll::Ready(()),
            }
        });
        let _ = tokio::time::timeout(Duration::from_millis(200), caught).await;
    }
    let mut entries = take_log();
    assert!(entries.remove(0).starts_with("enter "), "{entries:?}");
    entries
}

#[tokio::test]
async fn g05_everything_ends_before_the_lock() {
    let call = |way| record(move || plain(Noisy("arg"), Noisy("unused"), way));
    assert_eq!(call(Way::Ok).await, ["run", "done", "drop local", "drop arg", "leave", "drop unused"]);
    assert_eq!(call(Way::Err).await, ["run", "drop local", "drop arg", "leave", "drop unused"]);
    for way in [Way::Panic, Way::Hang] {
        assert_eq!(call(way).await, ["run", "drop local", "drop arg", "drop call", "drop unused"]);
    }
}

const BEGIN: [&str; 4] = [
    "begin installed TxSpec { isolation: None, unfenced: false, requires_new: false }",
    "open",
    "run",
    "statement",
];

#[tokio::test]
async fn g04_grant_begin_body_commit_release() {
    let call = |way| record(move || transactional(Noisy("arg"), way));
    let commit =
        ["done", "drop local", "drop arg", "close to commit", "drop slot", "finish", "drop tx", "leave"];
    assert_eq!(call(Way::Ok).await, [&BEGIN[..], &commit].concat());
    let roll_back =
        ["drop local", "drop arg", "close to roll back", "drop slot", "finish", "drop tx", "leave"];
    assert_eq!(call(Way::Err).await, [&BEGIN[..], &roll_back].concat());
    for way in [Way::Panic, Way::Hang] {
        let dropped = ["drop local", "drop arg", "drop slot", "drop tx", "drop call"];
        assert_eq!(call(way).await, [&BEGIN[..], &dropped].concat());
    }
}

#[zk_lock(path = "/pool", transactional(pool = pool), crate = crate::recorder)]
async fn on_pool(pool: Pool, #[tx] tx: &mut Connection) -> Result<(), Error> {
    tx.execute("statement").await;
    Ok(())
}

#[tokio::test]
async fn g03_no_transaction_no_body() {
    let entries = record(|| on_pool(Pool { fails: false })).await;
    assert!(entries[0].starts_with("begin pool"), "{entries:?}");
    assert_eq!(record(|| on_pool(Pool { fails: true })).await, ["abandon", "drop call"]);
}

/// Counts how often it was shown.
struct Counted<'a>(&'a AtomicU32);

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        log("key");
        write!(f, "{}", self.0.fetch_add(1, Ordering::Relaxed))
    }
}

#[zk_lock(path = "/counted/{key}", transactional, crate = crate::recorder)]
async fn counted(key: &Counted<'_>, #[tx] _tx: &mut Connection, #[guard] guard: &Guard) -> Result<(), Error> {
    assert_eq!(guard.path().as_str(), "/counted/0");
    let _ = key;
    Ok(())
}

#[tokio::test]
async fn g11_the_key_is_evaluated_once_and_first() {
    let shown = AtomicU32::new(0);
    let _ = take_log();
    Locks::memory().scope(counted(&Counted(&shown))).await.unwrap();
    let entries = take_log();
    assert_eq!(entries.iter().filter(|entry| *entry == "key").count(), 1, "{entries:?}");
    assert_eq!(entries[0], "key");
    assert_eq!(shown.load(Ordering::Relaxed), 1);
}

#[zk_lock(
    path = "/options",
    fair = false,
    timeout = "1m 500ms",
    wait = "none",
    transactional(isolation = "repeatable read", unfenced, requires_new),
    crate = crate::recorder
)]
async fn options(#[tx] _tx: &mut Connection) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn options_arrive() {
    let _ = take_log();
    Locks::memory().scope(options()).await.unwrap();
    let entries = take_log();
    assert_eq!(entries[0], "enter accepted_order::options fair=false timeout=Some(60.5s) wait=None");
    assert_eq!(
        entries[1],
        "begin installed TxSpec { isolation: Some(RepeatableRead), unfenced: true, requires_new: true }"
    );
}
