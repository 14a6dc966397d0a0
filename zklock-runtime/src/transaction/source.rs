use std::sync::Arc;

use sqlx::{Pool, Transaction};

use super::database::Database;

/// Where a transaction gets its connection: a pool, or a transaction that is open already.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no source of a transaction on `{DB}`",
    note = "a pool of the database that the `#[tx]` parameter is of gives a transaction of its own; \
            `&mut PgConnection` or `&mut Transaction<'_, Postgres>` (and the same for MySQL and SQLite) is joined"
)]
pub trait Source<'a, DB: Database> {
    /// What it comes down to.
    #[doc(hidden)]
    fn origin(self) -> Origin<'a, DB>;
}

/// What a source comes down to.
#[doc(hidden)]
#[derive(Debug)]
pub enum Origin<'a, DB: Database> {
    /// The pool that the `Locks` was given; to be looked up before anything is begun.
    Installed,
    /// A connection is taken from it.
    Pool(Pool<DB>),
    /// Its transaction is joined.
    Outer(&'a mut DB::Connection),
}

impl<'a, DB: Database> Source<'a, DB> for Pool<DB> {
    fn origin(self) -> Origin<'a, DB> {
        Origin::Pool(self)
    }
}

impl<'a, DB: Database> Source<'a, DB> for &Pool<DB> {
    fn origin(self) -> Origin<'a, DB> {
        Origin::Pool(self.clone())
    }
}

impl<'a, DB: Database> Source<'a, DB> for &&Pool<DB> {
    fn origin(self) -> Origin<'a, DB> {
        Origin::Pool((*self).clone())
    }
}

impl<'a, DB: Database> Source<'a, DB> for Arc<Pool<DB>> {
    fn origin(self) -> Origin<'a, DB> {
        Origin::Pool((*self).clone())
    }
}

impl<'a, DB: Database> Source<'a, DB> for &Arc<Pool<DB>> {
    fn origin(self) -> Origin<'a, DB> {
        Origin::Pool((**self).clone())
    }
}

impl<'a, DB: Database> Source<'a, DB> for &'a mut Transaction<'_, DB> {
    fn origin(self) -> Origin<'a, DB> {
        Origin::Outer(&mut **self)
    }
}

#[cfg(feature = "postgres")]
impl<'a> Source<'a, sqlx::Postgres> for &'a mut sqlx::PgConnection {
    fn origin(self) -> Origin<'a, sqlx::Postgres> {
        Origin::Outer(self)
    }
}

#[cfg(feature = "mysql")]
impl<'a> Source<'a, sqlx::MySql> for &'a mut sqlx::MySqlConnection {
    fn origin(self) -> Origin<'a, sqlx::MySql> {
        Origin::Outer(self)
    }
}

#[cfg(feature = "sqlite")]
impl<'a> Source<'a, sqlx::Sqlite> for &'a mut sqlx::SqliteConnection {
    fn origin(self) -> Origin<'a, sqlx::Sqlite> {
        Origin::Outer(self)
    }
}
