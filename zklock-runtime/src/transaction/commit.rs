use std::{fmt, sync::Arc, time::Duration};

use sqlx_core::transaction::TransactionManager;
use tokio::sync::oneshot;

use super::{
    database::{Database, Verdict},
    resolve,
    session::{self, Session},
};
use crate::{
    clock::Tick,
    error::{Cause, Error},
    hold::Hold,
};

/// Commits in a task of its own: from the moment that COMMIT is sent, only its answer counts.
pub(crate) async fn commit<DB: Database>(session: Box<Session<DB>>) -> Result<(), Error> {
    let hold = session.hold().clone();
    if let Err(reason) = hold.start_commit() {
        session::roll_back(session).await;
        return Err(hold.error(reason));
    }
    let (reply, answer) = oneshot::channel();
    session.handle().clone().spawn(run(session, reply));
    answer.await.unwrap_or_else(|_| Err(unknown(&hold, "the Tokio runtime was shut down")))
}

async fn run<DB: Database>(mut session: Box<Session<DB>>, reply: oneshot::Sender<Result<(), Error>>) {
    let hold = session.hold().clone();
    if let Err(error) = check(&mut session).await {
        session::roll_back(session).await;
        let _ = reply.send(Err(error));
        return;
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
        () = async { lapsed(&hold).await; tokio::time::sleep(grace).await } => Err(Cut::Late),
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

/// Whether COMMIT may be sent: the transaction is the one that was begun, and the lock is held.
async fn check<DB: Database>(session: &mut Session<DB>) -> Result<(), Error> {
    let hold = session.hold().clone();
    let connection = session.connection()?;
    let released = tokio::select! {
        biased;
        released = DB::release_guard(connection, remaining(&hold)) => released.map_err(Swallowed::Guard),
        () = lapsed(&hold) => Err(Swallowed::Late),
    };
    // Only now has the driver seen to all that it was told before. At any other depth COMMIT would be a mere
    // RELEASE, or nothing at all, and the driver would call it a success.
    let whole = released.and_then(|()| match DB::TransactionManager::get_transaction_depth(connection) {
        1 => Ok(()),
        _ => Err(Swallowed::Depth),
    });
    // Right before COMMIT, by the clock: the process may have been stopped for any time, and must then write no
    // further.
    if let Some(reason) = hold.lapsed() {
        return Err(hold.error(reason));
    }
    whole.map_err(|swallowed| not_committed(&hold, swallowed))
}

/// The time until the deadline, if there is one.
fn remaining(hold: &Hold) -> Option<Duration> {
    let deadline = hold.deadline();
    (deadline != Tick::NEVER).then(|| deadline.remaining())
}

/// Resolves when the lock is not ours any more by what the clocks say. Nobody tells, since nobody can take a hold that
/// commits.
async fn lapsed(hold: &Arc<Hold>) {
    while hold.lapsed().is_none() {
        let deadline = hold.deadline().remaining();
        tokio::time::sleep(deadline.clamp(Duration::from_millis(1), Duration::from_millis(500))).await;
    }
}

pub(crate) fn not_committed(
    hold: &Hold,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::NotCommitted { path: hold.path().clone(), source: Cause::new(source) }
}

fn unknown(hold: &Hold, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::CommitUnknown { path: hold.path().clone(), source: Cause::new(source) }
}

/// A body that returned as if all was well, in a transaction of which that is not true.
#[derive(Debug)]
pub(crate) enum Swallowed {
    Guard(sqlx::Error),
    Depth,
    Late,
}

impl fmt::Display for Swallowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guard(error) => write!(
                f,
                "the transaction was over or had failed before its end was reached ({error}): the error of a statement \
                 was not passed on, or a statement ended it (COMMIT, or DDL on MySQL)"
            ),
            Self::Depth => f.write_str("a transaction begun inside of it was neither committed nor dropped"),
            Self::Late => {
                f.write_str("a statement that was left running on its connection did not end in time")
            }
        }
    }
}

impl std::error::Error for Swallowed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Guard(error) => Some(error),
            Self::Depth | Self::Late => None,
        }
    }
}
