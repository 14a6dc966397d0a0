use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

use super::{locker::Locker, zookeeper};

/// The lock that comes with zookeeper-client.
#[derive(Clone)]
pub(super) struct ClientLock(Client);

impl ClientLock {
    pub(super) async fn connect(address: &str) -> anyhow::Result<Self> {
        Ok(Self(zookeeper::connect(address).await?))
    }
}

impl Locker for ClientLock {
    type Held = OwnedLockClient;

    async fn acquire(&self, path: &str) -> anyhow::Result<OwnedLockClient> {
        let prefix = LockPrefix::new_curator(path, "lock-")?;
        let ancestors = CreateMode::Container.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(ancestors)?;
        Ok(self.0.lock(prefix, b"", options).await?.into_owned())
    }

    /// Dropping is the only way: it deletes in the background.
    async fn release(&self, held: OwnedLockClient) -> anyhow::Result<()> {
        drop(held);
        Ok(())
    }

    async fn settled(&self) -> anyhow::Result<()> {
        // Answered after all that was asked before.
        self.0.check_stat("/").await?;
        Ok(())
    }
}
