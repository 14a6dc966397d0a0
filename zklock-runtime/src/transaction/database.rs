use std::{fmt, future::Future, sync::Arc, time::Duration};

use sqlx::{Connection, Transaction};
use sqlx_core::transaction::TransactionManager;
use uuid::Uuid;

use super::{
    Isolation,
    fence::{Row, Stored},
};

/// The options that a pool of `DB` connects with.
pub(crate) type Options<DB> = <<DB as sqlx::Database>::Connection as Connection>::Options;

/// Whether a statement may still run: asked from the database's own thread.
pub(crate) type MayRun = Arc<dyn Fn() -> bool + Send + Sync>;

/// The savepoint of ours that stands from BEGIN until right before COMMIT. That it can be released shows that the
/// transaction is still the one that was begun.
pub(crate) const GUARD: &str = "zklock_guard";

/// A database that zklock can run a transaction on.
///
/// What follows is what each of them does in its own way; all that they share stands elsewhere. Errors are the
/// driver's own, for the caller to judge.
#[doc(hidden)]
pub trait Database: sqlx::Database + sealed::Sealed {
    /// Finds one transaction again from another connection.
    type Mark: fmt::Debug + Send + Sync + 'static;

    /// The SQL that creates the fence table.
    const FENCE_TABLE: &'static str;

    /// Whether the driver's count of open levels is right at any time, or only after [`settle`](Self::settle).
    const COUNTS_AT_ONCE: bool = true;

    /// Whether the database lives in this process: its driver itself undoes a BEGIN that nobody waits for, a stop from
    /// outside only tells the connection's owner, and the last connection closed may be the end of the data.
    const IN_PROCESS: bool = false;

    /// Whether a statement that fails, or DDL, may end the transaction, so that those after it take effect one by one.
    const ENDS_SILENTLY: bool = true;

    /// Whether there is one writing transaction at a time: a second one of the same task would wait for the first, which
    /// waits for it.
    const ONE_WRITER: bool = false;

    /// A mark for a transaction that is about to begin.
    fn mark(writer: Uuid, may_run: MayRun) -> Self::Mark;

