use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Bounds how many lists of one directory, and how many questions after single nodes, are on their way at a time.
///
/// Answers come in the order of the questions. Where a thousand tasks of a process enter one queue at a time, as many
/// lists of a thousand names would come before the answer to the next heartbeat, and what the session holds would be
/// lost meanwhile although the server is well.
#[derive(Debug)]
pub(super) struct Looks {
    lists: [Semaphore; Self::STRIPES],
    nodes: Semaphore,
}

impl Looks {
    /// Directories that happen to share one wait for each other, which costs no more than time.
    const STRIPES: usize = 64;
    const AT_A_TIME: usize = 2;
    const NODES: usize = 64;

    /// Resolves when `directory` may be listed; to be kept until the answer is there. First come, first served.
    /// Cancel-safe.
    pub(super) async fn turn(&self, directory: &str) -> Option<SemaphorePermit<'_>> {
        let mut hasher = DefaultHasher::new();
        directory.hash(&mut hasher);
        let stripe = usize::try_from(hasher.finish() % Self::STRIPES as u64).unwrap_or(0);
        // Never closed.
        self.lists[stripe].acquire().await.ok()
    }

    /// The same for a node.
    pub(super) async fn at_a_node(&self) -> Option<SemaphorePermit<'_>> {
        self.nodes.acquire().await.ok()
    }
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            lists: std::array::from_fn(|_| Semaphore::new(Self::AT_A_TIME)),
            nodes: Semaphore::new(Self::NODES),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Poll};

    use super::*;

    #[tokio::test]
    async fn a_third_list_of_a_directory_waits_and_those_of_others_do_not() {
        let looks = Looks::default();
        let (first, _second) = (looks.turn("/a").await, looks.turn("/a").await);
        let mut third = pin!(looks.turn("/a"));
        let is_there = std::future::poll_fn(|context| Poll::Ready(third.as_mut().poll(context).is_ready()));
        assert!(!is_there.await);
        // Not all of them share the place of the first.
        let mut others = 0;
        for number in 0..10 {
            let path = format!("/{number}");
            let other = pin!(looks.turn(&path)).poll(&mut noop()).is_ready();
            others += usize::from(other);
        }
        assert!(others > 0);
        drop(first);
        assert!(third.await.is_some());
    }

    #[tokio::test]
    async fn only_so_many_ask_after_a_node_at_a_time() {
        let looks = Looks::default();
        let mut asking = Vec::new();
        while let Poll::Ready(turn) = pin!(looks.at_a_node()).poll(&mut noop()) {
            asking.push(turn.unwrap());
            assert!(asking.len() <= Looks::NODES);
        }
        assert_eq!(asking.len(), Looks::NODES);
        asking.pop();
        assert!(looks.at_a_node().await.is_some());
    }

    fn noop() -> std::task::Context<'static> {
        std::task::Context::from_waker(std::task::Waker::noop())
    }
}
