use std::sync::Arc;

use sqlx_core::transaction::TransactionManager;
use uuid::Uuid;

use super::{
    TxSpec,
    begin::{failed, not_ready, refused},
    commit::{Standing, Swallowed, ended, not_committed, returned, standing},
    database::Database,
    fence::{self, NotReady, Row, Within},
    session,
};
use crate::{error::Error, hold::Hold};

/// A savepoint in a transaction that is the caller's: its limits, its isolation and its end are the caller's too.
///
/// Its fence row stays locked to the end of that transaction: should the lock be gone before, it is what keeps the next
/// holder's transaction waiting.
pub(crate) struct Joined<'a, DB: Database> {
    connection: &'a mut DB::Connection,
    hold: Arc<Hold>,
    /// The depth inside of the savepoint; zero when it is over.
    depth: usize,
}

impl<'a, DB: Database> Joined<'a, DB> {
    pub(crate) async fn begin(
        connection: &'a mut DB::Connection,
        hold: &Arc<Hold>,
        spec: TxSpec,
    ) -> Result<Self, Error> {
        let outer = DB::TransactionManager::get_transaction_depth(connection);
        if outer == 0 {
            return Err(failed(
                hold,
                "the connection given to be joined is in no transaction; begin one, or give a pool",
            ));
        }
        hold.check().map_err(|reason| hold.error(reason))?;
        tokio::select! {
            biased;
            set = DB::savepoint(connection) => set.map_err(|error| failed(hold, error))?,
            reason = session::over(hold) => return Err(hold.error(reason)),
        }
        let mut joined = Self { connection, hold: hold.clone(), depth: outer + 1 };
        if !spec.unfenced {
            tokio::select! {
                raised = joined.raise() => raised?,
                reason = session::over(hold) => return Err(hold.error(reason)),
            }
        }
        Ok(joined)
    }

    async fn raise(&mut self) -> Result<(), Error> {
        let hold = self.hold.clone();
        let row = Row::new(&hold, Uuid::new_v4());
        for tries in 0.. {
            let raised = DB::raise(self.connection, None, &row).await;
            if raised.map_err(|error| self.judge(error))? {
                return Ok(());
            }
            let stored = DB::look(self.connection, &row.key).await;
            let stored = stored.map_err(|error| self.judge(error))?;
            refused(&hold, &row, stored.as_ref(), tries > 2)?;
            if stored.is_none() {
                // Inside of the outer transaction, since there is no other connection.
                let ready = fence::create::<DB>(self.connection, &row, Within::Outer).await;
                ready.map_err(|error| not_ready::<DB>(&hold, error))?;
            }
        }
        Ok(())
    }

    fn judge(&self, error: sqlx::Error) -> Error {
        let error = if DB::is_missing_table(&error) { NotReady::NoTable } else { NotReady::Failed(error) };
        not_ready::<DB>(&self.hold, error)
    }

    pub(crate) fn connection(&mut self) -> &mut DB::Connection {
        self.connection
    }

    /// As the driver names it.
    pub(crate) fn savepoint(&self) -> String {
        format!("_sqlx_savepoint_{}", self.depth.saturating_sub(1))
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Releases the savepoint. That the work takes effect is decided by the outer transaction.
    pub(crate) async fn commit(&mut self) -> Result<(), Error> {
        let hold = self.hold.clone();
        // The hold stays as it is: its lock is kept, and can be lost, until the outer transaction commits.
        if let Err(reason) = hold.check() {
            return Err(hold.error(reason).with_rolled_back(self.undo().await));
        }
        let released = tokio::select! {
            biased;
            released = self.release() => released,
            // The drop has the driver roll back.
            reason = session::over(&hold) => return Err(hold.error(reason)),
        };
        let error = match released {
            Ok(()) => {
                self.depth = 0;
                return Ok(());
            }
            Err(error) => error,
        };
        let failed = match &error {
            Swallowed::Error(error) => Some(error),
            Swallowed::Depth => None,
        };
        let savepoint = self.savepoint();
        let standing = tokio::select! {
            biased;
            standing = standing::<DB>(self.connection, &savepoint, failed) => standing,
            _ = session::over(&hold) => Standing::Unknown,
        };
        match standing {
            Standing::Intact => Err(not_committed(&hold, error)),
            Standing::Gone | Standing::Unknown => Err(match error {
                Swallowed::Error(error) => ended(&hold, error),
                error @ Swallowed::Depth => ended(&hold, error),
            }),
        }
    }

    /// Returns to the savepoint: whether all that was done since is known to be undone. The outer transaction is
    /// somebody else's, so a statement that still runs is not ended for it.
    pub(crate) async fn undo(&mut self) -> bool {
        let savepoint = self.savepoint();
        let returned = async {
            DB::settle(self.connection).await?;
            // Deeper, it was begun inside and forgotten; the drop sees to that.
            let depth = DB::TransactionManager::get_transaction_depth(self.connection);
            Ok::<_, sqlx::Error>(
                depth == self.depth && returned::<DB>(self.connection, &savepoint).await == Standing::Intact,
            )
        };
        matches!(tokio::time::timeout(session::PATIENCE, returned).await, Ok(Ok(true)))
    }

    async fn release(&mut self) -> Result<(), Swallowed> {
        DB::settle(self.connection).await.map_err(Swallowed::Error)?;
        if DB::TransactionManager::get_transaction_depth(self.connection) != self.depth {
            return Err(Swallowed::Depth);
        }
        DB::TransactionManager::commit(self.connection).await.map_err(Swallowed::Error)
    }
}

/// Queues the rollback to the savepoint, ahead of whatever the outer transaction does next.
impl<DB: Database> Drop for Joined<'_, DB> {
    fn drop(&mut self) {
        if self.depth == 0 {
            return;
        }
        // One that was begun inside and forgotten is still counted; where the count lags behind, it cannot be used.
        let open = DB::TransactionManager::get_transaction_depth(self.connection);
        let levels = if DB::COUNTS_AT_ONCE { (open + 1).saturating_sub(self.depth) } else { 1 };
        for _ in 0..levels {
            DB::TransactionManager::start_rollback(self.connection);
        }
    }
}
