//! The attribute of zklock.
