use std::time::Duration;

use zklock::{Locks, LocksBuilder};
#[cfg(feature = "zookeeper")]
use zklock_testkit::{Chroot, ZooKeeper};

use super::Outcome;

/// The grace time of every `Locks` in these tests: short, since many wait for it to pass.
pub(crate) const GRACE: Duration = Duration::from_millis(200);

/// A place of its own where locks live, for one test.
#[derive(Debug)]
pub(crate) struct World(Place);

#[derive(Debug)]
enum Place {
    /// One table, which all handles share.
    Memory(Locks),
    #[cfg(feature = "zookeeper")]
    ZooKeeper(Chroot),
}

impl World {
    pub(crate) async fn memory() -> Outcome<Self> {
        Ok(Self(Place::Memory(settings("memory:").connect().await?)))
    }

    #[cfg(feature = "zookeeper")]
    pub(crate) async fn zookeeper() -> Outcome<Self> {
        Ok(Self(Place::ZooKeeper(ZooKeeper::shared().await?.chroot("conformance").await?)))
    }

    /// A handle as another process would have it: a session of its own where there are sessions.
    pub(crate) async fn locks(&self) -> Outcome<Locks> {
        match &self.0 {
            Place::Memory(locks) => Ok(locks.clone()),
            #[cfg(feature = "zookeeper")]
            Place::ZooKeeper(chroot) => Ok(settings(&chroot.url()).connect().await?),
        }
    }

    /// One with a session timeout of its own, where there are sessions.
    #[cfg(feature = "zookeeper")]
    pub(crate) async fn locks_with(&self, session_timeout: Duration) -> Outcome<Locks> {
        match &self.0 {
            Place::Memory(locks) => Ok(locks.clone()),
            Place::ZooKeeper(chroot) => {
                Ok(settings(&chroot.url()).session_timeout(session_timeout).connect().await?)
            }
        }
    }

    /// Several of them.
    pub(crate) async fn handles(&self, count: usize) -> Outcome<Vec<Locks>> {
        let mut handles = Vec::new();
        for _ in 0..count {
            handles.push(self.locks().await?);
        }
        Ok(handles)
    }

    /// Whether handles are independent of each other, as those of two processes are.
    pub(crate) fn is_shared_by_processes(&self) -> bool {
        !matches!(self.0, Place::Memory(_))
    }

    /// Where the locks live on the server.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn chroot(&self) -> Option<&Chroot> {
        match &self.0 {
            Place::Memory(_) => None,
            Place::ZooKeeper(chroot) => Some(chroot),
        }
    }
}

fn settings(url: &str) -> LocksBuilder {
    Locks::builder(url).grace(GRACE).identity("a tester").default_wait(None)
}
