use std::time::Duration;

use uuid::Uuid;

/// Pauses between tries, longer from try to try and drawn at random over the whole range ("full jitter"), so that
/// those who failed together do not come back together.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// For a request whose answer was lost: the connection is being made again meanwhile.
    pub(super) fn of_request() -> Self {
        Self::new(Duration::from_millis(10), Duration::from_secs(1))
    }

    pub(super) async fn pause(&mut self) {
        let most = u64::try_from(self.next.as_micros()).unwrap_or(u64::MAX).max(1);
        self.next = (self.next * 2).min(self.longest);
        // The random bits of a version 4 uuid's end; no need for a generator of numbers.
        let drawn = Uuid::new_v4().as_u64_pair().1 & 0x3fff_ffff_ffff_ffff;
        tokio::time::sleep(Duration::from_micros(drawn % most)).await;
    }
}
