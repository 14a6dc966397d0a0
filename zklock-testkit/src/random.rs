use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A number that other threads and processes are not going to draw: the standard library seeds each
/// `RandomState` from the operating system. Good for names and ports, not for secrets.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
