use std::{fmt, future::Future, pin::pin, sync::Arc, time::Duration};

use sqlx_core::transaction::TransactionManager;
use tokio::sync::oneshot;

use super::{
    database::{Database, GUARD, Verdict},
    resolve,
    session::{self, Phase, Session},
    unbroken::Unbroken,
};
use crate::{
    clock::Tick,
    error::{Cause, Error},
    hold::Hold,
};

/// Commits, and goes on with that when the caller goes away: from the moment that COMMIT is sent, only its answer
/// counts.
pub(crate) async fn commit<DB: Database>(session: Box<Session<DB>>) -> Result<(), Error> {
    let hold = session.hold().clone();
    if let Err(reason) = hold.start_commit() {
        let undone = session::roll_back(session).await;
        return Err(hold.error(reason).with_rolled_back(undone));
    }
    let runtime = session.handle().clone();
    let answer = Unbroken::new(runtime, |reply| run(session, reply)).await;
    answer.unwrap_or_else(|_| Err(unknown(&hold, "the Tokio runtime was shut down")))
}

async fn run<DB: Database>(mut session: Box<Session<DB>>, reply: oneshot::Sender<Result<(), Error>>) {
    let hold = session.hold().clone();
    let needed = hold.under_commit();
    // One timer for both.
    let mut lapse = pin!(lapse(&needed));
    match check(&mut session, &needed, lapse.as_mut()).await {
        Ok(()) => {}
        Err(Failed::Known(error)) => {
            let undone = session::roll_back(session).await;
            let _ = reply.send(Err(error.with_rolled_back(undone)));
            return;
        }
        Err(Failed::Cut(source)) => {
            session.cut();
            let verdict = resolve::resolve(session.running()).await;
            let error = match verdict {
                // Undone as a whole, and nothing can have followed it.
                Some(Verdict::NotCommitted) if !DB::ENDS_SILENTLY => not_committed(&hold, source),
                _ => ended(&hold, source),
            };
            if verdict.is_some() {
                session.conclude();
            }
            let _ = reply.send(Err(error));
            return;
        }
    }
    let grace = session.grace();
    let connection = match session.connection() {
        Ok(connection) => connection,
        Err(error) => {
            let _ = reply.send(Err(error));
            return;
        }
    };
    let answer = tokio::select! {
        biased;
        answer = DB::TransactionManager::commit(connection) => answer.map_err(Cut::Failed),
        () = async { lapse.await; tokio::time::sleep(grace).await } => Err(Cut::Late),
    };
    match answer {
        Ok(()) => {
            let reusable = session.conclude();
            let _ = reply.send(Ok(()));
            if reusable {
                session.give_back().await;
            }
        }
        Err(Cut::Failed(error)) if DB::is_refusal(&error) => {
            session::roll_back(session).await;
            let _ = reply.send(Err(not_committed(&hold, error)));
        }
        Err(cut) => {
            let source = match cut {
                Cut::Failed(error) => Cause::new(error),
                Cut::Late => Cause::new("the database did not answer in time"),
            };
            // No further byte goes to the server: what it has decides.
            session.cut();
            let verdict = resolve::resolve(session.running()).await;
            let path = hold.path().clone();
            let outcome = match verdict {
                Some(Verdict::Committed) => Ok(()),
                Some(Verdict::NotCommitted) => Err(Error::NotCommitted { path, source }),
                Some(Verdict::Unknown) | None => Err(Error::CommitUnknown { path, source }),
            };
            if verdict.is_some() {
                session.conclude();
            }
            let _ = reply.send(outcome);
        }
    }
}

enum Cut {
    Failed(sqlx::Error),
    Late,
}

/// Why COMMIT is not sent.
enum Failed {
    Known(Error),
    /// The link, or the time, ended before it was known what the transaction had come to.
    Cut(Box<dyn std::error::Error + Send + Sync>),
}

/// Whether COMMIT may be sent: the transaction is the one that was begun, and each lock is held that it `needs`.
async fn check<DB: Database>(
    session: &mut Session<DB>,
    needs: &[Arc<Hold>],
    lapse: impl Future<Output = ()>,
) -> Result<(), Failed> {
    let hold = session.hold().clone();
    let connection = session.connection().map_err(Failed::Known)?;
    let checked = tokio::select! {
        biased;
        checked = release::<DB>(connection, &hold, remaining(needs)) => checked,
        () = lapse => Err(Failed::Cut("the database did not answer in time".into())),
    };
    match checked {
        Ok(()) => session.enter(Phase::Certain),
        // What may stand must be told, whatever became of the lock.
        Err(Failed::Known(error @ Error::TransactionEnded { .. })) => return Err(Failed::Known(error)),
        Err(_) => {}
    }
    // Right before COMMIT, by the clock: the process may have been stopped for any time, and must then write no
    // further.
    if let Some(error) = lapsed(needs) {
        return Err(Failed::Known(error));
    }
    checked
}

