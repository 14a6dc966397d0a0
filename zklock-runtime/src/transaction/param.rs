use std::{borrow::Cow, sync::Arc};

use sqlx::Transaction;
use sqlx_core::transaction::TransactionManager;

use super::{
    BoxFuture, Database, Tx,
    commit::{Standing, Swallowed, ended, not_committed, standing},
    session,
};
use crate::{
    error::{Cause, Error},
    hold::Hold,
};

/// The types that a `#[tx]` parameter may refer to: `PgConnection`, `Transaction<'_, Postgres>`, and the same for
/// MySQL and SQLite.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the type behind `#[tx]`",
    label = "not a connection or a transaction of a database that zklock knows",
    note = "write `#[tx] tx: &mut PgConnection` or `#[tx] tx: &mut Transaction<'_, Postgres>` (and the same for \
            MySQL and SQLite), and turn on the feature `postgres`, `mysql` or `sqlite`"
)]
pub trait TxParam {
    /// The database that it belongs to.
    type Database: Database;
    /// What a call keeps it in.
    type Slot<'t>: Send;
    /// What the body gets to see: `Self`, for as long as the call lasts.
    type Param<'t>: Send;

    /// Makes one in the transaction that was begun.
    #[doc(hidden)]
    fn open<'t>(tx: &'t mut Tx<'_, Self::Database>) -> BoxFuture<'t, Result<Self::Slot<'t>, Error>>;

    /// Lends it to the body.
    #[doc(hidden)]
    fn param<'s, 't>(slot: &'s mut Self::Slot<'t>) -> &'s mut Self::Param<'t>
    where
        't: 's;

    /// Ends it, keeping what was done with it or not.
    #[doc(hidden)]
    fn close(slot: Self::Slot<'_>, keep: bool) -> BoxFuture<'_, Result<(), Error>>;
}

/// What the body of a call works with.
pub(crate) fn open<'t, T: TxParam>(
    tx: &'t mut Tx<'_, T::Database>,
) -> BoxFuture<'t, Result<T::Slot<'t>, Error>> {
    T::open(tx)
}

pub(crate) fn param<'s, 't, T: TxParam>(slot: &'s mut T::Slot<'t>) -> &'s mut T::Param<'t>
where
    't: 's,
{
    T::param(slot)
}

/// Before [`Tx::commit`], with `keep`, or before [`Tx::rollback`], without.
pub(crate) fn close<'t, T>(slot: T::Slot<'t>, keep: bool) -> BoxFuture<'t, Result<(), Error>>
where
    T: TxParam + 't,
{
    T::close(slot, keep)
}

/// The driver's own kind of transaction, nested in the one that was begun.
#[doc(hidden)]
#[derive(Debug)]
pub struct Nested<'t, DB: Database> {
    transaction: Transaction<'t, DB>,
    hold: Arc<Hold>,
    /// What a transaction that has failed is asked for.
    savepoint: Cow<'static, str>,
}

impl<DB: Database> TxParam for Transaction<'_, DB> {
    type Database = DB;
    type Slot<'t> = Nested<'t, DB>;
    type Param<'t> = Transaction<'t, DB>;

    fn open<'t>(tx: &'t mut Tx<'_, DB>) -> BoxFuture<'t, Result<Nested<'t, DB>, Error>> {
        let Some(hold) = tx.hold().cloned() else {
            return Box::pin(std::future::ready(Err(Error::Closed)));
        };
        Box::pin(async move {
            let savepoint = tx.savepoint();
            let transaction = if DB::IN_PROCESS {
                // Waits for nobody else, and its driver undoes too much when it is cut short.
                DB::nested(tx.connection()?).await
            } else {
                tokio::select! {
                    biased;
                    begun = DB::nested(tx.connection()?) => begun,
                    reason = session::over(&hold) => return Err(hold.error(reason)),
                }
            };
            match transaction {
                Ok(transaction) => Ok(Nested { transaction, hold, savepoint }),
                Err(error) => Err(Error::Database { path: hold.path().clone(), source: Cause::new(error) }),
            }
        })
    }

    // Written through `Self`, as in the trait: else the lifetimes count as bound elsewhere.
    fn param<'s, 't>(slot: &'s mut Self::Slot<'t>) -> &'s mut Self::Param<'t>
    where
        't: 's,
    {
        &mut slot.transaction
    }

    fn close(slot: Self::Slot<'_>, keep: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            if !keep {
                // Dropped: its rollback is queued, and swallowed by the one of the whole transaction.
                return Ok(());
            }
            let Nested { mut transaction, hold, savepoint } = slot;
            let error = match DB::TransactionManager::commit(&mut transaction).await {
                Ok(()) => {
                    // The driver's own `commit` would take the connection away, which is asked below.
                    std::mem::forget(transaction);
                    return Ok(());
                }
                Err(error) => error,
            };
            match standing::<DB>(&mut transaction, &savepoint, Some(&error)).await {
                Standing::Intact => Err(not_committed(&hold, Swallowed::Error(error))),
                Standing::Gone => Err(ended(&hold, error)),
                // The link is gone, and the commit that follows finds out more. Should it not be, then the level that
                // is still counted here keeps it from committing anything.
                Standing::Unknown => {
                    std::mem::forget(transaction);
                    Ok(())
                }
            }
        })
    }
}

macro_rules! connection {
    ($feature:literal, $connection:ty, $database:ty) => {
        #[cfg(feature = $feature)]
        impl TxParam for $connection {
            type Database = $database;
            type Slot<'t> = &'t mut $connection;
            type Param<'t> = $connection;

            fn open<'t>(tx: &'t mut Tx<'_, $database>) -> BoxFuture<'t, Result<&'t mut $connection, Error>> {
                Box::pin(std::future::ready(tx.connection()))
            }

            fn param<'s, 't>(slot: &'s mut Self::Slot<'t>) -> &'s mut Self::Param<'t>
            where
                't: 's,
            {
                slot
            }

            fn close(_: Self::Slot<'_>, _: bool) -> BoxFuture<'_, Result<(), Error>> {
                Box::pin(std::future::ready(Ok(())))
            }
        }
    };
}

connection!("postgres", sqlx::PgConnection, sqlx::Postgres);
connection!("mysql", sqlx::MySqlConnection, sqlx::MySql);
connection!("sqlite", sqlx::SqliteConnection, sqlx::Sqlite);
