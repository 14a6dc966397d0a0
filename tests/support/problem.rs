use std::fmt;

use zklock::sqlx;

/// What the annotated functions of these tests fail with, as an application's error type would be.
#[derive(Debug)]
pub(crate) enum Problem {
    Lock(zklock::Error),
    Database(sqlx::Error),
    /// The body's own.
    Own(&'static str),
}

impl From<zklock::Error> for Problem {
    fn from(error: zklock::Error) -> Self {
        Self::Lock(error)
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => write!(f, "{error}"),
            Self::Database(error) => write!(f, "{error}"),
            Self::Own(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Problem {}
