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

/// The node at the root of the server that holds the id of the ensemble: written once by whoever comes first, and
/// never changed. When the servers' data is wiped it is gone too, and the next id is another one, so that fence rows
/// written under the old one are not compared with tokens that start from zero again.
///
/// At the root, since the same lock may be named from several chroots, and its tokens must compare whichever it was
/// named from. Only where nothing may be read or written at the root is there one below the chroot instead; all who
/// share a database must then use the same chroot, and have the same rights.
///
/// A leading `_c_` is what contenders start with, and no segment of a lock path may; so no lock can stand here.
pub(super) const NODE: &str = "/_c_zklock_ensemble";

/// The id, and the node that it was read from, as seen from the root.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) ensemble: Ensemble,
    pub(super) node: String,
}

/// Reads the id, or makes it. A lost answer is an error of the whole: opening the session is tried again.
pub(super) async fn read(root: &zk::Client, config: &Config) -> Result<Home, Error> {
    let chroot = config.address.chroot();
    let mut node = NODE.to_owned();
    let mut read = read_at(root, config, &node).await;
    if read == Err(zk::Error::NoAuth) && !chroot.is_empty() {
        node = format!("{chroot}{NODE}");
        read = read_at(root, config, &node).await;
    }
    match read {
        Ok(ensemble) => Ok(Home { ensemble, node }),
        Err(error) => Err(failed(config, &node, error)),
    }
}

async fn read_at(root: &zk::Client, config: &Config, node: &str) -> Result<Ensemble, zk::Error> {
    // Twice, for the one that is made between our read and our write.
    for _ in 0..2 {
        match root.get_data(node).await {
            Ok((data, _)) => {
                let id = std::str::from_utf8(&data).ok().and_then(|text| Uuid::try_parse(text.trim()).ok());
                return id.map(Ensemble::new).ok_or(zk::Error::BadArguments(&"not an id"));
            }
            Err(zk::Error::NoNode) => {}
            Err(error) => return Err(error),
        }
        match create(root, config, node, Ensemble::new(Uuid::new_v4())).await {
            Ok(()) | Err(zk::Error::NodeExists) => {}
            Err(error) => return Err(error),
        }
    }
    // A follower that lags behind the write that we were told of.
    root.sync(node).await?;
    Err(zk::Error::ConnectionLoss)
}

fn failed(config: &Config, node: &str, error: zk::Error) -> Error {
    match error {
        zk::Error::NoAuth => Error::Refused {
            path: None,
            reason: format!(
                "node \"{node}\", which holds the id of the ensemble, can neither be read nor created; grant CREATE on \
                 \"/\" and READ on \"{NODE}\", or create that node once with a uuid as its data"
            ),
        },
        zk::Error::BadArguments(_) => Error::Backend {
            path: None,
            source: Cause::new(format!(
                "node \"{node}\" does not hold the id of the ensemble; delete it if nothing else uses it"
            )),
        },
        error if kind(&error) == Kind::Refusal => refused(None, "CREATE", node, error),
        error => config.unavailable(Some(error)),
    }
}

/// Writes the id again after somebody deleted the node while our session lives: the ensemble is still the same.
pub(super) async fn restore(root: &zk::Client, config: &Config, home: &Home) -> Result<(), zk::Error> {
    match create(root, config, &home.node, home.ensemble).await {
        Ok(()) | Err(zk::Error::NodeExists) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn create(root: &zk::Client, config: &Config, node: &str, ensemble: Ensemble) -> Result<(), zk::Error> {
    let mut acls = config.acl.acls().to_vec();
    // Every client must be able to read it, whatever its credentials.
    acls.push(zk::Acl::new(zk::Permission::READ, zk::AuthId::anyone()));
    let options = zk::CreateMode::Persistent.with_acls(zk::Acls::new(&acls));
    let id = Uuid::from_bytes(ensemble.to_bytes()).to_string();
    root.create(node, id.as_bytes(), &options).await.map(drop)
}
