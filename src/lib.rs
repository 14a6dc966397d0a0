//! One at a time, all or nothing.

#[doc(hidden)]
pub use zklock_runtime::private as __private;
pub use zklock_runtime::{
    Cause, Ensemble, Error, FencingToken, Guard, HeldLock, HoldPhase, Lock, LockPath, Locks, LocksBuilder,
    LostReason, QueueEntry, Snapshot, WaitingLock,
};