    /// BEGIN with limits, isolation and our savepoint. When it fails, or is dropped, the connection is good for
    /// nothing but to be closed.
    fn begin(
        connection: &mut Self::Connection,
        mark: &Self::Mark,
        limits: Limits,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// The first statement: raises the fence row. False when it is not to be raised by us. `None` for a mark in a
    /// transaction that is not ours to find again.
    fn raise(
        connection: &mut Self::Connection,
        mark: Option<&Self::Mark>,
        row: &Row,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// The first statement where there is no fence: notes what the mark needs.
    fn identify(
        connection: &mut Self::Connection,
        mark: &Self::Mark,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Releases our savepoint, the step before COMMIT. Fails when the transaction is not the one that was begun.
    fn release_guard(
        connection: &mut Self::Connection,
        remaining: Option<Duration>,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Returns to a savepoint, which also brings a transaction back that has failed since.
    fn return_to(
        connection: &mut Self::Connection,
        savepoint: &str,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// There is no such savepoint, or no transaction that one could be in.
    fn is_no_savepoint(error: &sqlx::Error) -> bool;

    /// Tells a statement that runs in this process to stop, where there is such a thing.
    fn interrupt(mark: &Self::Mark) {
        let _ = mark;
    }

    /// From here on nothing is stopped that runs on the connection.
    fn let_run(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send {
        let _ = connection;
        async { Ok(()) }
    }

    /// Ends the statement that runs in the transaction from a connection of its own, and not the transaction. What is
    /// told so may come to an end by itself first: the connection is then good for its owner only.
    fn cancel(options: &Options<Self>, mark: &Self::Mark) -> impl Future<Output = sqlx::Result<()>> + Send {
        let _ = (options, mark);
        async { Ok(()) }
    }

    /// Waits until all that was queued on the connection is done.
    fn settle(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send {
        let _ = connection;
        async { Ok(()) }
    }

    /// The bare statement.
    fn plain_rollback(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Undoes what BEGIN changed in the session, once the transaction has ended.
    fn restore(
        connection: &mut Self::Connection,
        mark: &Self::Mark,
    ) -> impl Future<Output = sqlx::Result<()>> + Send {
        let _ = (connection, mark);
        async { Ok(()) }
    }

    /// A savepoint in the transaction of somebody else. Dropping the future does that transaction no harm.
    fn savepoint(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send {
        Self::TransactionManager::begin(connection, None)
    }

    /// The driver's own kind of transaction, nested in the one that is open. Dropping the future does no harm to those
    /// around it, as far as the driver allows.
    fn nested(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = sqlx::Result<Transaction<'_, Self>>> + Send {
        Transaction::begin(connection, None)
    }

    /// Ends the transaction from a connection of its own. True when its end is confirmed: to find nothing is no
    /// confirmation.
    fn stop(
        options: &Options<Self>,
        mark: &Self::Mark,
        row: Option<&Row>,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// Whether the transaction took effect, by a read that waits for its end. `None` when not even its end can be told.
    fn resolve(
        options: &Options<Self>,
        mark: &Self::Mark,
        row: &Row,
    ) -> impl Future<Output = sqlx::Result<Option<Verdict>>> + Send;

    /// Whether both lead to one database by what they say. False when that cannot be told.
    fn is_same_place(one: &Options<Self>, other: &Options<Self>) -> bool;

    /// Whether the servers have said that both transactions are in one database. False when they have not been asked.
    fn is_same_database(one: &Self::Mark, other: &Self::Mark) -> bool {
        let _ = (one, other);
        false
    }

    /// The answer to COMMIT says that nothing was committed.
    fn is_refusal(error: &sqlx::Error) -> bool;

    /// The database chose this transaction to give way: the same may be tried again.
    fn is_conflict(error: &sqlx::Error) -> bool;

    /// The fence table does not exist.
    fn is_missing_table(error: &sqlx::Error) -> bool;

    /// Creates the fence table where it is missing.
    fn create_table(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Creates the floor of an ensemble where it is missing.
    fn create_floor(
        connection: &mut Self::Connection,
        floor: &str,
        ensemble: &[u8],
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Creates the row at its ensemble's floor. False when nothing was created, because it or no floor is there.
    fn create_row(
        connection: &mut Self::Connection,
        row: &Row,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// What the row of `key` holds.
    fn look(
        connection: &mut Self::Connection,
        key: &str,
    ) -> impl Future<Output = sqlx::Result<Option<Stored>>> + Send;

    /// Deletes the rows of an ensemble that were not raised for `older_than`, and lifts its floor over them. When it
    /// fails, the connection is to be closed.
    fn clean_up(
        connection: &mut Self::Connection,
        floor: &str,
        ensemble: &[u8],
        older_than: Duration,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// Gives the rows of other ensembles to this one, or only that of `key`, and lifts the floors of those others over
    /// them: should they ever be given back, no token from before passes. When it fails, the connection is to be closed.
    fn adopt(
        connection: &mut Self::Connection,
        floor: &str,
        ensemble: &[u8],
        key: Option<&str>,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;
}

/// What BEGIN sets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time that the hold has left, if it is limited.
    pub(crate) remaining: Option<Duration>,
    #[cfg_attr(
        not(any(feature = "postgres", feature = "mysql")),
        expect(dead_code, reason = "SQLite knows one")
    )]
    pub(crate) isolation: Option<Isolation>,
    /// Whether the fence row is raised next.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "only PostgreSQL marks a transaction in BEGIN")
    )]
    pub(crate) fenced: bool,
}

impl Limits {
    /// Rounded up: the database must not be quicker than the reaper, who gives the better error.
    pub(crate) fn millis(&self) -> Option<u64> {
        self.remaining
            .map(|remaining| u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX).saturating_add(1))
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It took effect.
    Committed,
    /// It did not, and cannot any more.
    NotCommitted,
    /// It has ended, and left no trace that would tell how.
    Unknown,
}

impl Isolation {
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn sql(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "READ UNCOMMITTED",
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

/// Rolls back level by level until none is left, whatever state the connection is in. `Ok` means that nothing is open any
/// more.
pub(crate) async fn roll_back_all<DB: Database>(connection: &mut DB::Connection) -> sqlx::Result<()> {
    let depth = DB::TransactionManager::get_transaction_depth(connection);
    // A statement that was cut off answers first, with its own error and in place of the rollback.
    let mut tries = depth + 2;
    loop {
        // At depth zero the driver sends nothing, though one may be open that it has lost count of.
        let rolled_back = match DB::TransactionManager::get_transaction_depth(connection) {
            0 => DB::plain_rollback(connection).await,
            _ => DB::TransactionManager::rollback(connection).await,
        };
        match rolled_back {
            Ok(()) if DB::TransactionManager::get_transaction_depth(connection) == 0 => return Ok(()),
            Err(error @ sqlx::Error::Database(_)) if tries == 0 => return Err(error),
            Ok(()) | Err(sqlx::Error::Database(_)) => tries = tries.saturating_sub(1),
            Err(error) => return Err(error),
        }
    }
}

pub(crate) mod sealed {
    /// Implemented for the three databases that there is code for.
    pub trait Sealed {}
}

/// The code of a database's own error.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn code(error: &sqlx::Error) -> Option<std::borrow::Cow<'_, str>> {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code)
}
