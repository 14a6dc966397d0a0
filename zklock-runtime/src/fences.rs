//! What operators do with the fence rows of a database.

use std::time::Duration;

use sqlx::Pool;

use crate::{
    clock::Tick,
    error::{Cause, Error},
    locks::Locks,
    path::LockPath,
    transaction::{self, Database},
};

/// How long the ensemble's id is waited for.
const WAIT: Duration = Duration::from_secs(10);

impl Locks {
    /// Deletes the fence rows of this ensemble that no transaction has raised for `older_than`, and returns how many:
    /// a row for each path that was ever used is left otherwise.
    ///
    /// It gives no stale token a way in (G2): a floor is kept that later rows must exceed. The price is that a holder
    /// who was granted its lock before the clean-up and begins its first transaction after it may be refused with
    /// [`Error::Fenced`], so choose `older_than` longer than any hold.
    ///
    /// Errors: [`Error::FenceTable`], [`Error::Unavailable`]. Not cancel-safe: a dropped call may or may not have
    /// deleted; it can be repeated.
    pub async fn clean_fence<DB: Database>(
        &self,
        pool: &Pool<DB>,
        older_than: Duration,
    ) -> Result<u64, Error> {
        let ensemble = self.backend().ensemble(Tick::now() + WAIT).await?;
        transaction::clean_up(pool, ensemble, older_than).await.map_err(failed)
    }

    /// Gives fence rows that were written under other ensembles to this one, all of them or that of one path, and
    /// returns how many: afterwards [`Error::ForeignFence`] is over for them.
    ///
    /// For an operator who knows that nobody is served by those other ensembles any more: after the lock servers'
    /// data was wiped, or the locks moved to another ensemble. A process that still holds a lock there can no longer
    /// commit.
    ///
    /// Errors: [`Error::FenceTable`], [`Error::Unavailable`]. Not cancel-safe: a dropped call may or may not have
    /// adopted; it can be repeated.
    pub async fn adopt_fence<DB: Database>(
        &self,
        pool: &Pool<DB>,
        path: Option<&LockPath>,
    ) -> Result<u64, Error> {
        let ensemble = self.backend().ensemble(Tick::now() + WAIT).await?;
        let key = path.map(|path| self.backend().fence_key(path));
        transaction::adopt(pool, ensemble, key.as_deref()).await.map_err(failed)
    }
}

fn failed(error: sqlx::Error) -> Error {
    Error::FenceTable { source: Cause::new(error) }
}
