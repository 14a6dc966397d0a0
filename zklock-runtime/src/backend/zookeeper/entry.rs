use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::debug;
use uuid::Uuid;
use zookeeper_client as zk;

use super::{
    answer::{Kind, Setback, kind, refused},
    attempt::{Attempt, Stage},
    backoff::Backoff,
    contender::{OwnNode, Place},
    directories::{Presence, Way},
    group::{self, Created, Failure, Step, Write, Written},
    line::Line,
    nodes::{self, Name},
    order::is_in_order,
    parents,
    session::{Node, Session},
};
use crate::error::{Cause, Error, LostReason};

/// What came of one try.
pub(super) type Tried = Result<Birth, Setback>;

/// Asks for our contender once, from any thread. `then` is told what came of it, on the thread that speaks with
/// the server or at once.
pub(super) fn try_once(attempt: &Attempt<'_>, then: impl FnOnce(Tried) + Send + Sync + 'static) {
    let presence = attempt.session.directories.enter(attempt.node());
    let uuid = nodes::attempt();
    birth(attempt, presence.way(), presence, uuid, then);
}

/// Creates our contender, and its directory where that is missing. `first`: what has come of a try before. Cancel-safe.
pub(super) async fn enter(attempt: &Attempt<'_>, first: Option<Tried>) -> Result<Contender, Setback> {
    attempt.is(Stage::Asking);
    let session = attempt.session;
    let path = attempt.path();
    let directory = attempt.node();
    let presence = session.directories.enter(directory);
    let mut first = first;
    let mut uuid = nodes::attempt();
    // We may not create in the node above, so the directory must have been made by somebody else.
    let mut only_join = false;
    let mut backoff = Backoff::of_request();
    for round in 0_u32.. {
        if round > 3 {
            // Somebody deletes what we make, as quickly as we make it.
            backoff.pause().await;
        }
        let tried = if let Some(tried) = first.take() {
            tried
        } else {
            let way = match presence.way() {
                Way::Found if only_join => Way::Join,
                way => way,
            };
            let (sender, answered) = oneshot::channel();
            birth(attempt, way, session.directories.enter(directory), uuid, move |tried| {
                let _ = sender.send(tried);
            });
            // Without an answer the engine has stopped.
            answered.await.map_err(|_| Setback::Failed(Error::Closed))?
        };
        match tried? {
            Birth::Born(contender) => return Ok(contender),
            // Under the old uuid the stray would be found again, in place of the next node; and in a directory made
            // anew the next node could have the stray's name, so that the stray's delete took it away.
            Birth::Stray => uuid = nodes::attempt(),
            Birth::NotMade | Birth::Refused(_, zk::Error::Throttled) => backoff.pause().await,
            Birth::Refused(Step::Directory, zk::Error::NodeExists) => presence.is_there(),
            Birth::Refused(Step::Directory, zk::Error::NoNode) => {
                parents::make(session, path, directory).await?;
            }
            Birth::Refused(Step::Directory, zk::Error::NoAuth) => only_join = true,
            Birth::Refused(Step::Node, zk::Error::NoNode) if only_join => {
                let above = attempt.full(directory.rsplit_once('/').map_or("/", |(above, _)| above));
                return Err(refused(Some(path), "CREATE", &above, zk::Error::NoAuth).into());
            }
            Birth::Refused(Step::Node, zk::Error::NoNode) => {
                let read_only = presence.is_read_only();
                presence.is_missing();
                if read_only {
                    // Found would be refused again, now that it is known that we may not write to what we make.
                    presence.may_not_be_written();
                    parents::make_directory(session, path, directory).await?;
                }
            }
            Birth::Refused(Step::Count, zk::Error::NoAuth) => presence.may_not_be_written(),
            Birth::Refused(Step::Directory, error) => {
                let above = attempt.full(directory.rsplit_once('/').map_or("/", |(above, _)| above));
                return Err(refused(Some(path), "CREATE", &above, error).into());
            }
            Birth::Refused(Step::Node, error) => {
                return Err(refused(Some(path), "CREATE", &attempt.full(directory), error).into());
            }
            Birth::Refused(Step::Count, error) => {
                return Err(refused(Some(path), "WRITE", &attempt.full(directory), error).into());
            }
        }
    }
    Err(Setback::SessionOver)
}

pub(super) enum Birth {
    Born(Contender),
    Refused(Step, zk::Error),
    /// The answer was lost, and nothing was done.
    NotMade,
    /// The answer was lost, and there is or may be a node that is not of our session.
    Stray,
}

/// A contender that the server has created.
pub(super) struct Contender {
    pub(super) own: OwnNode,
    pub(super) line: Arc<Line>,
    pub(super) name: Name,
    /// Nobody else was there.
    pub(super) is_alone: bool,
}

/// What the server says of it.
struct Born {
    path: String,
    created: Created,
    /// The transaction that made the directory, where known.
    directory: Option<i64>,
    is_alone: bool,
}

