use std::time::Duration;

use anyhow::Context as _;
use zookeeper_client::Client;

/// Of all contestants: no stall of a busy machine may cost a session.
pub(super) const SESSION: Duration = Duration::from_secs(30);

/// A session as that of zklock, below the contestant's chroot.
pub(super) async fn connect(address: &str) -> anyhow::Result<Client> {
    let (servers, chroot) = address.split_once('/').context("the address has no chroot")?;
    let client = Client::connector().with_session_timeout(SESSION).connect(servers).await?;
    client.chroot(format!("/{chroot}")).map_err(|_| anyhow::anyhow!("'/{chroot}' is no chroot"))
}
