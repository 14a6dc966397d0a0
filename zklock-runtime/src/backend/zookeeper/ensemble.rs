use uuid::Uuid;
use zookeeper_client as zk;

use super::{
    Config,
    answer::{Kind, kind, refused},
};
use crate::{
    error::{Cause, Error},
    token::Ensemble,
};

/// The node, below the chroot, that holds the id of the ensemble: written once by whoever comes first, and never
/// changed. When the servers' data is wiped it is gone too, and the next id is another one, so that fence rows
/// written under the old one are not compared with tokens that start from zero again.
///
/// A leading `_c_` is what contenders start with, and no segment of a lock path may; so no lock can stand here.
pub(super) const NODE: &str = "/_c_zklock_ensemble";

/// Reads the id, or makes it. A lost answer is an error of the whole: opening the session is tried again.
pub(super) async fn read(client: &zk::Client, config: &Config) -> Result<Ensemble, zk::Error> {
    // Twice, for the one that is made between our read and our write.
    for _ in 0..2 {
        match client.get_data(NODE).await {
            Ok((data, _)) => {
                let id = std::str::from_utf8(&data).ok().and_then(|text| Uuid::try_parse(text.trim()).ok());
                return id.map(Ensemble::new).ok_or(zk::Error::BadArguments(&"not an id"));
            }
            Err(zk::Error::NoNode) => {}
            Err(error) => return Err(error),
        }
        match create(client, config, Ensemble::new(Uuid::new_v4())).await {
            Ok(()) | Err(zk::Error::NodeExists) => {}
            Err(error) => return Err(error),
        }
    }
    // A follower that lags behind the write that we were told of.
    client.sync(NODE).await?;
    Err(zk::Error::ConnectionLoss)
}

/// What opening the session failed with when [`read`] did.
pub(super) fn error(config: &Config, error: zk::Error) -> Error {
    let chroot = config.address.chroot();
    let node = format!("{chroot}{NODE}");
    match error {
        zk::Error::NoAuth => Error::Refused {
            path: None,
            reason: format!(
                "node \"{node}\", which holds the id of the ensemble, can neither be read nor created; grant CREATE on \
                 \"{}\" and READ on the node, or create it once with a uuid as its data",
                if chroot.is_empty() { "/" } else { chroot }
            ),
        },
        zk::Error::BadArguments(_) => Error::Backend {
            path: None,
            source: Cause::new(format!(
                "node \"{node}\" does not hold the id of the ensemble; delete it if nothing else uses it"
            )),
        },
        error if kind(&error) == Kind::Refusal => refused(None, "CREATE", &node, error),
        error => config.unavailable(Some(error)),
    }
}

/// Writes the id again after somebody deleted the node while our session lives: the ensemble is still the same.
pub(super) async fn restore(
    client: &zk::Client,
    config: &Config,
    ensemble: Ensemble,
) -> Result<(), zk::Error> {
    match create(client, config, ensemble).await {
        Ok(()) | Err(zk::Error::NodeExists) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn create(client: &zk::Client, config: &Config, ensemble: Ensemble) -> Result<(), zk::Error> {
    let mut acls = config.acl.acls().to_vec();
    // Every client must be able to read it, whatever its credentials.
    acls.push(zk::Acl::new(zk::Permission::READ, zk::AuthId::anyone()));
    let options = zk::CreateMode::Persistent.with_acls(zk::Acls::new(&acls));
    let id = Uuid::from_bytes(ensemble.to_bytes()).to_string();
    client.create(NODE, id.as_bytes(), &options).await.map(drop)
}
