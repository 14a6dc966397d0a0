//! What the measured is made into.

mod tables;

pub(crate) use self::tables::{number, tables};
