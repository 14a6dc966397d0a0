use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::task::yield_now;
use zklock::{FencingToken, Guard};

/// What a lock protects: it notices two holders at a time, lost updates, and tokens that do not grow.
#[derive(Debug, Default)]
pub(crate) struct Register {
    occupied: AtomicBool,
    value: AtomicU64,
    last: Mutex<Option<FencingToken>>,
}

impl Register {
    /// Reads, gives way, and writes what was read plus one. Call it while `guard` is held.
    pub(crate) async fn increment(&self, guard: &Guard) {
        assert!(!self.occupied.swap(true, Ordering::SeqCst), "two holders at a time");
        let token = guard.fencing_token();
        let last = self.last.lock().expect("no panic under it").replace(token);
        assert!(last.is_none_or(|last| last < token), "token {token} was granted after {last:?}");
        let value = self.value.load(Ordering::SeqCst);
        yield_now().await;
        self.value.store(value + 1, Ordering::SeqCst);
        assert!(guard.is_held(), "the guard must outlive what it protects");
        self.occupied.store(false, Ordering::SeqCst);
    }

    pub(crate) fn value(&self) -> u64 {
        self.value.load(Ordering::SeqCst)
    }
}
