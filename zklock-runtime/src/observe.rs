//! What can be seen from outside: spans and snapshots. Called by all, calls nobody.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use tracing::{Span, field};

use crate::{
    backend::Deletes,
    clock::Tick,
    error::{Error, LostReason},
    hold::{Hold, State},
    options::LockOptions,
    path::LockPath,
    token::FencingToken,
};

/// The span of one locked call. Its fields are filled in as they become known: `wait` and `held` in microseconds,
/// `outcome` one of `committed`, `released`, `rolled back`, `overrun`, `lost` or the kind of error.
pub(crate) fn span(path: &LockPath, options: &LockOptions) -> Span {
    tracing::info_span!(
        target: "zklock",
        "zk_lock",
        path = %path,
        kind = if options.fair { "fair" } else { "unfair" },
        function = options.function,
        wait = field::Empty,
        held = field::Empty,
        token = field::Empty,
        outcome = field::Empty,
    )
}

pub(crate) fn granted(span: &Span, hold: &Hold, asked: Tick) {
    if span.is_disabled() {
        return;
    }
    span.record("wait", micros(asked.elapsed()));
    span.record("token", field::display(hold.token()));
    tracing::debug!(target: "zklock", parent: span, "granted");
}

pub(crate) fn refused(span: &Span, asked: Tick, error: &Error) {
    if span.is_disabled() {
        return;
    }
    span.record("wait", micros(asked.elapsed()));
    outcome(span, error.kind());
    tracing::debug!(target: "zklock", parent: span, %error, "not granted");
}

pub(crate) fn outcome(span: &Span, outcome: &'static str) {
    span.record("outcome", outcome);
}

pub(crate) fn released(span: &Span, hold: &Hold) {
    if span.is_disabled() {
        return;
    }
    span.record("held", micros(hold.held_for()));
    match hold.state() {
        State::Ended(LostReason::Overrun) => outcome(span, "overrun"),
        State::Ended(_) => outcome(span, "lost"),
        State::Held | State::Committing | State::Released => {}
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What one `Locks` holds and waits for, at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// What is held, the earliest deadline first.
    pub held: Vec<HeldLock>,
    /// What is waited for, the longest wait first.
    pub waiting: Vec<WaitingLock>,
    /// How the deletes of nodes on the server fare.
    pub deletes: Deletes,
}

/// A lock that this process holds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeldLock {
    /// The path.
    pub path: LockPath,
    /// The function that holds it.
    pub function: &'static str,
    /// The token of the grant.
    pub token: FencingToken,
    /// Since when.
    pub since: SystemTime,
    /// How long it has been held.
    pub held: Duration,
    /// How long it may still be held; `None` without a limit.
    pub remaining: Option<Duration>,
    /// Where it stands.
    pub phase: HoldPhase,
}

/// Where a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldPhase {
    /// The body runs.
    Held,
    /// COMMIT is on its way.
    Committing,
    /// Over, being rolled back and let go.
    Ending,
}

/// A lock that this process waits for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitingLock {
    /// The path.
    pub path: LockPath,
    /// The function that waits.
    pub function: &'static str,
    /// For how long.
    pub waited: Duration,
}

impl HeldLock {
    pub(crate) fn of(hold: &Hold) -> Self {
        let deadline = hold.deadline();
        Self {
            path: hold.path().clone(),
            function: hold.function(),
            token: hold.token(),
            since: hold.since().on_the_wall(),
            held: hold.held_for(),
            remaining: (deadline != Tick::NEVER).then(|| deadline.remaining()),
            phase: match hold.state() {
                State::Held => HoldPhase::Held,
                State::Committing => HoldPhase::Committing,
                State::Released | State::Ended(_) => HoldPhase::Ending,
            },
        }
    }
}

impl fmt::Display for HoldPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::Committing => "committing",
            Self::Ending => "ending",
        })
    }
}
