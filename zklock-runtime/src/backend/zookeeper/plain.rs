use std::sync::Arc;

use tracing::debug;
use uuid::Uuid;
use zookeeper_client as zk;

use super::{
    answer::{Kind, Setback, kind, refused},
    attempt::{Attempt, Stage},
    backoff::Backoff,
    contender::{OwnNode, Place},
    group::Created,
    nodes::Tag,
    parents,
    session::Session,
    turns::Turns,
};
use crate::{
    clock::Tick,
    error::{Error, LostReason},
    path::LockPath,
};

/// Runs for the plain node of a `fair = false` lock: whoever creates it holds, and the outlet is told. Dropping the future
/// withdraws.
pub(super) async fn acquire(attempt: &Attempt<'_>, turns: &Arc<Turns>) -> Result<(), Setback> {
    let session = attempt.session;
    let path = &attempt.request.path;
    let node = attempt.node();
    // Others of this process are contending: they say who holds it soon enough.
    attempt.progress.is(Stage::Queueing);
    // A single try does not wait for them: it adds one request, and watches nothing.
    let _turn = if attempt.tries_once() { None } else { Some(turns.take(node).await) };
    let mut backoff = Backoff::of_request();
    let mut round = 0_u32;
    loop {
        attempt.progress.is(Stage::Asking);
        round += 1;
        if round > 3 {
            backoff.pause().await;
        }
        // A new one each time: what an earlier try has left behind must not be taken for this one's.
        let uuid = Uuid::new_v4();
        let birth = birth(session.clone(), node.to_owned(), uuid, attempt.tag(uuid));
        match session.handle.spawn(birth).await.map_err(|_| Setback::Failed(Error::Closed))?? {
            Birth::Born(own) => {
                if hold(attempt, own, uuid).await? {
                    return Ok(());
                }
            }
            Birth::Refused(zk::Error::NodeExists) => {
                if wait(attempt).await? {
                    round = 0;
                }
            }
            Birth::Refused(zk::Error::NoNode) => parents::make(session, path, node).await?,
            Birth::NotMade | Birth::Refused(zk::Error::Throttled) => {}
            Birth::Refused(error) => {
                let above = attempt.full(node.rsplit_once('/').map_or("/", |(above, _)| above));
                return Err(refused(Some(path), "CREATE", &above, error).into());
            }
        }
    }
}

/// Grants what was created. False: it is gone again.
async fn hold(attempt: &Attempt<'_>, mut own: OwnNode, uuid: Uuid) -> Result<bool, Setback> {
    let session = attempt.session;
    let node = own.node().clone();
    let mut claim = attempt.claim(uuid);
    loop {
        match claim.grant(own) {
            Ok(()) => return Ok(true),
            Err(back) => (claim, own) = back,
        }
        // By now the server may have ended the session: look again once it has not.
        session.stands().await?;
        let path = &*node.path;
        match session.ask(|client| async move { client.check_stat(path).await }).await? {
            Ok(Some(stat)) if stat.czxid == node.czxid => {}
            _ => {
                own.is_gone();
                return Ok(false);
            }
        }
    }
}

/// Waits until the node that stands there may be gone. False: it was, before it could be watched.
async fn wait(attempt: &Attempt<'_>) -> Result<bool, Setback> {
    let session = attempt.session;
    let path = &attempt.request.path;
    let node = attempt.node();
    let (stat, holder, watcher) =
        match session.ask(|client| async move { client.get_and_watch_data(node).await }).await? {
            Ok((data, stat, watcher)) => (stat, Tag::read(&data).identity, watcher),
            Err(zk::Error::NoNode) => return Ok(false),
            Err(zk::Error::NoAuth) => {
                match session.ask(|client| async move { client.check_and_watch_stat(node).await }).await? {
                    Ok((Some(stat), watcher)) => (stat, None, watcher),
                    Ok((None, _)) => return Ok(false),
                    Err(error) => return Err(refused(Some(path), "READ", &attempt.full(node), error).into()),
                }
            }
            Err(error) => return Err(refused(Some(path), "READ", &attempt.full(node), error).into()),
        };
    if is_held(&stat) {
        attempt.must_wait(holder)?;
        attempt.progress.is(Stage::Queueing);
        watcher.changed().await;
        return Ok(true);
    }
    // A directory: the server does not tell clients whether it is a container, which it sweeps away when empty, or
    // somebody's persistent node, which is not ours to delete. Once used and now empty, it may be swept.
    let is_left_over = stat.num_children == 0 && stat.cversion > 0 && stat.data_length == 0;
    if is_left_over && Tick::now() < attempt.request.wait_until {
        attempt.progress.is(Stage::BeforeDirectory);
        watcher.changed().await;
        return Ok(true);
    }
    Err(a_directory(path, &attempt.full(node)).into())
}

/// Whether the node is somebody's lock: containers and nodes with a time to live have no owner for clients
/// (`DataNode.getClientEphemeralOwner`).
pub(super) fn is_held(stat: &zk::Stat) -> bool {
    stat.ephemeral_owner != 0
}

pub(super) fn a_directory(path: &LockPath, node: &str) -> Error {
    Error::WrongKind {
        path: path.clone(),
        found: format!(
            "node \"{node}\" is a directory, as fair locks and the paths above other locks have it"
        ),
    }
}

enum Birth {
    Born(OwnNode),
    Refused(zk::Error),
    /// The answer was lost, and the node is not ours.
    NotMade,
}

async fn birth(session: Arc<Session>, node: String, uuid: Uuid, tag: Vec<u8>) -> Result<Birth, Setback> {
    let client = session.client()?;
    let options = zk::CreateMode::Ephemeral.with_acls(session.config.acl.acls());
    let asked = client.create(&node, &tag, &options).await;
    drop(client);
    let czxid = match asked {
        Ok((stat, _)) => Some(stat.czxid),
        Err(error) => match kind(&error) {
            Kind::SessionOver => return Err(Setback::SessionOver),
            Kind::Refusal => return Ok(Birth::Refused(error)),
            Kind::Unknown => {
                debug!(target: "zklock", node, %error, "the answer to a create was lost");
                find(&session, &node, uuid).await?
            }
        },
    };
    Ok(czxid.map_or(Birth::NotMade, |czxid| Birth::Born(OwnNode::new(session, &node, Created { czxid, place: 0 }, Place::Plain))))
}

/// The transaction in which this very attempt created the node, if it did. The session alone does not tell: another
/// task of this process may hold the lock.
async fn find(session: &Session, node: &str, uuid: Uuid) -> Result<Option<i64>, Setback> {
    let found = session
        .ask(|client| async move {
            // The server that we are on now may not have heard of it yet.
            client.sync(node).await?;
            // Others' nodes may have rights of their own; to see whose it is needs none.
            match client.check_stat(node).await? {
                Some(stat) if stat.ephemeral_owner == session.id() => client.get_data(node).await.map(Some),
                _ => Ok(None),
            }
        })
        .await?;
    match found {
        Ok(Some((data, stat))) => {
            let is_ours = stat.ephemeral_owner == session.id() && Tag::read(&data).is_of(uuid);
            Ok(is_ours.then_some(stat.czxid))
        }
        Ok(None) | Err(zk::Error::NoNode) => Ok(None),
        Err(error) => {
            // It may be this attempt's, and only the session's end surely takes it away.
            session.end(LostReason::SessionExpired);
            let node = format!("{}{node}", session.config.address.chroot());
            Err(refused(None, "READ", &node, error).into())
        }
    }
}
