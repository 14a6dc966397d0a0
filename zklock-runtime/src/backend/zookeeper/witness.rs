//! Which session a connection is in.
//!
//! When a connection is made again the server may give it another session, and the library does not say so: its own
//! record of the id is that of the first connection. Heartbeats that are answered then say nothing of the session
//! that has our nodes. So the first session makes an ephemeral node, its witness, that no other one can have, and
//! each new connection is asked for it.
//!
//! Asking for just any node that we know of would not do: some may have been made in the new session already.

use uuid::Uuid;
use zookeeper_client as zk;

use super::{
    Config,
    answer::{Kind, kind},
    ensemble::Home,
    session::Session,
};

/// The session that a client is in, for certain if it has a witness.
#[derive(Debug)]
pub(super) struct Identity {
    /// The session's number.
    pub(super) id: i64,
    /// As seen from the root; `None` where none may be made.
    witness: Option<String>,
}

/// Makes the witness, below the node that has the id of the ensemble.
pub(super) async fn call(root: &zk::Client, config: &Config, home: &Home) -> Result<Identity, zk::Error> {
    let witness = format!("{}/session-{}", home.node, Uuid::new_v4());
    let options = zk::CreateMode::Ephemeral.with_acls(config.acl.acls());
    match root.create(&witness, b"", &options).await {
        Ok((stat, _)) => Ok(Identity { id: stat.ephemeral_owner, witness: Some(witness) }),
        // Somebody else made the node above it, and let nobody create there.
        Err(error) if kind(&error) == Kind::Refusal && error != zk::Error::Throttled => {
            Ok(Identity { id: root.session_id().0, witness: None })
        }
        Err(error) => Err(error),
    }
}

/// Whether the connection is to the session that it was to at first. What cannot be told counts as a change: that
/// costs the holds, and the other would cost what they guard.
pub(super) async fn is_same(session: &Session, client: &zk::Client) -> Result<bool, zk::Error> {
    let root = client.clone().chroot("/").unwrap_or_else(|client| client);
    match owner(&session.identity, &root).await {
        Ok(owner) => Ok(proves(session.identity.id, owner)),
        // Before 3.6 a server does not know the question.
        Err(zk::Error::Unimplemented) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Who owns a node that the server says is this connection's; `None` if it has none.
async fn owner(identity: &Identity, root: &zk::Client) -> Result<Option<i64>, zk::Error> {
    if let Some(witness) = &identity.witness
        && root.list_ephemerals(witness).await?.contains(witness)
    {
        return Ok(Some(identity.id));
    }
    // There is none, or somebody deleted it; any other node tells as well whose it is, and so whose the connection is.
    for path in root.list_ephemerals("/").await? {
        if let Some(stat) = root.check_stat(&path).await? {
            return Ok(Some(stat.ephemeral_owner));
        }
    }
    Ok(None)
}

/// Whether a connection is in the session `id`, going by the owner of one node that the server lists as this
/// connection's own. Without such a node nothing is proven.
pub(super) fn proves(id: i64, owner: Option<i64>) -> bool {
    owner == Some(id)
}