impl Born {
    fn contender(
        self,
        session: Arc<Session>,
        presence: Presence,
        way: Way,
        uuid: Uuid,
    ) -> Result<Birth, Setback> {
        if way == Way::Found && self.directory == Some(self.created.czxid) {
            presence.was_made_in(self.created.czxid);
        } else {
            presence.is_there();
        }
        let name = Name::read(self.path.rsplit('/').next().unwrap_or_default());
        let Some(name) = name.filter(|name| name.uuid == uuid) else {
            let source =
                Cause::new(format!("the server made \"{}\", which is no contender's name", self.path));
            return Err(Error::Backend { path: None, source }.into());
        };
        let sequence = name.sequence;
        let node = Node::contender(presence.path().clone(), name, self.created);
        // Without the directory's transaction or an order by sequences nothing is known of neighbours.
        let line = self.directory.filter(|_| is_in_order(sequence)).map(|directory| presence.line(directory));
        // Else the directory may have been made anew, and nobody has seen it yet.
        let is_known = line.as_ref().is_none_or(|line| line.takes(sequence));
        let alone = || Arc::new(Line::of(self.directory.filter(|_| is_known)));
        let line = line.filter(|_| is_known).unwrap_or_else(alone);
        let place = Place::Fair { presence, line: line.clone(), sequence };
        let own = OwnNode::new(session, node, place);
        Ok(Birth::Born(Contender { own, line, name, is_alone: self.is_alone }))
    }
}

/// Sends one request and sees to what comes of it, an answer that gets lost included. What `then` does not keep is taken
/// away.
fn birth(
    attempt: &Attempt<'_>,
    way: Way,
    presence: Presence,
    uuid: Uuid,
    then: impl FnOnce(Tried) + Send + Sync + 'static,
) {
    let session = attempt.session;
    let tag = attempt.tag(uuid);
    let directory = presence.path().clone();
    let prefix = format!("{directory}/{}", nodes::prefix(uuid));
    let asking = session.clone();
    let answered = move |answer: Result<Born, Failure>| match answer {
        Ok(born) => then(born.contender(asking, presence, way, uuid)),
        Err(Failure { step, error, place }) => match kind(&error) {
            Kind::SessionOver => then(Err(Setback::SessionOver)),
            Kind::Refusal => then(Ok(Birth::Refused(step, error))),
            Kind::Unknown => {
                debug!(target: "zklock", directory = &**presence.path(), %error, "the answer to a create was lost");
                asking.tasks.clone().spawn(async move {
                    let prefix = format!("{}/{}", presence.path(), nodes::prefix(uuid));
                    then(match find(&asking, presence.path(), &prefix, place).await {
                        Ok(Found::Ours(born)) => born.contender(asking, presence, way, uuid),
                        Ok(Found::Nothing) => Ok(Birth::NotMade),
                        Ok(Found::Stray) => Ok(Birth::Stray),
                        Err(setback) => Err(setback),
                    });
                });
            }
        },
    };
    match way {
        Way::Bare => {
            let creating = session.clone();
            session.tasks.spawn(async move { answered(create(&creating, &prefix, &tag).await) });
        }
        Way::Join | Way::Found => {
            let founds = way == Way::Found;
            let way = if founds { group::Way::Founds } else { group::Way::Joins };
            let write = Write::Contender { directory, prefix, tag, way };
            group::write(session, write, founds, move |answer| {
                answered(answer.and_then(|written| match written {
                    Written::Contender { path, created, directory, children } => {
                        Ok(Born { path, created, directory: Some(directory), is_alone: children == Some(1) })
                    }
                    // Not what was asked for: look for it.
                    Written::Plain(_) | Written::Gone => {
                        Err(Failure { step: Step::Node, error: zk::Error::RuntimeInconsistent, place: 0 })
                    }
                }));
            });
        }
    }
}

/// Creates a contender in a directory that may not be written to.
async fn create(session: &Session, prefix: &str, tag: &[u8]) -> Result<Born, Failure> {
    let failed = |error| Failure { step: Step::Node, error, place: 0 };
    let client = session.client().map_err(|_| failed(zk::Error::SessionExpired))?;
    let options = zk::CreateMode::EphemeralSequential.with_acls(session.config.acl.acls());
    let (stat, sequence) = client.create(prefix, tag, &options).await.map_err(failed)?;
    let created = Created { czxid: stat.czxid, place: 0 };
    Ok(Born { path: format!("{prefix}{sequence}"), created, directory: None, is_alone: false })
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
async fn find(session: &Arc<Session>, directory: &str, prefix: &str, place: u16) -> Result<Found, Setback> {
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
            // Before the node, which stood in it then: a directory that is made anew meanwhile does not have it.
            let directory = client.check_stat(directory).await?;
            let Some(stat) = client.check_stat(&path).await? else { return Ok(Err(Found::Stray)) };
            Ok(Ok((path, stat, directory.map(|directory| directory.czxid))))
        })
        .await?;
    match found {
        Ok(Ok((path, stat, directory))) => {
            let created = Created { czxid: stat.czxid, place };
            let born = Born { path, created, directory, is_alone: false };
            if stat.ephemeral_owner == session.id() {
                return Ok(Found::Ours(born));
            }
            // Of a session that is not ours any more: its end takes the node away, or we do, if we may.
            let stray = Node::plain(born.path.into(), created);
            drop(OwnNode::new(session.clone(), stray, Place::nobodys()));
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
