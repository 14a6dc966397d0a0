use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::OwnedMutexGuard;

/// Lets one task of this process at a time contend for the plain node of a path, the others queued up behind it
/// here: else all of them would watch the node and run for it when it goes.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>>);

/// The turn of one task.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    path: Arc<str>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the turn. Cancel-safe.
    pub(super) async fn take(self: &Arc<Self>, path: &str) -> Turn {
        let path: Arc<str> = path.into();
        let mutex =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(path.clone()).or_default().clone();
        // Made before the wait, so that a cancelled one cleans up too.
        let mut turn = Turn { turns: self.clone(), path, guard: None };
        turn.guard = Some(mutex.lock_owned().await);
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.guard = None;
        let mut all = self.turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Every other user has a clone, and takes it under this lock.
        if all.get(&self.path).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            all.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_and_nothing_is_left() {
        let turns = Arc::new(Turns::default());
        let first = turns.take("/a").await;
        let other = turns.take("/b").await;
        let mut second = Box::pin(turns.take("/a"));
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(second.as_mut().poll(cx).is_pending())).await
        );
        drop(other);
        drop(first);
        drop(second.await);
        assert!(turns.0.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_nothing() {
        let turns = Arc::new(Turns::default());
        let first = turns.take("/a").await;
        let mut second = Box::pin(turns.take("/a"));
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(second.as_mut().poll(cx).is_pending())).await
        );
        drop(first);
        drop(second);
        assert!(turns.0.lock().unwrap().is_empty());
    }
}
