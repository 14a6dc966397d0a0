use std::{future::Future, time::Duration};

use zklock::Locks;

use super::Outcome;

/// Far longer than anything takes that works: it bounds what does not.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Waits for something that must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(output) = tokio::time::timeout(SOON, future).await else {
        panic!("waited {SOON:?} in vain for: {what}");
    };
    output
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, condition: impl AsyncFnMut() -> bool) -> Outcome {
    Ok(zklock_testkit::wait_until(SOON, what, condition).await?)
}

/// Waits until the queue of `path` has this many contenders, the holder included.
pub(crate) async fn queued(locks: &Locks, path: &str, contenders: usize) -> Outcome {
    let mut last = String::new();
    let there = async || {
        let queue = locks.inspect(path).await;
        last = format!("{queue:#?}");
        queue.is_ok_and(|queue| queue.len() == contenders)
    };
    let found = until(&format!("{contenders} contenders on {path}"), there).await;
    found.map_err(|error| format!("{error}; the queue was {last}").into())
}
