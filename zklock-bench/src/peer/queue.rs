use anyhow::Context as _;
use tokio::task::JoinSet;

use super::locker::Locker;
use crate::protocol::{DRAINED_PATH, Done};

/// Those who wait for one lock, and the hold that they wait for.
pub(super) struct Queue<L: Locker> {
    held: Option<L::Held>,
    waiters: JoinSet<anyhow::Result<()>>,
}

impl<L: Locker> Queue<L> {
    pub(super) async fn hold(&mut self, locker: &L) -> anyhow::Result<Done> {
        locker.prepare(DRAINED_PATH).await?;
        self.held = Some(locker.acquire_for_long(DRAINED_PATH).await?);
        Ok(Done {})
    }

    pub(super) async fn release(&mut self, locker: &L) -> anyhow::Result<Done> {
        locker.release(self.held.take().context("nothing is held")?).await?;
        Ok(Done {})
    }

    /// Returns when all wait, as far as that can be told from here.
    pub(super) async fn start(&mut self, locker: &L, tasks: usize) -> anyhow::Result<Done> {
        for _ in 0..tasks {
            let locker = locker.clone();
            self.waiters.spawn(async move {
                let held = locker.acquire(DRAINED_PATH).await?;
                locker.release(held).await
            });
        }
        while locker.waiting().is_some_and(|waiting| waiting < tasks) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        Ok(Done {})
    }

    pub(super) async fn drained(&mut self) -> anyhow::Result<Done> {
        while let Some(waiter) = self.waiters.join_next().await {
            waiter??;
        }
        Ok(Done {})
    }
}

impl<L: Locker> Default for Queue<L> {
    fn default() -> Self {
        Self { held: None, waiters: JoinSet::new() }
    }
}
