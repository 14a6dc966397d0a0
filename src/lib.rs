//! One at a time, all or nothing: an attribute that runs an async function under a ZooKeeper lock and inside a database
//! transaction.
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # mod example {
//! use zklock::{
//!     Error, Locks,
//!     sqlx::{self, PgConnection, PgPool},
//!     zk_lock,
//! };
//!
//! #[zk_lock(path = "/orders/{id}", fair = true, timeout = "5s", transactional)]
//! async fn pay(id: i64, amount: i64, #[tx] tx: &mut PgConnection) -> Result<(), AppError> {
//!     sqlx::query("UPDATE orders SET paid = paid + $1 WHERE id = $2")
//!         .bind(amount)
//!         .bind(id)
//!         .execute(&mut *tx)
//!         .await?;
//!     Ok(())
//! }
//!
//! # async fn start(pool: PgPool) -> Result<(), AppError> {
//! let locks = Locks::builder("zk://10.0.0.1,10.0.0.2,10.0.0.3/shop").pool(pool).connect().await?;
//! locks.install(); // what `#[zk_lock]` uses
//! pay(42, 100).await?; // callers never see the `tx` parameter
//! # Ok(()) }
//!
//! enum AppError {
//!     Lock(Error),
//!     Database(sqlx::Error),
//! }
//! # impl From<Error> for AppError { fn from(error: Error) -> Self { Self::Lock(error) } }
//! # impl From<sqlx::Error> for AppError { fn from(error: sqlx::Error) -> Self { Self::Database(error) } }
//! # }
//! ```
//!
//! For each order one call at a time is in `pay`, among all processes. What it writes is committed before the lock is
//! released, or not at all: when it fails, panics, is dropped, runs over its `timeout`, or when the lock is lost.
//!
//! - [`zk_lock`] lists the arguments of the attribute.
//! - [`Locks`] is the connection; [`Locks::memory`] gives the same semantics in one process, with no server.
//! - [`Guard`] is a lock that is held, for code without the attribute.
//! - [`Error`] says what happened and whether it had an effect. Only [`Error::CommitUnknown`] and
//!   [`Error::TransactionEnded`] leave that open.
//! - [`FencingToken`] protects what is not in the transaction: see below.
//!
//! # What is promised
//!
//! Tests are named after these. What each rests on is on the page
//! [promises](https://github.com/zklock/zklock/blob/main/docs/promises.md).
//!
//! | | |
//! |---|---|
//! | G1 | **One holder.** Two grants of one path never both say [`is_held`](Guard::is_held). |
//! | G2 | **No stale commit.** The transaction of a superseded holder cannot commit. |
//! | G3 | **No lock, no body.** |
//! | G4 | **Order:** grant, BEGIN, body, COMMIT acknowledged, release. |
//! | G5 | **Every exit releases, once.** |
//! | G6 | **Overrun.** At `timeout` the body is stopped, rolled back, the lock released, in that order. |
//! | G7 | **Loss.** When the lock may be gone, the body is stopped and rolled back. |
//! | G8 | **No orphan** contender outlives its task by more than a couple of seconds while connected. |
//! | G9 | **Fair means FIFO** across all processes. |
//! | G10 | **Reentrant by task**; opposite orders are an error within a process, and bounded across processes. |
//! | G11 | **Keys never alias**, whatever the values. |
//! | G12 | **Honest outcome.** `Ok` only if the commit is known to have happened. |
//! | G13 | **Bounded.** `wait` bounds everything up to the grant. |
//!
//! # Beyond the transaction
//!
//! A holder that was paused for longer than its session may go on after the next one has begun. Its transaction is
//! refused; a file, a queue or an HTTP service that it talks to has to look at the token, which grows with every grant:
//!
//! ```
//! use zklock::{Error, Guard, Locks, zk_lock};
//!
//! #[zk_lock(path = "/reports/{day}")]
//! async fn publish(day: &str, #[guard] guard: &Guard) -> Result<String, Error> {
//!     // The receiver keeps the highest value that it has seen for this report, and refuses lower ones.
//!     Ok(format!("Fencing-Token: {}", guard.fencing_token()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let locks = Locks::memory();
//! let first = locks.scope(publish("2026-11-30")).await?;
//! let second = locks.scope(publish("2026-11-30")).await?;
//! assert!(second > first);
//! # Ok(()) }
//! ```
//!
//! # What can be watched
//!
//! Each call has a `tracing` span `zk_lock` (target `zklock`, level info) with the fields `path`, `kind` (`fair`,
//! `unfair`), `function`, `token`, `wait` and `held` in microseconds, and `outcome`: `committed`, `rolled back`, `released`,
//! `joined`, or the [kind](Error::kind) of the error. Overruns are warnings, a body that does not yield is an error, both
//! with function, path and token. [`Locks::snapshot`] shows what this process holds and waits for, [`Locks::inspect`]
//! the queue of a path as the server sees it.
//!
//! # Features
//!
//! `zookeeper` (default), `postgres`, `mysql` (MariaDB too) and `sqlite`. They only add. [`sqlx`] is
//! re-exported with any of the databases, so that versions agree; for its derives, its macros or TLS add
//! `sqlx = { version = "0.9", features = [..] }` beside zklock.

#[cfg(feature = "sqlx")]
pub use sqlx;
pub use zklock_macros::zk_lock;
#[cfg(feature = "zookeeper")]
pub use zklock_runtime::Acl;
#[doc(hidden)]
pub use zklock_runtime::private as __private;
pub use zklock_runtime::{
    Cause, Commits, Deletes, Ensemble, Error, FencingToken, FromLockError, Guard, HeldLock, HoldPhase, Lock,
    LockPath, Locks, LocksBuilder, LostReason, QueueEntry, Snapshot, WaitingLock,
};
#[cfg(feature = "sqlx")]
pub use zklock_runtime::{Database, TxParam, fence_table_sql};

/// The examples of the README compile.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../README.md")]
mod readme {}
