//! BEGIN, the check before COMMIT, COMMIT, ROLLBACK, each where dropping the caller cannot cut it short; the fence;
//! and the way to end a transaction that its owner cannot end.
//!
//! The driver's own `Transaction` is not used for the outermost level. It gives a connection back to the pool
//! whatever state it is in, while here it must be closed whenever that state is not known for certain.

use std::{borrow::Cow, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{engine::Engine, error::Error, hold::Hold};

mod begin;
mod commit;
mod database;
mod databases;
mod fence;
mod joined;
#[cfg(feature = "mysql")]
mod mysql;
mod param;
#[cfg(feature = "postgres")]
mod postgres;
mod resolve;
mod session;
mod source;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stop;
#[cfg(test)]
mod tests;
mod unbroken;

pub use self::{database::Database, param::TxParam, source::Source};
pub(crate) use self::{
    databases::Databases,
    fence::{Fence, adopt, clean_up},
    param::{close, open, param},
    source::Origin,
    stop::Running,
};

use self::{joined::Joined, session::Session};

/// The SQL that creates the table which fences transactions on `DB`, for those who keep their schema themselves and
/// have turned off that zklock creates it.
pub const fn fence_table_sql<DB: Database>() -> &'static str {
    DB::FENCE_TABLE
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What an annotation says of its transaction, in a constant.
#[derive(Clone, Copy, Debug)]
pub struct TxSpec {
    /// `isolation`; else the session's own.
    pub isolation: Option<Isolation>,
    /// `unfenced`.
    pub unfenced: bool,
    /// `requires_new`.
    pub requires_new: bool,
}

/// How much a transaction sees of those beside it. SQLite knows only the strictest and always uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// `READ UNCOMMITTED`
    ReadUncommitted,
    /// `READ COMMITTED`
    ReadCommitted,
    /// `REPEATABLE READ`
    RepeatableRead,
    /// `SERIALIZABLE`
    Serializable,
}

/// A begun transaction. Dropping it rolls back, in the background.
pub struct Tx<'a, DB: Database>(Inner<'a, DB>);

enum Inner<'a, DB: Database> {
    /// One of its own, on a connection from a pool.
    Own(Option<Box<Session<DB>>>),
    /// A savepoint in a transaction of the caller.
    Joined(Joined<'a, DB>),
}

impl<'a, DB: Database> Tx<'a, DB> {
    /// Takes a connection, begins, and raises the fence row. `grace`: how far beyond the deadline an answer to COMMIT is
    /// waited for.
    ///
    /// Dropping the future leaves no trace: what was begun is rolled back in the background, and the lock waits for
    /// that.
    pub(crate) fn begin<'f>(
        origin: Origin<'a, DB>,
        hold: &'f Arc<Hold>,
        spec: TxSpec,
        engine: &'f Arc<Engine>,
        fence: &'f Arc<Fence>,
        grace: Duration,
    ) -> BoxFuture<'f, Result<Self, Error>>
    where
        'a: 'f,
    {
        match origin {
            Origin::Pool(pool) => Box::pin(begin::begin(pool, hold, spec, engine, fence, grace)),
            Origin::Installed => {
                Box::pin(std::future::ready(Err(begin::failed(hold, "no pool was looked up"))))
            }
            Origin::Outer(connection) => Box::pin(async move {
                Joined::begin(connection, hold, spec).await.map(|joined| Tx(Inner::Joined(joined)))
            }),
        }
    }

    /// Commits. `Ok` only if the commit is known to have happened. Dropping the future does not stop it.
    pub(crate) fn commit(mut self) -> BoxFuture<'a, Result<(), Error>> {
        match &mut self.0 {
            Inner::Own(session) => match session.take() {
                Some(session) => Box::pin(commit::commit(session)),
                // `session` is taken by `commit`, `rollback` and `drop` only, each of which consumes the value.
                None => Box::pin(std::future::ready(Ok(()))),
            },
            Inner::Joined(_) => Box::pin(async move {
                match &mut self.0 {
                    Inner::Joined(joined) => joined.commit().await,
                    Inner::Own(_) => Ok(()),
                }
            }),
        }
    }

    /// Rolls back and resolves when the end is certain, or as far as it can be made so: whether all that was done in it
    /// is known to be undone. Dropping the future does not stop it.
    pub(crate) fn rollback(mut self) -> BoxFuture<'a, bool> {
        match &mut self.0 {
            Inner::Own(session) => match session.take() {
                Some(session) => Box::pin(session::roll_back(session)),
                None => Box::pin(std::future::ready(false)),
            },
            Inner::Joined(_) => Box::pin(async move {
                match &mut self.0 {
                    Inner::Joined(joined) => joined.undo().await,
                    Inner::Own(_) => false,
                }
            }),
        }
    }

    /// Whether it is a part of a transaction of the caller's, which decides whether it takes effect.
    pub(crate) fn is_joined(&self) -> bool {
        matches!(self.0, Inner::Joined(_))
    }

    /// What is known of it from outside, when it is one of its own.
    pub(crate) fn running(&self) -> Option<&Arc<Running<DB>>> {
        match &self.0 {
            Inner::Own(session) => session.as_ref().map(|session| session.running()),
            Inner::Joined(_) => None,
        }
    }

    /// Tells connections apart, for as long as they are in use.
    pub(crate) fn connection_id(&mut self) -> Option<usize> {
        self.connection().ok().map(|connection| connection_id::<DB>(connection))
    }

    fn own(session: Box<Session<DB>>) -> Self {
        Self(Inner::Own(Some(session)))
    }

    fn connection(&mut self) -> Result<&mut DB::Connection, Error> {
        match &mut self.0 {
            Inner::Own(Some(session)) => session.connection(),
            Inner::Own(None) => Err(Error::Closed),
            Inner::Joined(joined) => Ok(joined.connection()),
        }
    }

    /// The savepoint that all of the body's work comes after.
    fn savepoint(&self) -> Cow<'static, str> {
        match &self.0 {
            Inner::Own(_) => Cow::Borrowed(database::GUARD),
            Inner::Joined(joined) => Cow::Owned(joined.savepoint()),
        }
    }

    fn hold(&self) -> Option<&Arc<Hold>> {
        match &self.0 {
            Inner::Own(session) => session.as_ref().map(|session| session.hold()),
            Inner::Joined(joined) => Some(joined.hold()),
        }
    }
}

/// Tells connections apart, for as long as they are in use.
pub(crate) fn connection_id<DB: Database>(connection: &DB::Connection) -> usize {
    std::ptr::from_ref(connection).addr()
}

impl<DB: Database> Drop for Tx<'_, DB> {
    fn drop(&mut self) {
        if let Inner::Own(session) = &mut self.0
            && let Some(session) = session.take()
        {
            session::roll_back_in_background(session);
        }
    }
}

impl<DB: Database> fmt::Debug for Tx<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("hold", &self.hold()).finish_non_exhaustive()
    }
}
