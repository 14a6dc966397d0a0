//! One at a time, all or nothing.

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
