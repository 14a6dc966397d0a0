#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::{sync::futures::OwnedNotified, task::futures::TaskLocalFuture};
use tracing::Span;

use crate::{
    clock::Tick,
    context::Frame,
    error::{Error, LostReason},
    hold::{Hold, State},
    locks::Locks,
    path::LockPath,
    token::FencingToken,
};

/// A lock that is held.
///
/// Dropping it gives the lock back in the background; [`release`](Self::release) waits until it is given back.
///
/// The lock can be lost while the guard is alive: the hold limit passes, the server does not answer, somebody deletes
/// the node. Run what must not outlive the lock through [`run`](Self::run), or look at [`check`](Self::check)
/// before each step.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use zklock_runtime as zklock;
/// use zklock::Locks;
///
/// let locks = Locks::memory();
/// let guard = locks.mutex("/jobs/nightly").acquire().await?;
/// let rows = guard.run(async { 41 + 1 }).await?;
/// assert_eq!(rows, 42);
/// guard.release().await?;
/// # Ok::<_, zklock::Error>(()) }).unwrap();
/// ```
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct Guard {
    hold: Arc<Hold>,
    locks: Locks,
    /// In a box, and only where somebody listens: a guard is a part of the future of every call.
    span: Option<Box<Span>>,
}

/// That of a call that nobody listens to.
static NO_SPAN: Span = Span::none();

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>, locks: Locks, span: Span) -> Self {
        Self { hold, locks, span: (!span.is_disabled()).then(|| Box::new(span)) }
    }

    /// The path that is locked.
    pub fn path(&self) -> &LockPath {
        self.hold().path()
    }

    /// The token of this grant, higher than that of every earlier grant of the path. Carry it to what the lock
    /// protects (G2).
    pub fn fencing_token(&self) -> FencingToken {
        self.hold().token()
    }

    /// Whether the lock is held by all that can be known here and now (G1): two guards of one path never both say so.
    pub fn is_held(&self) -> bool {
        self.hold().is_held()
    }

    /// [`is_held`](Self::is_held) as a `Result`, for `?` between two steps.
    ///
    /// Errors: [`Error::Overrun`] past the hold limit, [`Error::Lost`] with the reason else.
    pub fn check(&self) -> Result<(), Error> {
        self.hold().check().map_err(|reason| self.hold().error(reason))
    }

    /// How long it may still be held; `None` without a limit.
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = self.hold().deadline();
        (deadline != Tick::NEVER).then(|| deadline.remaining())
    }

    /// Sets the hold limit to `after` from now, be it later or earlier than it was.
    ///
    /// Errors: [`Error::Overrun`] or [`Error::Lost`] when the lock is held no more, [`Error::Config`] inside a
    /// transaction, whose own limits are set in the database already.
    pub fn extend(&self, after: Duration) -> Result<(), Error> {
        self.hold().extend(after)
    }

    /// Resolves when the lock is held no more, with the reason. Cancel-safe.
    pub async fn lost(&self) -> LostReason {
        self.hold().ended().await
    }

    /// Runs `future`, and stops it (drops it at its next await) when the lock is lost or the hold limit passes (G6, G7).
    ///
    /// Inside, annotated functions on the same path enter this lock again instead of waiting for it. A task that
    /// `future` spawns is not stopped with it.
    ///
    /// Errors: [`Error::Overrun`], [`Error::Lost`]. Cancel-safe: dropping it drops `future`; the guard stays.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = Result<F::Output, Error>> {
        let run = self.supervise(future);
        let hold = self.hold().clone();
        async move {
            let output = run.await.map_err(|Interrupted(reason)| hold.error(reason))?;
            hold.check().map_err(|reason| hold.error(reason))?;
            Ok(output)
        }
    }

    /// Gives the lock back and waits until it is: afterwards the next in line can have it.
    ///
    /// Without a connection it resolves when the server must have ended the session, at the latest.
    ///
    /// Errors: [`Error::Overrun`] or [`Error::Lost`] when the lock was not held any more; it is given back all
    /// the same. Cancel-safe: once called, it is given back whether awaited or not.
    pub async fn release(self) -> Result<(), Error> {
        let verdict = self.check();
        let hold = self.hold().clone();
        drop(self);
        hold.gone().await;
        verdict
    }

    pub(crate) fn supervise<F: Future>(&self, future: F) -> Run<'_, F> {
        let frame = Frame::body(self.locks().id(), self.hold().clone(), false);
        self.supervise_in(frame, future)
    }

    pub(crate) fn supervise_in<F: Future>(&self, frame: Arc<Frame>, future: F) -> Run<'_, F> {
        let just_now = frame.is_just_granted();
        Run { body: Some(frame.run(future)), changed: None, guard: self, just_now }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    pub(crate) fn span(&self) -> &Span {
        self.span.as_deref().unwrap_or(&NO_SPAN)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        crate::observe::released(self.span(), self.hold());
        // First: the next holder may be noted under the same path as soon as the lock is free.
        self.locks().waits().not_held(self.hold());
        self.hold().release();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("path", &self.path())
            .field("token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// A body under a hold: polls it in place, and drops it as soon as the hold is over.
    ///
    /// A hand-written future, since an `async fn` around the body would store it twice.
    #[must_use = "futures do nothing unless polled"]
    pub struct Run<'a, F> {
        #[pin]
        body: Option<TaskLocalFuture<Arc<Frame>, F>>,
        // Not before the body has to wait: many do not. In a box, since this is a part of the future of every call.
        changed: Option<Pin<Box<OwnedNotified>>>,
        guard: &'a Guard,
        // Granted in this very poll: the clock is not asked once more before the body is polled for the first time.
        just_now: bool,
    }
}

/// The body was stopped, for this reason.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted(pub(crate) LostReason);

impl<F: Future> Future for Run<'_, F> {
    type Output = Result<F::Output, Interrupted>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let _entered = this.guard.span().enter();
        let hold = this.guard.hold();
        let is_fresh = mem::take(this.just_now) && hold.state() == State::Held;
        if !is_fresh && let Some(stopped) = stopped(hold) {
            this.body.set(None);
            return Poll::Ready(Err(stopped));
        }
        let Some(body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(Err(Interrupted(LostReason::Released)));
        };
        if let Poll::Ready(output) = body.poll(context) {
            // Its destructors run under the lock.
            this.body.set(None);
            return Poll::Ready(Ok(output));
        }
        // Registered before the state is looked at once more, else an end in between would be missed.
        loop {
            let changed = this.changed.get_or_insert_with(|| Box::pin(hold.change()));
            if changed.as_mut().poll(context).is_pending() {
                break;
            }
            changed.set(hold.change());
        }
        if hold.noted_end().is_some()
            && let Some(stopped) = stopped(hold)
        {
            this.body.set(None);
            return Poll::Ready(Err(stopped));
        }
        Poll::Pending
    }
}

/// By the clock, since the process may have been stopped. A COMMIT inside that is on its way is awaited.
fn stopped(hold: &Arc<Hold>) -> Option<Interrupted> {
    if hold.state() == State::Committing {
        return None;
    }
    hold.check().err().map(Interrupted)
}

impl<F> fmt::Debug for Run<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("hold", self.guard.hold()).finish_non_exhaustive()
    }
}
