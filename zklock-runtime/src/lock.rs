use std::{fmt, time::Duration};

use crate::{
    acquire::{self, Asked},
    error::Error,
    guard::Guard,
    locks::Locks,
    options::LockOptions,
    path::LockPath,
};

/// How one lock is to be taken: made by [`Locks::mutex`], taken by [`acquire`](Self::acquire).
#[must_use = "nothing is locked until `acquire` is awaited"]
#[derive(Clone)]
pub struct Lock {
    locks: Locks,
    path: Result<LockPath, Error>,
    options: LockOptions,
}

impl Lock {
    pub(crate) fn new(locks: Locks, path: Result<LockPath, Error>) -> Self {
        let defaults = locks.defaults();
        let options =
            LockOptions { fair: true, timeout: defaults.timeout, wait: defaults.wait, function: "mutex" };
        Self { locks, path, options }
    }

    /// First come, first served among all processes (the default, G9), else whoever is quickest.
    ///
    /// An unfair lock goes from task to task of one process, first come, first served, before others get their chance: for
    /// 20 ms or 1024 holds, and one hold is never cut short for that. It is the quicker kind where many tasks of few processes
    /// want the same path.
    ///
    /// All users of a path must agree: the other kind gets [`Error::WrongKind`]. On ZooKeeper a path that was fair may be
    /// refused as unfair, or wait, until the server has swept its empty directory away: up to a minute.
    pub fn fair(mut self, fair: bool) -> Self {
        self.options.fair = fair;
        self
    }

    /// How long the lock may be held, `None` for no limit. Default: that of the `Locks` (5 s).
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.timeout = timeout.into();
        self
    }

    /// How long it may take to get the lock, `None` for no limit. Default: that of the `Locks` (30 s).
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.options.wait = wait.into();
        self
    }

    /// What operators are shown as the holder's function. Default: `mutex`.
    pub fn function(mut self, function: &'static str) -> Self {
        self.options.function = function;
        self
    }

    /// Waits for the lock; with a `wait` of zero it tries once.
    ///
    /// A task that holds the path through a guard of its own and asks for it once more waits for itself. Only inside
    /// [`Guard::run`] and annotated functions is the lock entered again (G10).
    ///
    /// Cancel-safe: a dropped call leaves the queue, and gives back what is granted to it at that moment (G5, G8).
    ///
    /// Errors: [`Error::Busy`] when `wait` is over, [`Error::Unavailable`] when no server answered within it,
    /// [`Error::WrongKind`], [`Error::Deadlock`], [`Error::InvalidPath`], [`Error::Refused`], [`Error::Closed`].
    pub async fn acquire(self) -> Result<Guard, Error> {
        let waits = match acquire::ask(self.locks, self.path?, self.options) {
            Asked::Answered(answer) => return answer,
            Asked::Waits(waits) => waits,
        };
        waits.await
    }

    /// Takes the lock if it is free, else gives `None` at once.
    ///
    /// Cancel-safe and errors as [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Option<Guard>, Error> {
        match self.wait(Duration::ZERO).acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::Busy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("path", &self.path)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
