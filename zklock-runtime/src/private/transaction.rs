//! The transactional part of an expansion: begin, open, run, close, finish.

use super::{Boxed, Call, Interrupted, end};
pub use crate::transaction::{Isolation, Source as Connections, Tx, TxParam, TxSpec};
use crate::{
    context::OpenTransaction,
    error::{Cause, Error},
    observe,
    transaction::{self, Database, Origin},
};

/// A bare `transactional`: the pool that the `Locks` was given for the type of database.
#[derive(Clone, Copy, Debug)]
pub struct Installed;

impl<'a, DB: Database> Connections<'a, DB> for Installed {
    fn origin(self) -> Origin<'a, DB> {
        Origin::Installed
    }
}

/// Begins the transaction of a call.
pub fn begin<'f, 'a: 'f, T, S>(
    call: &'f Call,
    spec: &'static TxSpec,
    source: S,
) -> Boxed<'f, Result<Tx<'a, T::Database>, Error>>
where
    T: TxParam,
    S: Connections<'a, T::Database>,
{
    let origin = origin(call, *spec, source);
    Box::pin(async move {
        let origin = origin?;
        let pool = match &origin {
            Origin::Pool(pool) => Some(transaction::pool_id(pool)),
            // Belongs to the transaction that it joins.
            Origin::Outer(_) | Origin::Installed => None,
        };
        let locks = call.guard.locks();
        let hold = call.guard.hold();
        let begun = Tx::begin(origin, hold, *spec, locks.engine(), locks.databases().fence(), locks.grace());
        let mut tx = begun.await.map_err(before_the_body)?;
        if let (Some(pool), Some(connection)) = (pool, tx.connection_id()) {
            let (function, joined) = (hold.function(), Vec::new());
            call.frame.set_transaction(OpenTransaction { pool, connection, function, joined });
        }
        Ok(tx)
    })
}

/// What is said of a call whose body never ran: there was nothing to stop.
fn before_the_body(error: Error) -> Error {
    match error {
        Error::Overrun { path, held, .. } => Error::Database {
            path,
            source: Cause::new(format!(
                "no connection of the pool, no answer to BEGIN or no way past an older transaction of the same path \
                 within the {held:.1?} that the lock may be held; enlarge the pool or allow a longer `timeout`"
            )),
        },
        error => error.after_rollback(),
    }
}

fn origin<'a, DB: Database>(
    call: &Call,
    spec: TxSpec,
    source: impl Connections<'a, DB>,
) -> Result<Origin<'a, DB>, Error> {
    let origin = match source.origin() {
        Origin::Installed => {
            call.guard.locks().databases().pool().map(Origin::Pool).ok_or(Error::NotInstalled {
                what: "this `Locks` has no pool for the type of database of the `#[tx]` parameter: give it one with \
                       `Locks::builder(..).pool(pool)`, or name one with `transactional(pool = ..)`",
            })?
        }
        origin => origin,
    };
    match &origin {
        Origin::Pool(pool) => check_nesting::<DB>(call, spec, transaction::pool_id(pool))?,
        Origin::Outer(connection) if spec.unfenced => check_joining::<DB>(call, connection)?,
        Origin::Outer(_) | Origin::Installed => {}
    }
    Ok(origin)
}

/// A second transaction of the same call chain on the same pool would not see what the first has written, and might
/// wait for it.
fn check_nesting<DB: Database>(call: &Call, spec: TxSpec, pool: usize) -> Result<(), Error> {
    let hold = call.guard.hold();
    let refuse = |outer, reason| Err(Error::NestedTransaction { path: hold.path().clone(), outer, reason });
    for (outer, function) in call.frame.transactions(pool) {
        if !spec.requires_new {
            return refuse(
                function,
                "it would not see what that one has written; join it with `transactional(pool = tx)`, or ask for one of its own with \
                 `transactional(requires_new)`",
            );
        }
        if DB::ONE_WRITER {
            return refuse(
                function,
                "this database has one writer at a time, so it would wait for the outer one; join it with `transactional(pool = tx)`",
            );
        }
        if outer.root_id() == hold.root_id() && !spec.unfenced {
            return refuse(
                function,
                "on the same path it would wait for the fence row that the outer one has raised; join it with `transactional(pool = tx)`",
            );
        }
    }
    Ok(())
}

/// The lock of a call that joins is kept until the outer transaction has ended, if that is one of ours. If not, only the
/// fence row is there to keep the next holder's transaction waiting.
fn check_joining<DB: Database>(call: &Call, connection: &DB::Connection) -> Result<(), Error> {
    let connection = transaction::connection_id::<DB>(connection);
    call.frame.with_transaction_on(connection, |_, _| ()).ok_or_else(|| Error::Config {
        reason: format!(
            "lock \"{}\" would be free before the transaction that it joins is committed: that one was not begun by \
             `#[zk_lock]`, so `unfenced` cannot be used with it",
            call.guard.path()
        ),
    })
}

