//! What the current call chain holds: carried with the future, not with the thread.

use std::{
    any::Any,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
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
    Body(Body),
}

struct Body {
    locks: u64,
    hold: Arc<Hold>,
    just_now: AtomicBool,
    /// Some of what the body did may stand whatever becomes of it: calls inside of it did it, on transactions of their
    /// own.
    #[cfg_attr(not(feature = "sqlx"), expect(dead_code, reason = "no database, no transaction"))]
    may_stand: AtomicBool,
    /// In a box: most steps have none.
    transaction: Mutex<Option<Box<OpenTransaction>>>,
}

/// A transaction that is open around the current call.
#[cfg_attr(not(feature = "sqlx"), expect(dead_code, reason = "no database, no transaction"))]
pub(crate) struct OpenTransaction {
    /// What is known of it from outside, in the type of its database.
    pub(crate) running: Arc<dyn Any + Send + Sync>,
    /// Which connection it is on.
    pub(crate) connection: usize,
    /// The function that began it.
    pub(crate) function: &'static str,
    /// What must stay locked until it is over: the guards of those that joined it.
    pub(crate) joined: Vec<Guard>,
    pub(crate) inside: Inside,
}

/// A transaction of a call that runs inside of others: unless it is known to be undone, what was done in it may stand
/// whatever becomes of theirs. That is noted when this is dropped, on whatever way the call ends.
#[cfg_attr(not(feature = "sqlx"), expect(dead_code, reason = "no database, no transaction"))]
pub(crate) struct Inside(Option<Arc<Frame>>);

impl Frame {
    pub(crate) fn scope(locks: Locks) -> Arc<Self> {
        Self::below(current(), Step::Scope(locks))
    }

    /// `just_now`: the hold was granted in the very poll that is still running.
    pub(crate) fn body(locks: u64, hold: Arc<Hold>, just_now: bool) -> Arc<Self> {
        let body = Body {
            locks,
            hold,
            just_now: AtomicBool::new(just_now),
            may_stand: AtomicBool::new(false),
            transaction: Mutex::new(None),
        };
        Self::below(current(), Step::Body(body))
    }

    fn below(outer: Option<Arc<Self>>, step: Step) -> Arc<Self> {
        Arc::new(Self { outer, step })
    }

    /// Runs `future` as a part of this step.
    pub(crate) fn run<F: Future>(self: Arc<Self>, future: F) -> TaskLocalFuture<Arc<Self>, F> {
        CURRENT.scope(self, future)
    }

    /// Whether the body comes in the very poll in which its lock was granted.
    pub(crate) fn is_just_granted(&self) -> bool {
        match &self.step {
            Step::Body(body) => body.just_now.load(Ordering::Relaxed),
            Step::Scope(_) => false,
        }
    }

    /// The hold under which this chain is in `path` already, or that it keeps for a call that has joined.
    pub(crate) fn hold_of(&self, locks: u64, path: &LockPath) -> Option<Arc<Hold>> {
        self.bodies().find_map(|body| {
            if body.locks == locks && body.hold.path() == path {
                return Some(body.hold.clone());
            }
            let transaction = body.transaction();
            let mut joined = transaction.iter().flat_map(|open| &open.joined);
            joined
                .find(|guard| guard.locks().id() == locks && guard.path() == path)
                .map(|guard| guard.hold().clone())
        })
    }

    /// The holds that cannot end before this call does, by their ids.
    pub(crate) fn under(&self) -> Vec<u64> {
        let mut under = Vec::new();
        for body in self.bodies() {
            under.push(body.hold.root_id());
            under.extend(
                body.transaction().iter().flat_map(|open| &open.joined).map(|guard| guard.hold().root_id()),
            );
        }
        under
    }

    fn default_locks(&self) -> Option<Locks> {
        self.steps().find_map(|step| match step {
            Step::Scope(locks) => Some(locks.clone()),
            Step::Body(_) => None,
        })
    }

    fn bodies(&self) -> impl Iterator<Item = &Body> {
        self.steps().filter_map(|step| match step {
            Step::Body(body) => Some(body),
            Step::Scope(_) => None,
        })
    }

    fn steps(&self) -> impl Iterator<Item = &Step> {
        std::iter::successors(Some(self), |frame| frame.outer.as_deref()).map(|frame| &frame.step)
    }
}

impl Body {
    fn transaction(&self) -> MutexGuard<'_, Option<Box<OpenTransaction>>> {
        self.transaction.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "sqlx")]
impl Frame {
    pub(crate) fn set_transaction(&self, open: OpenTransaction) {
        if let Step::Body(body) = &self.step {
            *body.transaction() = Some(Box::new(open));
        }
    }

    /// The body comes later.
    pub(crate) fn takes_time(&self) {
        if let Step::Body(body) = &self.step {
            body.just_now.store(false, Ordering::Relaxed);
        }
    }

    /// Ends what `set_transaction` began. The joined guards are the caller's to release, after the end is certain.
    pub(crate) fn take_transaction(&self) -> Option<OpenTransaction> {
        match &self.step {
            Step::Body(body) => body.transaction().take().map(|open| *open),
            Step::Scope(_) => None,
        }
    }

    /// Looks at the open transactions around this step and in it, and at their holds, until `look` gives something.
    pub(crate) fn find_transaction<R>(
        &self,
        mut look: impl FnMut(&Arc<Hold>, &OpenTransaction) -> Option<R>,
    ) -> Option<R> {
        self.bodies().find_map(|body| body.transaction().as_ref().and_then(|open| look(&body.hold, open)))
    }

    /// Looks at the open transaction on `connection`, if it is one of this chain's.
    pub(crate) fn with_transaction_on<R>(
        &self,
        connection: usize,
        look: impl FnOnce(&Arc<Hold>, &mut OpenTransaction) -> R,
    ) -> Option<R> {
        for body in self.bodies() {
            if let Some(open) = body.transaction().as_mut().filter(|open| open.connection == connection) {
                return Some(look(&body.hold, open));
            }
        }
        None
    }

    /// Inside of the calls around this step.
    pub(crate) fn inside(&self) -> Inside {
        Inside(self.outer.clone())
    }

    /// Whether some of what the body of this step did may stand whatever becomes of it.
    pub(crate) fn may_stand(&self) -> bool {
        self.bodies().next().is_some_and(|body| body.may_stand.load(Ordering::Acquire))
    }
}

#[cfg(feature = "sqlx")]
impl Inside {
    /// Nothing that was done in it stands.
    pub(crate) fn undone(mut self) {
        self.0 = None;
    }
}

#[cfg(feature = "sqlx")]
impl Drop for Inside {
    fn drop(&mut self) {
        for body in self.0.iter().flat_map(|outer| outer.bodies()) {
            body.may_stand.store(true, Ordering::Release);
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
