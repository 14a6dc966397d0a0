//! What the current call chain holds: carried with the future, not with the thread.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::task::futures::TaskLocalFuture;

use crate::{guard::Guard, hold::Hold, locks::Locks, path::LockPath};

tokio::task_local! {
    static CURRENT: Arc<Frame>;
}

/// One step of a call chain. A spawned task starts a chain of its own.
pub(crate) struct Frame {
    outer: Option<Arc<Frame>>,
    step: Step,
}

enum Step {
    /// `Locks::scope`: what an annotation uses that names no `locks`.
    Scope(Locks),
    /// A body that runs under a hold.
    Body { locks: u64, hold: Arc<Hold>, transaction: Mutex<Option<OpenTransaction>> },
}

/// A transaction that is open around the current call.
#[cfg_attr(not(feature = "sqlx"), expect(dead_code, reason = "no database, no transaction"))]
pub(crate) struct OpenTransaction {
    /// Which pool its connection is of.
    pub(crate) pool: usize,
    /// The function that began it.
    pub(crate) function: &'static str,
    /// What must stay locked until it is over: the guards of those that joined it.
    pub(crate) joined: Vec<Guard>,
}

impl Frame {
    pub(crate) fn scope(locks: Locks) -> Arc<Self> {
        Self::below(current(), Step::Scope(locks))
    }

    pub(crate) fn body(locks: u64, hold: Arc<Hold>) -> Arc<Self> {
        Self::below(current(), Step::Body { locks, hold, transaction: Mutex::new(None) })
    }

    fn below(outer: Option<Arc<Self>>, step: Step) -> Arc<Self> {
        Arc::new(Self { outer, step })
    }

    /// Runs `future` as a part of this step.
    pub(crate) fn run<F: Future>(self: Arc<Self>, future: F) -> TaskLocalFuture<Arc<Self>, F> {
        CURRENT.scope(self, future)
    }

    /// The hold under which this chain is in `path` already.
    pub(crate) fn hold_of(&self, locks: u64, path: &LockPath) -> Option<Arc<Hold>> {
        self.steps().find_map(|step| match step {
            Step::Body { locks: theirs, hold, .. } if *theirs == locks && hold.path() == path => {
                Some(hold.clone())
            }
            _ => None,
        })
    }

    /// The holds that this call is in, by their ids.
    pub(crate) fn under(&self) -> Vec<u64> {
        self.steps()
            .filter_map(|step| match step {
                Step::Body { hold, .. } => Some(hold.root_id()),
                Step::Scope(_) => None,
            })
            .collect()
    }

    fn default_locks(&self) -> Option<Locks> {
        self.steps().find_map(|step| match step {
            Step::Scope(locks) => Some(locks.clone()),
            Step::Body { .. } => None,
        })
    }

    fn steps(&self) -> impl Iterator<Item = &Step> {
        std::iter::successors(Some(self), |frame| frame.outer.as_deref()).map(|frame| &frame.step)
    }
}

#[cfg(feature = "sqlx")]
impl Frame {
    pub(crate) fn set_transaction(&self, open: OpenTransaction) {
        if let Step::Body { transaction, .. } = &self.step {
            *transaction.lock().unwrap_or_else(PoisonError::into_inner) = Some(open);
        }
    }

    /// Ends what `set_transaction` began. The joined guards are the caller's to release, after the end is certain.
    pub(crate) fn take_transaction(&self) -> Option<OpenTransaction> {
        match &self.step {
            Step::Body { transaction, .. } => {
                transaction.lock().unwrap_or_else(PoisonError::into_inner).take()
            }
            Step::Scope(_) => None,
        }
    }

    /// The open transactions on `pool` around this step and in it, with their holds and functions.
    pub(crate) fn transactions(&self, pool: usize) -> Vec<(Arc<Hold>, &'static str)> {
        let open = |step: &Step| match step {
            Step::Body { hold, transaction, .. } => {
                let transaction = transaction.lock().unwrap_or_else(PoisonError::into_inner);
                let open = transaction.as_ref().filter(|open| open.pool == pool)?;
                Some((hold.clone(), open.function))
            }
            Step::Scope(_) => None,
        };
        self.steps().filter_map(open).collect()
    }

    /// Looks at the innermost open transaction around this step, if there is one.
    pub(crate) fn with_outer_transaction(&self, look: impl FnOnce(&Arc<Hold>, &mut OpenTransaction)) {
        for step in self.steps() {
            if let Step::Body { hold, transaction, .. } = step
                && let Some(open) = transaction.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
            {
                return look(hold, open);
            }
        }
    }
}

/// Where the running future is in its call chain.
pub(crate) fn current() -> Option<Arc<Frame>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// The `Locks` of the innermost `Locks::scope` around the running future.
pub(crate) fn scoped_locks() -> Option<Locks> {
    CURRENT.try_with(|frame| frame.default_locks()).ok().flatten()
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame").field("under", &self.under()).finish_non_exhaustive()
    }
}
