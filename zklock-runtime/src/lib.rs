//! What the attribute of zklock runs on. Use the crate `zklock`, which re-exports all of it.

#[doc(hidden)]
pub mod private;

mod acquire;
mod backend;
mod builder;
mod clock;
mod context;
mod engine;
mod error;
#[cfg(feature = "sqlx")]
mod fences;
mod guard;
#[cfg_attr(not(feature = "sqlx"), allow(dead_code, reason = "no database, no transaction"))]
mod hold;
mod lock;
mod locks;
mod observe;
mod options;
mod outcome;
mod path;
mod reaper;
mod timers;
mod token;
#[cfg(feature = "sqlx")]
mod transaction;
mod waits;

#[cfg(feature = "zookeeper")]
pub use backend::zookeeper::Acl;
pub use backend::{Deletes, QueueEntry};
pub use builder::LocksBuilder;
pub use error::{Cause, Error, LostReason};
pub use guard::Guard;
pub use lock::Lock;
pub use locks::Locks;
pub use observe::{HeldLock, HoldPhase, Snapshot, WaitingLock};
pub use outcome::{Commits, FromLockError};
pub use path::LockPath;
pub use token::{Ensemble, FencingToken};
#[cfg(feature = "sqlx")]
pub use transaction::{Database, TxParam, fence_table_sql};
