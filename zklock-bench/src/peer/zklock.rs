use std::time::Duration;

use zklock::{Guard, Lock, Locks};

use super::{locker::Locker, zookeeper};

/// One `Locks`, as a process has it.
#[derive(Clone)]
pub(super) struct Zklock {
    locks: Locks,
    fair: bool,
}

impl Zklock {
    pub(super) async fn connect(address: &str, fair: bool) -> anyhow::Result<Self> {
        let locks = Locks::builder(&format!("zk://{address}"))
            .session_timeout(zookeeper::SESSION)
            // The longest queues take long.
            .default_wait(None)
            .connect()
            .await?;
        Ok(Self { locks, fair })
    }

    fn lock(&self, path: &str) -> Lock {
        self.locks.mutex(path).fair(self.fair)
    }
}

impl Locker for Zklock {
    type Held = Guard;

    async fn acquire(&self, path: &str) -> anyhow::Result<Guard> {
        Ok(self.lock(path).acquire().await?)
    }

    async fn acquire_for_long(&self, path: &str) -> anyhow::Result<Guard> {
        Ok(self.lock(path).timeout(None).acquire().await?)
    }

    /// As annotated functions do: nobody waits for the delete.
    async fn release(&self, guard: Guard) -> anyhow::Result<()> {
        guard.check()?;
        drop(guard);
        Ok(())
    }

    async fn settled(&self) -> anyhow::Result<()> {
        while self.locks.snapshot().deletes.pending > 0 {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        Ok(())
    }

    fn place(&self, guard: &Guard) -> Option<u128> {
        let bytes = guard.fencing_token().to_bytes();
        self.fair.then(|| bytes.iter().fold(0, |place, &byte| place << 8 | u128::from(byte)))
    }

    fn waiting(&self) -> Option<usize> {
        Some(self.locks.snapshot().waiting.len())
    }

    async fn close(self) {
        self.locks.close().await;
    }
}
