use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::debug;
use uuid::Uuid;
use zookeeper_client as zk;

use super::{
    answer::{Kind, Setback, kind, refused},
    attempt::{Attempt, Stage},
    backoff::Backoff,
    bell::Bell,
    call::{self, Call, First},
    contender::{OwnNode, Place as Stands},
    group::{self, Created, Failure, Write, Written},
    local::{Arrived, Asking, LocalQueue, Newcomer, Place, Standing},
    nodes::{self, Tag},
    parents,
    session::{Node, Session},
};
use crate::{
    backend::BoxFuture,
    clock::Tick,
    error::{Error, LostReason},
    path::LockPath,
};

/// The place of a call in the queue of this process. Dropping it withdraws, if it has not been granted.
pub(super) struct Stand(Place);

impl Stand {
    /// Rings when its standing may be another one, unless it is granted.
    pub(super) fn bell(&self) -> Arc<Bell> {
        self.0.bell()
    }
}

/// What came of one try.
pub(super) type Tried = Result<Birth, Setback>;

/// Enters the queue of this process, on the caller's thread, and asks for the node if nobody else does. A task takes over if
/// it must do anything else.
pub(super) fn start(call: &Arc<Call>, session: &Arc<Session>) {
    if call.tries_once() {
        return call.takes_task(None);
    }
    let attempt = Attempt { session, call };
    let queue = session.local.queue(attempt.node());
    let (place, first) = queue.arrive(call.claim(nodes::attempt()));
    let stand = Stand(place);
    match first {
        // What was granted would be taken back if the session is not confirmed: no use in asking before it is.
        Arrived::First(asking) if session.validity.verdict(Tick::now()).is_none() => {
            call.waits(session, call::Stand::Plain(stand));
            let (called, asked) = (call.clone(), session.clone());
            let then = move |tried| {
                // If it is not there, the caller is gone or has a task.
                let Some((_, call::Stand::Plain(stand))) = called.takes_stand() else { return };
                match (stand.0.standing(false), tried) {
                    (Standing::Granted, _) => {}
                    (Standing::Waits, Ok(_)) => {
                        called.progress.is(Stage::Queueing);
                        called.waits(&asked, call::Stand::Plain(stand));
                    }
                    (_, tried) => called.takes_task(Some((asked, First::Plain(stand, tried)))),
                }
            };
            ask(&attempt, queue, For::First(asking), false, then);
        }
        Arrived::Behind => {
            call.progress.is(Stage::Queueing);
            call.waits(session, call::Stand::Plain(stand));
        }
        Arrived::First(_) | Arrived::Late => {
            call.takes_task(Some((session.clone(), First::Stand(call::Stand::Plain(stand)))));
        }
    }
}

