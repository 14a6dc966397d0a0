use std::sync::Arc;

use zookeeper_client as zk;

use super::{
    answer::{Setback, refused},
    ensemble,
    session::Session,
};
use crate::path::LockPath;

/// Creates the nodes above `node`, as containers: the server takes them away when nothing is below them any more.
/// Cancel-safe.
pub(super) async fn make(session: &Arc<Session>, path: &LockPath, node: &str) -> Result<(), Setback> {
    let parent = match node.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    };
    make_directory(session, path, parent).await
}

/// Creates `directory` and what is missing above it.
pub(super) async fn make_directory(
    session: &Arc<Session>,
    path: &LockPath,
    directory: &str,
) -> Result<(), Setback> {
    let config = &session.config;
    let made = session
        .ask(|client| async move {
            let result = make_below_chroot(&client, directory, config.acl.acls()).await;
            if result != Err(zk::Error::NoNode) || config.address.chroot().is_empty() {
                return result;
            }
            // Somebody deleted the chroot, and maybe the id of the ensemble with it.
            let root = (*client).clone().chroot("/").map_err(|_| zk::Error::NoNode)?;
            root.mkdir(config.address.chroot(), &zk::CreateMode::Persistent.with_acls(config.acl.acls()))
                .await?;
            ensemble::restore(&root, config, &session.home).await?;
            make_below_chroot(&client, directory, config.acl.acls()).await
        })
        .await?;
    match made {
        // Deleted again already: whoever asks tries again.
        Ok(()) | Err(zk::Error::NoNode) => Ok(()),
        Err(error) => {
            let above = format!("{}{directory}", config.address.chroot());
            let above = match above.trim_end_matches('/').rsplit_once('/') {
                Some(("", _)) | None => "/",
                Some((above, _)) => above,
            };
            Err(refused(Some(path), "CREATE", above, error).into())
        }
    }
}

async fn make_below_chroot(
    client: &zk::Client,
    directory: &str,
    acls: zk::Acls<'_>,
) -> Result<(), zk::Error> {
    if directory == "/" {
        // The chroot itself: only to be looked for.
        return if client.check_stat("/").await?.is_some() { Ok(()) } else { Err(zk::Error::NoNode) };
    }
    client.mkdir(directory, &zk::CreateMode::Container.with_acls(acls)).await
}