async fn release<DB: Database>(
    connection: &mut DB::Connection,
    hold: &Hold,
    remaining: Option<Duration>,
) -> Result<(), Failed> {
    if let Err(error) = DB::release_guard(connection, remaining).await {
        return Err(match standing::<DB>(connection, GUARD, Some(&error)).await {
            Standing::Intact => Failed::Known(not_committed(hold, Swallowed::Error(error))),
            Standing::Gone => Failed::Known(ended(hold, error)),
            Standing::Unknown => Failed::Cut(error.into()),
        });
    }
    // Only now has the driver seen to all that it was told before. At any other depth COMMIT would be a mere
    // RELEASE, or nothing at all, and the driver would call it a success.
    match DB::TransactionManager::get_transaction_depth(connection) {
        1 => Ok(()),
        _ => Err(Failed::Known(not_committed(hold, Swallowed::Depth))),
    }
}

/// Whether a transaction is still the one that `savepoint` was set in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is, and what was done after the savepoint is undone.
    Intact,
    /// It has ended.
    Gone,
    Unknown,
}

/// Asked after `error`. A transaction that has failed refuses everything but to return to a savepoint of its own; in
/// another one that the body has begun since there is no such savepoint.
pub(crate) async fn standing<DB: Database>(
    connection: &mut DB::Connection,
    savepoint: &str,
    error: Option<&sqlx::Error>,
) -> Standing {
    match error {
        Some(error) if DB::is_no_savepoint(error) => return Standing::Gone,
        None | Some(sqlx::Error::Database(_)) => {}
        Some(_) => return Standing::Unknown,
    }
    match DB::return_to(connection, savepoint).await {
        Ok(()) => Standing::Intact,
        Err(error) if DB::is_no_savepoint(&error) => Standing::Gone,
        Err(_) => Standing::Unknown,
    }
}

/// As [`standing`], when nothing is known to have failed. A statement that was cut off answers first, with its own error
/// and in place of ours.
pub(crate) async fn returned<DB: Database>(connection: &mut DB::Connection, savepoint: &str) -> Standing {
    for _ in 0..2 {
        let standing = standing::<DB>(connection, savepoint, None).await;
        if standing != Standing::Unknown {
            return standing;
        }
    }
    standing::<DB>(connection, savepoint, None).await
}

/// The time until the earliest deadline, if there is one.
fn remaining(holds: &[Arc<Hold>]) -> Option<Duration> {
    let earliest = holds.iter().map(|hold| hold.deadline()).min().unwrap_or(Tick::NEVER);
    (earliest != Tick::NEVER).then(|| earliest.remaining())
}

/// What to tell when one of the locks is not ours any more, by what the clocks say.
fn lapsed(holds: &[Arc<Hold>]) -> Option<Error> {
    holds.iter().find_map(|hold| hold.lapsed().map(|reason| hold.error(reason)))
}

/// Resolves when one of the locks is not ours any more. Nobody tells, since nobody can take a hold that commits.
async fn lapse(holds: &[Arc<Hold>]) {
    const LOOK: Duration = Duration::from_millis(500);
    while lapsed(holds).is_none() {
        let deadline = remaining(holds).unwrap_or(LOOK);
        tokio::time::sleep(deadline.clamp(Duration::from_millis(1), LOOK)).await;
    }
}

pub(crate) fn not_committed(
    hold: &Hold,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::NotCommitted { path: hold.path().clone(), source: Cause::new(source) }
}

pub(crate) fn ended(hold: &Hold, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::TransactionEnded { path: hold.path().clone(), source: Cause::new(source) }
}

fn unknown(hold: &Hold, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::CommitUnknown { path: hold.path().clone(), source: Cause::new(source) }
}

/// A body that returned as if all was well, in a transaction of which that is not true.
#[derive(Debug)]
pub(crate) enum Swallowed {
    Error(sqlx::Error),
    Depth,
}

impl fmt::Display for Swallowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(
                f,
                "a statement failed, its error was not passed on, and the database refuses what follows ({error})"
            ),
            Self::Depth => f.write_str("a transaction begun inside of it was neither committed nor dropped"),
        }
    }
}

impl std::error::Error for Swallowed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Error(error) => Some(error),
            Self::Depth => None,
        }
    }
}
