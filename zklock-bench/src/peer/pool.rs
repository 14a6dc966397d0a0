use std::sync::{Mutex, PoisonError};

/// Connections that nobody uses at the moment.
pub(super) struct Pool<C>(Mutex<Vec<C>>);

impl<C> Pool<C> {
    pub(super) fn take(&self) -> Option<C> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(super) fn put(&self, connection: C) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}

impl<C> Default for Pool<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}
