//! What the attribute of zklock runs on.
pub mod private;
mod clock;
mod error;
mod options;
mod path;
mod token;
pub use error::{Cause, Error, LostReason};
pub use path::LockPath;
pub use token::{Ensemble, FencingToken};
