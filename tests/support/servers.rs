use zklock::{Locks, LocksBuilder};
use zklock_testkit::{Chroot, ZooKeeper};

use super::Outcome;

/// A place of its own on the shared server.
pub(crate) async fn chroot() -> Outcome<Chroot> {
    Ok(ZooKeeper::shared().await?.chroot("faults").await?)
}

/// Settings with which nothing runs out by itself.
pub(crate) fn patient(url: &str) -> LocksBuilder {
    Locks::builder(url).identity("a tester").default_timeout(None).default_wait(None)
}
