use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::{locker::Locker, zookeeper};

/// No lock at all: an ephemeral sequential node is made, and deleted again. What any lock of ZooKeeper needs at least,
/// and so what all are compared with.
#[derive(Clone)]
pub(super) struct Raw(Client);

impl Raw {
    pub(super) async fn connect(address: &str) -> anyhow::Result<Self> {
        Ok(Self(zookeeper::connect(address).await?))
    }
}

impl Locker for Raw {
    type Held = String;

    const MAKES_PATHS: bool = false;

    async fn prepare(&self, path: &str) -> anyhow::Result<()> {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for (end, _) in path.match_indices('/').skip(1).chain([(path.len(), "")]) {
            match self.0.create(&path[..end], b"", &options).await {
                Ok(_) | Err(Error::NodeExists) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn acquire(&self, path: &str) -> anyhow::Result<String> {
        let prefix = format!("{path}/c-");
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, sequence) = self.0.create(&prefix, b"", &options).await?;
        Ok(format!("{prefix}{sequence}"))
    }

    async fn release(&self, node: String) -> anyhow::Result<()> {
        Ok(self.0.delete(&node, None).await?)
    }
}
