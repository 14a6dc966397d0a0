//! The transactional part of an expansion: begin, open, run, close, finish.

use sqlx::Pool;

use super::{Boxed, Call, Interrupted, end};
pub use crate::transaction::{Isolation, Source as Connections, Tx, TxParam, TxSpec};
use crate::{
    context::OpenTransaction,
    error::{Cause, Error},
    observe,
    transaction::{self, Database, Origin, Running},
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
    // The body comes after the answers of a database.
    call.frame.takes_time();
    let origin = origin(call, *spec, source);
    Box::pin(async move {
        let origin = origin?;
        let locks = call.guard.locks();
        let hold = call.guard.hold();
        let begun = Tx::begin(origin, hold, *spec, locks.engine(), locks.databases().fence(), locks.grace());
        let mut tx = begun.await.map_err(before_the_body)?;
        if let Some(nested) = nested(call, *spec, &tx) {
            tx.rollback().await;
            return Err(nested);
        }
        if let (Some(running), Some(connection)) = (tx.running().cloned(), tx.connection_id()) {
            let (function, joined, inside) = (hold.function(), Vec::new(), call.frame.inside());
            call.frame.set_transaction(OpenTransaction { running, connection, function, joined, inside });
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
        error => error.with_rolled_back(true),
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
        Origin::Pool(pool) => check_nesting(call, spec, pool)?,
        Origin::Outer(connection) if spec.unfenced => check_joining::<DB>(call, connection)?,
        Origin::Outer(_) | Origin::Installed => {}
    }
    Ok(origin)
}

/// A second transaction of the same call chain in the same database would not see what the first has written, and might
/// wait for it.
fn check_nesting<DB: Database>(call: &Call, spec: TxSpec, pool: &Pool<DB>) -> Result<(), Error> {
    let hold = call.guard.hold();
    let options = pool.connect_options();
    let refused = call.frame.find_transaction(|outer, open| {
        let around = open.running.downcast_ref::<Running<DB>>()?;
        if !around.is_in_the_place_of(&options) {
            return None;
        }
        let reason = if !spec.requires_new {
            UNSEEN
        } else if DB::ONE_WRITER {
            "this database has one writer at a time, so it would wait for the outer one; join it with `transactional(pool = tx)`"
        } else if outer.root_id() == hold.root_id() && !spec.unfenced {
            "on the same path it would wait for the fence row that the outer one has raised; join it with `transactional(pool = tx)`"
        } else {
            return None;
        };
        Some(Error::NestedTransaction { path: hold.path().clone(), outer: open.function, reason })
    });
    refused.map_or(Ok(()), Err)
}

const UNSEEN: &str = "it would not see what that one has written; join it with `transactional(pool = tx)`, or ask for \
                      one of its own with `transactional(requires_new)`";

/// The same once the server has said which database the transaction is in: one may be reached under several names.
fn nested<DB: Database>(call: &Call, spec: TxSpec, tx: &Tx<'_, DB>) -> Option<Error> {
    let running = tx.running().filter(|_| !spec.requires_new)?;
    call.frame.find_transaction(|_, open| {
        let around = open.running.downcast_ref::<Running<DB>>()?;
        DB::is_same_database(&around.mark, &running.mark).then(|| Error::NestedTransaction {
            path: call.guard.path().clone(),
            outer: open.function,
            reason: UNSEEN,
        })
    })
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
    let is_undone = tx.rollback().await;
    if let Some(open) = call.frame.take_transaction()
        && is_undone
    {
        open.inside.undone();
    }
    let is_undone = is_undone && !call.frame.may_stand();
    match value {
        Ok(value) => match call.guard.hold().check() {
            Ok(()) => {
                observe::outcome(call.guard.span(), "rolled back");
                Ok(value)
            }
            // The body's own error may be no more than how it came to notice.
            Err(reason) => {
                let error = call.guard.hold().error(reason).with_rolled_back(is_undone);
                Err(Box::pin(end(call, error)).await)
            }
        },
        Err(error) => Err(Box::pin(end(call, error.with_rolled_back(is_undone))).await),
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
            Err(error) => Err(not_committed(call, error).await),
        };
    }
    let open = call.frame.take_transaction();
    // What joined is a part of this commit: from here on nobody can take those locks either.
    let lost = open.iter().flat_map(|open| &open.joined).find_map(|guard| {
        let hold = guard.hold();
        hold.start_joined_commit().err().map(|reason| hold.error(reason))
    });
    let committed = match lost {
        None => tx.commit().await,
        Some(error) => Err(error.with_rolled_back(tx.rollback().await)),
    };
    let Err(error) = committed else {
        drop(open);
        observe::outcome(call.guard.span(), "committed");
        return Ok(());
    };
    if let Some(open) = open
        && error.says_undone()
    {
        open.inside.undone();
    }
    Err(not_committed(call, error).await)
}

async fn not_committed(call: Call, error: Error) -> Error {
    let is_undone = error.says_undone() && !call.frame.may_stand();
    Box::pin(end(call, error.with_rolled_back(is_undone))).await
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
