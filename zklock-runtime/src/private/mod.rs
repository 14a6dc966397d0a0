//! What the attribute expands to. Not for use by hand: it changes with any release.

use std::{
    fmt,
    fmt::Display,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

#[cfg(feature = "sqlx")]
mod transaction;

pub use core;

#[cfg(feature = "sqlx")]
pub use self::transaction::{
    Connections, Installed, Isolation, Tx, TxParam, TxSpec, Verdict, abandon, begin, close, finish, open,
    param,
};

use crate::{
    acquire::{self, Asked},
    backend::BoxFuture,
    context::Frame,
    error::Error,
    guard::Guard,
    observe,
    options::LockOptions,
    path::{self, LockPath},
};
pub use crate::{
    guard::{Interrupted, Run},
    locks::Locks,
    outcome::{Commits, FromLockError},
    path::IntoLockPath,
};

/// What an annotation says, in a constant.
#[derive(Debug)]
pub struct Spec {
    /// Module and name of the function.
    pub function: &'static str,
    /// `fair`.
    pub fair: bool,
    /// `timeout`.
    pub timeout: Limit,
    /// `wait`.
    pub wait: Limit,
}

/// A duration in an annotation.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// Not given: the default of the `Locks`.
    Default,
    /// `"none"`.
    None,
    /// Given.
    Some(Duration),
}

/// One part of a segment of a template.
#[derive(Debug)]
pub enum Part {
    /// Text as it stands.
    Text(&'static str),
    /// The next value; what stands between the braces.
    Value(&'static str),
}

/// The path of one call. `template` holds segments of parts, `values` one value for each `Part::Value`.
pub fn path(template: &'static [&'static [Part]], values: &[&dyn Display]) -> Result<LockPath, Error> {
    path::fill(template, values)
}

/// The path of one call where the annotation holds an expression.
pub fn ready_path(path: impl IntoLockPath) -> Result<LockPath, Error> {
    path.into_lock_path()
}

/// Stands for an injected parameter where an annotation is wrong, so that the rest of the function still fits. Such code
/// is not compiled, so it does not run.
pub fn missing<T>() -> T {
    unreachable!("the annotation does not compile")
}

/// A call that has its lock.
pub struct Call {
    guard: Guard,
    /// The step that the body is in the call chain.
    frame: Arc<Frame>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("guard", &self.guard).field("frame", &self.frame).finish()
    }
}

#[cfg(feature = "sqlx")]
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Takes the lock.
pub fn enter<'a>(spec: &'static Spec, locks: Option<&'a Locks>, path: Result<LockPath, Error>) -> Enter<'a> {
    Enter(Entering::Starts { spec, locks, path })
}

/// A call on its way to its lock.
///
/// A hand-written future: a lock that is free is taken without a box, and the size of the queue's futures is not the
/// caller's.
#[must_use = "futures do nothing unless polled"]
pub struct Enter<'a>(Entering<'a>);

enum Entering<'a> {
    Starts { spec: &'static Spec, locks: Option<&'a Locks>, path: Result<LockPath, Error> },
    Waits(BoxFuture<Result<Guard, Error>>),
    Over,
}

impl Future for Enter<'_> {
    type Output = Result<Call, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waits = match mem::replace(&mut self.0, Entering::Over) {
            Entering::Starts { spec, locks, path } => match ask(spec, locks, path) {
                Asked::Answered(answer) => return Poll::Ready(answer.map(|guard| Call::new(guard, true))),
                Asked::Waits(waits) => waits,
            },
            Entering::Waits(waits) => waits,
            Entering::Over => panic!("polled after it was ready"),
        };
        let answer = waits.as_mut().poll(context);
        if answer.is_pending() {
            self.0 = Entering::Waits(waits);
        }
        answer.map(|answer| answer.map(|guard| Call::new(guard, false)))
    }
}

impl fmt::Debug for Enter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enter").finish_non_exhaustive()
    }
}

fn ask(spec: &'static Spec, locks: Option<&Locks>, path: Result<LockPath, Error>) -> Asked {
    let locks = match locks {
        Some(locks) => Ok(locks.clone()),
        None => Locks::default_of_call(),
    };
    let (path, locks) = match (path, locks) {
        (Ok(path), Ok(locks)) => (path, locks),
        (Err(error), _) | (_, Err(error)) => return Asked::Answered(Err(error)),
    };
    let defaults = locks.defaults();
    let options = LockOptions {
        fair: spec.fair,
        timeout: spec.timeout.or(defaults.timeout),
        wait: spec.wait.or(defaults.wait),
        function: spec.function,
    };
    acquire::ask(locks, path, options)
}

impl Call {
    fn new(guard: Guard, just_now: bool) -> Self {
        let frame = Frame::body(guard.locks().id(), guard.hold().clone(), just_now);
        Self { guard, frame }
    }
}

/// The guard of a call, for `#[guard]`.
pub fn guard(call: &Call) -> &Guard {
    &call.guard
}

/// Runs the body under the lock, in place.
pub fn run<F: Future>(call: &Call, body: F) -> Run<'_, F> {
    call.guard.supervise_in(call.frame.clone(), body)
}

/// Gives the lock back after a body without a transaction.
pub async fn leave<R>(call: Call, output: Result<R, Interrupted>) -> Result<R, Error> {
    // A body that came to its end after the lock had gone, though nobody had noticed yet, did not do it under the lock.
    let checked = output.map_err(|Interrupted(reason)| reason).and_then(|output| {
        call.guard.hold().check()?;
        Ok(output)
    });
    match checked {
        Ok(output) => {
            observe::outcome(call.guard.span(), "released");
            Ok(output)
        }
        Err(reason) => {
            let error = call.guard.hold().error(reason);
            // Boxed: it is rare, and its size would be that of every call.
            Err(Box::pin(end(call, error)).await)
        }
    }
}

/// Something went wrong under the lock: it is free before the caller is told.
async fn end(call: Call, error: Error) -> Error {
    let hold = call.guard.hold().clone();
    let locks = call.guard.locks().clone();
    observe::outcome(call.guard.span(), error.kind());
    drop(call);
    locks.let_go_of(&hold).await;
    error
}

impl Limit {
    fn or(self, default: Option<Duration>) -> Option<Duration> {
        match self {
            Self::Default => default,
            Self::None => None,
            Self::Some(limit) => Some(limit),
        }
    }
}
