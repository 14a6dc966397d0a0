//! Where locks live. Everything above knows only [`Backend`].

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::SystemTime};

#[cfg(feature = "sqlx")]
use crate::token::Ensemble;
use crate::{
    clock::Tick,
    error::Error,
    hold::{Hold, Overseer},
    options::LockOptions,
    path::LockPath,
};

pub(crate) mod memory;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A place that grants locks.
///
/// The futures are `'static` and may be polled from any thread and any runtime, or none: timers and I/O are the
/// backend's own, on the thread of its `Locks`.
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// Grants a lock that is free, where that can be known without a server. Whoever calls it takes what is granted in the
    /// same breath, so the overseer is not told.
    ///
    /// Errors: what `acquire` would say at once, but for `Busy`.
    fn take(&self, path: LockPath, _options: LockOptions, _now: Tick) -> Result<Taken, Error> {
        Ok(Taken::NotYet(path))
    }

    /// Said once, to a backend that `take`s: who is told of the ends of its holds.
    fn overseen_by(&self, _overseer: Arc<dyn Overseer>) {}

    /// Whether [`holder`](Self::holder) can tell. Of a backend that cannot, the holders are noted one by one.
    fn knows_holders(&self) -> bool {
        false
    }

    /// Which hold of this process is on `path`, by its id.
    fn holder(&self, _path: &LockPath) -> Option<u64> {
        None
    }

    /// Waits in the queue of a path. Dropping the future withdraws: the contender goes away by itself, and a grant
    /// that comes too late is given back.
    ///
    /// Errors: `Busy` when `wait_until` passes, `Unavailable` when it passes without a server, and whatever the
    /// server refuses.
    fn acquire(&self, request: Request) -> BoxFuture<Result<Arc<Hold>, Error>>;

    /// The queue of a path as the server sees it, the holder first.
    fn inspect(&self, path: &LockPath) -> BoxFuture<Result<Vec<QueueEntry>, Error>>;

    /// Whose tokens are given out now, waiting for a server until `wait_until`.
    #[cfg(feature = "sqlx")]
    fn ensemble(&self, wait_until: Tick) -> BoxFuture<Result<Ensemble, Error>>;

    /// What the fence row of a path is keyed by.
    #[cfg(feature = "sqlx")]
    fn fence_key(&self, path: &LockPath) -> String;

    /// How the deletes of nodes fare.
    fn deletes(&self) -> Deletes;

    /// Ends all that lives on the server, within a bound. Nothing is granted afterwards.
    fn close(&self) -> BoxFuture<()>;
}

/// What came of [`Backend::take`].
pub(crate) enum Taken {
    Granted(Arc<Hold>),
    /// The path is to be asked for by `acquire`.
    NotYet(LockPath),
}

/// What is asked of a backend.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: LockPath,
    pub(crate) options: LockOptions,
    /// When to give up; when it is already past, one try is made.
    pub(crate) wait_until: Tick,
    /// Told of the grant before the caller takes it: a caller may be slow to come, and its limit runs meanwhile.
    pub(crate) overseer: Option<Arc<dyn Overseer>>,
}

impl Request {
    pub(crate) fn granted(&self, hold: &Arc<Hold>) {
        if let Some(overseer) = &self.overseer {
            hold.oversee(overseer.clone());
            overseer.granted(hold);
        }
    }
}

/// How the deletes of nodes fare: what was given up or lost must go, or it blocks others until the session ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deletes {
    /// Nodes that are still to go.
    pub pending: usize,
    /// Deletes that had to be repeated, since the session began.
    pub retried: u64,
    /// Deletes that the server refused for lack of rights, since the session began.
    pub refused: u64,
}

/// One contender in the queue of a path.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueEntry {
    /// Whether it holds the lock; else it waits.
    pub is_holder: bool,
    /// Who it is: what its `Locks` was given as `identity`. `None` for a contender that is not zklock's.
    pub identity: Option<String>,
    /// The function that locks, where known. Of an unfair lock that was passed on within a process, and of its `since`,
    /// the first one that had it there.
    pub function: Option<String>,
    /// Since when it has been in the queue, by the clock of its own machine or of the server.
    pub since: Option<SystemTime>,
    /// The server's name for it.
    pub name: String,
}
