//! In-process locks.