/// Runs for the plain node of a `fair = false` lock: whoever creates it holds, and the outlet is told. Dropping the future
/// withdraws.
///
/// The node says who created it and for which function. It may be passed on to others of this process since: what is
/// written in it stays that of its first holder.
pub(super) async fn acquire(attempt: &Attempt<'_>, first: Option<First>) -> Result<(), Setback> {
    let session = attempt.session;
    let queue = session.local.queue(attempt.node());
    let (stand, mut outcome) = match first {
        Some(First::Stand(call::Stand::Plain(stand))) => (Some(stand), None),
        Some(First::Plain(stand, tried)) => (Some(stand), Some(tried)),
        Some(First::Stand(call::Stand::Fair(_)) | First::Fair(_)) | None => (None, None),
    };
    // A single try does not wait for those beside it: it adds one request, and watches nothing.
    let mut passes_by = stand.is_none() && attempt.call.tries_once();
    let place = match stand {
        Some(Stand(place)) => place,
        None if passes_by => queue.pass_by(),
        None => queue.enter(attempt.call.claim(nodes::attempt())),
    };
    let over = session.ended();
    tokio::pin!(over);
    let mut others = None;
    let mut tries = Tries::default();
    loop {
        match place.standing(passes_by) {
            Standing::Granted => return Ok(()),
            waits @ (Standing::Waits | Standing::HasAsked) => {
                others = None;
                if waits == Standing::Waits {
                    attempt.is(Stage::Queueing);
                }
                tokio::select! {
                    () = place.changed() => {}
                    () = &mut over => return Err(Setback::SessionOver),
                }
            }
            Standing::Asks { gives_way } => {
                if let Some(gone) = &mut others {
                    tokio::select! {
                        () = gone => others = None,
                        () = place.changed() => {}
                        () = &mut over => return Err(Setback::SessionOver),
                    }
                    continue;
                }
                attempt.is(Stage::Asking);
                if gives_way {
                    tries.is_contended = true;
                    others = give_way(attempt, &queue).await?;
                    continue;
                }
                let birth = if let Some(birth) = outcome.take() {
                    birth
                } else {
                    tries.pause().await;
                    // What was granted to us is taken back when the session is not confirmed: no use in asking before
                    // it is.
                    session.stands().await?;
                    let (sender, answered) = oneshot::channel();
                    let whom = if passes_by {
                        For::This(place.newcomer(attempt.call.claim(nodes::attempt())))
                    } else {
                        For::First(queue.ask())
                    };
                    ask(attempt, queue.clone(), whom, tries.is_contended, move |birth| {
                        let _ = sender.send(birth);
                    });
                    // Without an answer the engine has stopped.
                    answered.await.map_err(|_| Setback::Failed(Error::Closed))?
                };
                match birth? {
                    // Granted to whoever was first by then.
                    Birth::Born => passes_by = false,
                    Birth::Refused(zk::Error::NodeExists) => {
                        tries.is_contended = true;
                        others = watch(attempt, &queue, false).await?;
                        if others.is_some() {
                            tries.number = 0;
                        }
                    }
                    Birth::Refused(zk::Error::NoNode) => {
                        parents::make(session, attempt.path(), attempt.node()).await?;
                    }
                    Birth::NotMade | Birth::Refused(zk::Error::Throttled) => {}
                    Birth::Refused(error) => {
                        let node = attempt.node();
                        let above = attempt.full(node.rsplit_once('/').map_or("/", |(above, _)| above));
                        return Err(refused(Some(attempt.path()), "CREATE", &above, error).into());
                    }
                }
            }
        }
    }
}

/// The creates of one attempt.
struct Tries {
    /// Since the last wait for somebody else.
    number: u32,
    /// Others were there.
    is_contended: bool,
    backoff: Backoff,
}

impl Default for Tries {
    fn default() -> Self {
        Self { number: 0, is_contended: false, backoff: Backoff::of_request() }
    }
}

impl Tries {
    async fn pause(&mut self) {
        self.number += 1;
        if self.number > 3 {
            self.backoff.pause().await;
        }
    }
}

/// Resolves when the node that somebody else has may be gone.
type Gone = BoxFuture<()>;

/// Lets others have the lock, whom we have kept from it: our last node has to be gone, and a round trip to the leader
/// later whoever heard of that has asked for it.
async fn give_way(attempt: &Attempt<'_>, queue: &LocalQueue) -> Result<Option<Gone>, Setback> {
    queue.settled().await;
    let others = watch(attempt, queue, true).await?;
    queue.has_given_way();
    Ok(others)
}