/// What the body works with.
pub fn open<'t, T: TxParam>(tx: &'t mut Tx<'_, T::Database>) -> Boxed<'t, Result<T::Slot<'t>, Error>> {
    transaction::open::<T>(tx)
}

/// Lends it to the body.
pub fn param<'s, 't, T: TxParam>(slot: &'s mut T::Slot<'t>) -> &'s mut T::Param<'t>
where
    't: 's,
{
    transaction::param::<T>(slot)
}

/// What a body came to, and whether that commits.
#[derive(Debug)]
pub struct Verdict<R> {
    value: R,
    commits: bool,
}

/// Ends the body's part of the transaction.
pub async fn close<'t, T, R>(
    call: &Call,
    slot: T::Slot<'t>,
    output: Result<R, Interrupted>,
    commits: impl FnOnce(&R) -> bool,
) -> Result<Verdict<R>, Error>
where
    T: TxParam + 't,
{
    let hold = call.guard.hold();
    let value = output.map_err(|Interrupted(reason)| hold.error(reason))?;
    let commits = commits(&value);
    tokio::select! {
        biased;
        closed = transaction::close::<T>(slot, commits) => closed?,
        reason = hold.ended() => return Err(hold.error(reason)),
    }
    Ok(Verdict { value, commits })
}

/// Commits or rolls back, then gives the lock back.
pub async fn finish<R, DB: Database>(
    call: Call,
    tx: Tx<'_, DB>,
    verdict: Result<Verdict<R>, Error>,
) -> Result<R, Error> {
    let value = match verdict {
        Ok(Verdict { value, commits: true }) => return commit(call, tx).await.map(|()| value),
        Ok(Verdict { value, commits: false }) => Ok(value),
        Err(error) => Err(error),
    };
    tx.rollback().await;
    drop(call.frame.take_transaction());
    let undone =
        |error: Error| if call.frame.has_committed_inside() { error } else { error.after_rollback() };
    match value {
        Ok(value) => match call.guard.hold().check() {
            Ok(()) => {
                observe::outcome(call.guard.span(), "rolled back");
                Ok(value)
            }
            // The body's own error may be no more than how it came to notice.
            Err(reason) => {
                let error = undone(call.guard.hold().error(reason));
                Err(Box::pin(end(call, error)).await)
            }
        },
        Err(error) => {
            let error = undone(error);
            Err(Box::pin(end(call, error)).await)
        }
    }
}

async fn commit<DB: Database>(call: Call, mut tx: Tx<'_, DB>) -> Result<(), Error> {
    if tx.is_joined() {
        let connection = tx.connection_id();
        return match tx.commit().await {
            Ok(()) => {
                stay_locked(call, connection);
                Ok(())
            }
            Err(error) => Err(Box::pin(end(call, error)).await),
        };
    }
    let open = call.frame.take_transaction();
    // What joined is a part of this commit: from here on nobody can take those locks either.
    let lost = open
        .iter()
        .flat_map(|open| &open.joined)
        .find_map(|guard| guard.hold().start_commit().err().map(|reason| guard.hold().error(reason)));
    let committed = match lost {
        None => tx.commit().await,
        Some(error) => {
            tx.rollback().await;
            Err(error)
        }
    };
    drop(open);
    match committed {
        Ok(()) => {
            observe::outcome(call.guard.span(), "committed");
            call.frame.note_commit();
            Ok(())
        }
        Err(error) => {
            let error = if call.frame.has_committed_inside() { error } else { error.after_rollback() };
            Err(Box::pin(end(call, error)).await)
        }
    }
}

/// What was written under the lock is not committed before the outer transaction is: the lock stays until then.
fn stay_locked(call: Call, connection: Option<usize>) {
    let Call { guard, frame } = call;
    observe::outcome(guard.span(), "joined");
    let Some(connection) = connection else { return };
    let mut guard = Some(guard);
    frame.with_transaction_on(connection, |outer, open| {
        if let Some(guard) = guard.take() {
            outer.keep(guard.hold());
            open.joined.push(guard);
        }
    });
    // An outer transaction that is not zklock's: its fence row keeps the next holder's transaction waiting.
    drop(guard);
}

/// Gives the lock back after a BEGIN that failed.
pub async fn abandon<R>(call: Call, error: Error) -> Result<R, Error> {
    Err(Box::pin(end(call, error)).await)
}
