use std::sync::Arc;

use tracing::debug;
use uuid::Uuid;
use zookeeper_client as zk;

use super::{
    answer::{Kind, Setback, kind, refused},
    attempt::{Attempt, Stage},
    backoff::Backoff,
    contender::{OwnNode, Place},
    directories::Presence,
    nodes, parents,
    session::Session,
};
use crate::error::{Error, LostReason};

/// Creates our contender, and its directory where that is missing. True: nobody else is there. The uuid is the one in
/// its name.
pub(super) async fn enter(attempt: &Attempt<'_>) -> Result<(OwnNode, bool, Uuid), Setback> {
    attempt.progress.is(Stage::Asking);
    let session = attempt.session;
    let path = &attempt.request.path;
    let directory = attempt.node();
    let presence = session.directories.enter(directory);
    let mut uuid = Uuid::new_v4();
    // We may not create in the node above, so the directory must have been made by somebody else.
    let mut only_join = false;
    let mut backoff = Backoff::of_request();
    for round in 0_u32.. {
        if round > 3 {
            // Somebody deletes what we make, as quickly as we make it.
            backoff.pause().await;
        }
        let way = match (presence.is_read_only(), presence.exists() || only_join) {
            (true, _) => Way::Bare,
            (false, true) => Way::Join,
            (false, false) => Way::Found,
        };
        // In a task of its own: it must hear the answer even when nobody waits for it any more.
        let birth =
            birth(session.clone(), session.directories.enter(directory), way, uuid, attempt.tag(uuid));
        let birth = session.handle.spawn(birth).await.map_err(|_| Setback::Failed(Error::Closed))??;
        match birth {
            Birth::Born(own, alone) => return Ok((own, alone, uuid)),
            // Under the old uuid the stray would be found again, in place of the next node; and in a directory made
            // anew the next node could have the stray's name, so that the stray's delete took it away.
            Birth::Stray => uuid = Uuid::new_v4(),
            Birth::NotMade | Birth::Refused(_, zk::Error::Throttled) => backoff.pause().await,
            Birth::Refused(Step::Directory, zk::Error::NodeExists) => presence.is_there(),
            Birth::Refused(Step::Directory, zk::Error::NoNode) => {
                parents::make(session, path, directory).await?;
            }
            Birth::Refused(Step::Directory, zk::Error::NoAuth) => only_join = true,
            Birth::Refused(Step::Contender, zk::Error::NoNode) if only_join => {
                let above = attempt.full(directory.rsplit_once('/').map_or("/", |(above, _)| above));
                return Err(refused(Some(path), "CREATE", &above, zk::Error::NoAuth).into());
            }
            Birth::Refused(Step::Contender, zk::Error::NoNode) => {
                let read_only = presence.is_read_only();
                presence.is_missing();
                if read_only {
                    // Found would be refused again, now that it is known that we may not write to what we make.
                    presence.may_not_be_written();
                    parents::make_directory(session, path, directory).await?;
                }
            }
            Birth::Refused(Step::Write, zk::Error::NoAuth) => presence.may_not_be_written(),
            Birth::Refused(Step::Directory, error) => {
                let above = attempt.full(directory.rsplit_once('/').map_or("/", |(above, _)| above));
                return Err(refused(Some(path), "CREATE", &above, error).into());
            }
            Birth::Refused(Step::Contender, error) => {
                return Err(refused(Some(path), "CREATE", &attempt.full(directory), error).into());
            }
            Birth::Refused(Step::Write, error) => {
                return Err(refused(Some(path), "WRITE", &attempt.full(directory), error).into());
            }
        }
    }
    Err(Setback::SessionOver)
}

/// How a contender is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With its directory.
    Found,
    /// In a directory that is there.
    Join,
    /// In a directory that we may not write to, so that who else is there must be asked.
    Bare,
}

/// The part of a request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Directory,
    Contender,
    Write,
}

enum Birth {
    Born(OwnNode, bool),
    Refused(Step, zk::Error),
    /// The answer was lost, and nothing was done.
    NotMade,
    /// The answer was lost, and there is or may be a node that is not of our session.
    Stray,
}

/// What the server says of a contender that it created.
struct Born {
    path: String,
    czxid: i64,
    /// The transaction that made the directory.
    directory: Option<i64>,
    alone: bool,
}

/// Sends one request and sees to what comes of it, an answer that gets lost included.
async fn birth(
    session: Arc<Session>,
    presence: Presence,
    way: Way,
    uuid: Uuid,
    tag: Vec<u8>,
) -> Result<Birth, Setback> {
    let directory = presence.path().clone();
    let prefix = format!("{directory}/{}", nodes::prefix(uuid));
    let client = session.client()?;
    let asked = match way {
        Way::Bare => create(&session, &client, &prefix, &tag).await.map_err(|error| (Step::Contender, error)),
        Way::Join | Way::Found => create_and_count(&session, &client, way, &directory, &prefix, &tag).await,
    };
    drop(client);
    let born = match asked {
        Ok(born) => born,
        Err((step, error)) => match kind(&error) {
            Kind::SessionOver => return Err(Setback::SessionOver),
            Kind::Refusal => return Ok(Birth::Refused(step, error)),
            Kind::Unknown => {
                debug!(target: "zklock", prefix, %error, "the answer to a create was lost");
                match find(&session, &directory, &prefix).await? {
                    Found::Ours(born) => born,
                    Found::Nothing => return Ok(Birth::NotMade),
                    Found::Stray => return Ok(Birth::Stray),
                }
            }
        },
    };
    if way == Way::Found && born.directory == Some(born.czxid) {
        presence.was_made_in(born.czxid);
    } else {
        presence.is_there();
    }
    let place = Place::Fair { presence, directory: born.directory, alone: born.alone };
    Ok(Birth::Born(OwnNode::new(session, born.path, born.czxid, place), born.alone))
}