/// Watches the node that stands there; `None` if there is none any more. `synced`: as the leader has it by now.
async fn watch(attempt: &Attempt<'_>, queue: &LocalQueue, synced: bool) -> Result<Option<Gone>, Setback> {
    let session = attempt.session;
    let path = attempt.path();
    let node = attempt.node();
    let read = session
        .ask(|client| async move {
            if synced {
                client.sync(node).await?;
            }
            client.get_and_watch_data(node).await
        })
        .await?;
    let (stat, holder, watcher) = match read {
        Ok((data, stat, watcher)) => (stat, Tag::read(&data).identity, watcher),
        Err(zk::Error::NoNode) => return Ok(None),
        Err(zk::Error::NoAuth) => {
            match session.ask(|client| async move { client.check_and_watch_stat(node).await }).await? {
                Ok((Some(stat), watcher)) => (stat, None, watcher),
                Ok((None, _)) => return Ok(None),
                Err(error) => return Err(refused(Some(path), "READ", &attempt.full(node), error).into()),
            }
        }
        Err(error) => return Err(refused(Some(path), "READ", &attempt.full(node), error).into()),
    };
    if is_held(&stat) {
        attempt.must_wait(holder)?;
        if stat.ephemeral_owner != session.id() {
            queue.has_given_way();
        }
        attempt.is(Stage::Queueing);
    } else {
        // A directory: the server does not tell clients whether it is a container, which it sweeps away when empty, or
        // somebody's persistent node, which is not ours to delete. Once used and now empty, it may be swept.
        let is_left_over = stat.num_children == 0 && stat.cversion > 0 && stat.data_length == 0;
        if !is_left_over || Tick::now() >= attempt.call.request.wait_until {
            return Err(a_directory(path, &attempt.full(node)).into());
        }
        attempt.is(Stage::BeforeDirectory);
    }
    Ok(Some(Box::pin(async move {
        watcher.changed().await;
    })))
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

pub(super) enum Birth {
    Born,
    Refused(zk::Error),
    /// The answer was lost, and the node is not ours.
    NotMade,
}

/// Sends a create, from any thread. What comes of it goes to the queue, whether whoever asked is still there or not: an answer
/// that gets lost is looked into. `then` is told after that.
fn ask(
    attempt: &Attempt<'_>,
    queue: Arc<LocalQueue>,
    whom: For,
    is_contended: bool,
    then: impl FnOnce(Tried) + Send + Sync + 'static,
) {
    let session = attempt.session;
    // A new one each time: what an earlier try has left behind must not be taken for this one's.
    let uuid = nodes::attempt();
    let birth = Pending { session: session.clone(), queue, path: attempt.node().clone(), uuid, whom, then };
    let write = Write::Plain { path: birth.path.clone(), tag: attempt.tag(uuid) };
    group::write(session, write, is_contended, move |answer| birth.settle(answer));
}

/// Whom a node is created for.
enum For {
    /// Whoever is first in the queue when it has come.
    First(Asking),
    This(Newcomer),
}

/// A create that has not been answered yet.
struct Pending<T> {
    session: Arc<Session>,
    queue: Arc<LocalQueue>,
    path: Arc<str>,
    uuid: Uuid,
    whom: For,
    then: T,
}

impl<T: FnOnce(Tried) + Send + Sync + 'static> Pending<T> {
    fn settle(self, answer: Result<Written, Failure>) {
        let Failure { error, place, .. } = match answer {
            Ok(Written::Plain(created)) => return self.born(created),
            // Not what was asked for: look for it.
            Ok(Written::Contender { .. } | Written::Gone) => {
                Failure { step: group::Step::Node, error: zk::Error::RuntimeInconsistent, place: 0 }
            }
            Err(failure) => failure,
        };
        match kind(&error) {
            Kind::SessionOver => self.ends(Err(Setback::SessionOver)),
            Kind::Refusal => self.ends(Ok(Birth::Refused(error))),
            Kind::Unknown => {
                debug!(target: "zklock", node = &*self.path, %error, "the answer to a create was lost");
                self.session.tasks.clone().spawn(async move {
                    match find(&self.session, &self.path, self.uuid).await {
                        Ok(Some(czxid)) => self.born(Created { czxid, place }),
                        Ok(None) => self.ends(Ok(Birth::NotMade)),
                        Err(setback) => self.ends(Err(setback)),
                    }
                });
            }
        }
    }

    fn born(self, created: Created) {
        let Self { session, queue, path, whom, then, .. } = self;
        let own = OwnNode::new(session, Node::plain(path, created), Stands::plain(queue.clone()));
        match whom {
            For::First(asking) => {
                queue.receive(own, None);
                drop(asking);
            }
            For::This(newcomer) => queue.receive(own, Some(newcomer)),
        }
        then(Ok(Birth::Born));
    }

    fn ends(self, tried: Tried) {
        let Self { whom, then, .. } = self;
        // First: whoever is told looks where it stands.
        drop(whom);
        then(tried);
    }
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
