//! What the attribute of zklock runs on.
mod backend;
mod clock;
mod engine;
mod error;
mod hold;
mod options;
mod path;
pub mod private;
mod token;
#[cfg(feature = "sqlx")]
mod transaction;
pub use backend::QueueEntry;
pub use error::{Cause, Error, LostReason};
pub use path::LockPath;
pub use token::{Ensemble, FencingToken};