async fn create(session: &Session, client: &zk::Client, prefix: &str, tag: &[u8]) -> Result<Born, zk::Error> {
    let options = zk::CreateMode::EphemeralSequential.with_acls(session.config.acl.acls());
    let (stat, sequence) = client.create(prefix, tag, &options).await?;
    Ok(Born { path: format!("{prefix}{sequence}"), czxid: stat.czxid, directory: None, alone: false })
}

/// Creates the contender and writes to the directory, for the sake of the answer: it says how many children there
/// are, and in which transaction this was done. The create's own answer does not within a multi
/// (ZOOKEEPER-4026).
async fn create_and_count(
    session: &Session,
    client: &zk::Client,
    way: Way,
    directory: &str,
    prefix: &str,
    tag: &[u8],
) -> Result<Born, (Step, zk::Error)> {
    let acls = session.config.acl.acls();
    let mut writer = client.new_multi_writer();
    let mut add = || {
        if way == Way::Found {
            writer.add_create(directory, b"", &zk::CreateMode::Container.with_acls(acls))?;
        }
        writer.add_create(prefix, tag, &zk::CreateMode::EphemeralSequential.with_acls(acls))?;
        writer.add_set_data(directory, b"", None)
    };
    add().map_err(|error| (Step::Contender, error))?;
    let results = writer.commit().await.map_err(|error| match error {
        zk::MultiWriteError::RequestFailed { source } => (Step::Contender, source),
        zk::MultiWriteError::OperationFailed { index, source } => {
            let step = match index + usize::from(way != Way::Found) {
                0 => Step::Directory,
                1 => Step::Contender,
                _ => Step::Write,
            };
            (step, source)
        }
    })?;
    let mut results = results.into_iter().rev();
    match (results.next(), results.next()) {
        (Some(zk::MultiWriteResult::SetData { stat }), Some(zk::MultiWriteResult::Create { path, .. })) => {
            Ok(Born { path, czxid: stat.mzxid, directory: Some(stat.czxid), alone: stat.num_children == 1 })
        }
        // Done, but not as it was asked for: look for it.
        _ => Err((Step::Contender, zk::Error::RuntimeInconsistent)),
    }
}

/// What became of a create whose answer was lost.
enum Found {
    Ours(Born),
    /// It was not made, and never will be, since its request went down with its connection.
    Nothing,
    /// It is of a session that is not ours, or may be.
    Stray,
}

/// Looks for the contender whose creation was not answered.
///
/// That a node of `session.id()` is ours holds as long as the connection is in that session, which is proven before
/// anything else is believed of a new connection ([`witness`](super::witness)).
async fn find(session: &Arc<Session>, directory: &str, prefix: &str) -> Result<Found, Setback> {
    let name = prefix.rsplit('/').next().unwrap_or_default();
    let found = session
        .ask(|client| async move {
            // The server that we are on now may not have heard of it yet.
            client.sync(directory).await?;
            // Needs no right, where listing the directory does. Before 3.6 a server does not know the question.
            let own = match client.list_ephemerals(prefix).await {
                Err(zk::Error::Unimplemented) => None,
                own => Some(own?.into_iter().next()),
            };
            let is_known = own.is_some();
            let path = match own.flatten() {
                Some(path) => path,
                None => match client.list_children(directory).await {
                    Err(zk::Error::NoNode) => return Ok(Err(Found::Nothing)),
                    Err(zk::Error::NoAuth) if is_known => return Ok(Err(Found::Stray)),
                    children => match children?.iter().find(|child| child.starts_with(name)) {
                        Some(name) => format!("{directory}/{name}"),
                        None => return Ok(Err(Found::Nothing)),
                    },
                },
            };
            let Some(stat) = client.check_stat(&path).await? else { return Ok(Err(Found::Stray)) };
            let directory = client.check_stat(directory).await?;
            Ok(Ok((path, stat, directory.map(|directory| directory.czxid))))
        })
        .await?;
    match found {
        Ok(Ok((path, stat, directory))) => {
            let born = Born { path, czxid: stat.czxid, directory, alone: false };
            if stat.ephemeral_owner == session.id() {
                return Ok(Found::Ours(born));
            }
            // Of a session that is not ours any more: its end takes the node away, or we do, if we may.
            drop(OwnNode::new(session.clone(), born.path, born.czxid, Place::Plain));
            Ok(Found::Stray)
        }
        Ok(Err(found)) => Ok(found),
        Err(error) => {
            // It may stand there, and nobody can tell which it is to take it away: only the session's end does.
            session.end(LostReason::SessionExpired);
            let node = format!("{}{directory}", session.config.address.chroot());
            Err(refused(None, "READ", &node, error).into())
        }
    }
}
