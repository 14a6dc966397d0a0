use std::{
    collections::hash_map::RandomState,
    future::{Future, poll_fn},
    hash::{BuildHasher, Hasher},
    pin::pin,
    task::Poll,
};

/// When a future that was polled often enough is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DropAt {
    /// Right after its last poll.
    Once,
    /// When it asks to be polled again: what it waits for has happened, and it does not know.
    Wake,
}

/// Polls `future` as often as it asks, at most `polls` times, then drops it. `None` if it had not ended by then.
pub(crate) async fn poll_times<F: Future>(polls: usize, drop_at: DropAt, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match (future.as_mut().poll(context), drop_at) {
            (Poll::Ready(output), _) => Poll::Ready(Some(output)),
            (Poll::Pending, DropAt::Once) if left == 0 => Poll::Ready(None),
            (Poll::Pending, _) => Poll::Pending,
        }
    })
    .await
}

/// Numbers that differ from run to run; the seed is there to be told when a test fails.
#[derive(Debug)]
pub(crate) struct Random {
    pub(crate) seed: u64,
    state: u64,
}

impl Random {
    pub(crate) fn new() -> Self {
        let seed = RandomState::new().build_hasher().finish() | 1;
        Self { seed, state: seed }
    }

    /// A number below `bound`, by xorshift.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % bound
    }
}
