use std::{fmt, sync::Arc};

use crate::error::Error;

/// Names one lock: an absolute path such as `/orders/42`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockPath(Arc<str>);

impl LockPath {
    /// Takes `path` as it stands.
    pub fn new(path: &str) -> Result<Self, Error> {
        // Placeholder: the rules come with the template.
        Ok(Self(path.into()))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<&str> for LockPath {
    type Error = Error;

    fn try_from(path: &str) -> Result<Self, Error> {
        Self::new(path)
    }
}
