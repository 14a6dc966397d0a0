use std::sync::OnceLock;

use super::Validity;
use crate::path::LockPath;

/// What the fence row of a hold is keyed by: the path as all processes on all chroots would write it. Made when a
/// transaction asks for it, since most holds have none.
#[derive(Default)]
pub(crate) struct FenceKey(OnceLock<Box<str>>);

impl FenceKey {
    pub(super) fn of(&self, path: &LockPath, validity: Option<&Validity>) -> &str {
        let chroot = validity.map_or("", Validity::chroot);
        self.0.get_or_init(|| format!("{chroot}{path}").into())
    }
}

/// One that is no path below the chroot.
#[cfg(test)]
impl From<&str> for FenceKey {
    fn from(key: &str) -> Self {
        Self(OnceLock::from(Box::from(key)))
    }
}
