use std::sync::Arc;

use tracing::debug;
use zookeeper_client as zk;

use super::{
    answer::{Setback, refused},
    attempt::{Attempt, Stage},
    bell::Bell,
    call::{self, Call, First},
    entry::{self, Birth, Contender},
    line::{Claimant, Line, Place, Standing},
    order::{Before, Theirs, is_in_order},
    queue::{self, Place as Position},
    session::{Node, Session},
};
use crate::{
    backend::BoxFuture,
    clock::Tick,
    error::{Cause, Error},
};

/// The place of a contender in its line. Dropping it withdraws, if it has not been granted.
pub(super) struct Stand {
    place: Place,
    node: Arc<Node>,
    sequence: i32,
    since: Tick,
}

impl Stand {
    /// Enters the line, which grants if it is our turn.
    fn enter(call: &Arc<Call>, contender: Contender) -> Self {
        let Contender { own, line, name, is_alone } = contender;
        let node = own.node().clone();
        let place = line.enter(name.sequence, is_alone, Claimant { claim: call.claim(name.uuid), own });
        Self { place, node, sequence: name.sequence, since: Tick::now() }
    }

    /// Rings when its standing may be another one, unless it is granted.
    pub(super) fn bell(&self) -> Arc<Bell> {
        self.place.bell()
    }
}

/// Asks for a contender, on the caller's thread. When it has come it is granted, or waits for one of ours; a task takes
/// over if it must do anything else.
pub(super) fn start(call: &Arc<Call>, session: &Arc<Session>) {
    let (called, asked) = (call.clone(), session.clone());
    entry::try_once(&Attempt { session, call }, move |tried| {
        let contender = match tried {
            Ok(Birth::Born(contender)) => contender,
            tried => return called.takes_task(Some((asked, First::Fair(tried)))),
        };
        if !called.outlet.is_open() {
            return;
        }
        let stand = Stand::enter(&called, contender);
        match stand.place.standing() {
            Standing::Granted => {}
            Standing::Behind(Before::Ours(_)) if !called.tries_once() => {
                called.progress.is(Stage::Queueing);
                called.waits(&asked, call::Stand::Fair(stand));
            }
            Standing::Gone | Standing::Behind(_) => {
                called.takes_task(Some((asked, First::Stand(call::Stand::Fair(stand)))));
            }
        }
    });
}

/// Stands in the queue of a fair lock until it is our turn, which the outlet is told of. Dropping the future withdraws: the
/// node belongs to a value that takes it away when dropped, from before the server made it.
pub(super) async fn acquire(attempt: &Attempt<'_>, first: Option<First>) -> Result<(), Setback> {
    let (mut stand, mut tried) = match first {
        Some(First::Stand(call::Stand::Fair(stand))) => (Some(stand), None),
        Some(First::Fair(tried)) => (None, Some(tried)),
        Some(First::Stand(call::Stand::Plain(_)) | First::Plain(..)) | None => (None, None),
    };
    loop {
        let stand = match stand.take() {
            Some(stand) => stand,
            None => Stand::enter(attempt.call, entry::enter(attempt, tried.take()).await?),
        };
        if queue_up(attempt, &stand).await? {
            return Ok(());
        }
        debug!(target: "zklock", path = %attempt.path(), "a waiting node was deleted by somebody else");
    }
}

/// Waits for our turn. False: the node is gone, before that.
async fn queue_up(attempt: &Attempt<'_>, stand: &Stand) -> Result<bool, Setback> {
    let Stand { place, node, sequence, since } = stand;
    let (node, sequence) = (&**node, *sequence);
    let gone = attempt.gone(node, *since);
    let over = attempt.session.ended();
    tokio::pin!(gone, over);
    let mut ahead = Watched::default();
    let mut next = Watched::default();
    // What one server does not list another one may, so that it is asked again before it is believed.
    let mut is_missed = false;
    loop {
        let before = match place.standing() {
            Standing::Granted => return Ok(true),
            Standing::Gone => return Ok(false),
            Standing::Behind(before) => before,
        };
        match before {
            Before::Unknown if is_in_order(sequence) => survey(attempt, place.line(), false).await?,
            Before::Unknown => {
                if !look(attempt, place, node).await? {
                    return Ok(is_granted_before(place, node).await);
                }
            }
            // After a reconnect we may be on a server that has not heard of our node yet. Believing it would leave
            // the node behind, with the next one queued up after it.
            Before::Missing if !is_missed => {
                is_missed = true;
                survey(attempt, place.line(), true).await?;
            }
            Before::Missing => return Ok(is_granted_before(place, node).await),
            Before::Unconfirmed => {
                // By now the server may have ended the session: look again once it has not.
                attempt.is(Stage::Asking);
                attempt.session.stands().await?;
                place.is_unknown();
            }
            Before::Ours(_) => {
                attempt.must_wait(None)?;
                attempt.is(Stage::Queueing);
                tokio::select! {
                    () = place.changed() => {}
                    () = &mut over => return Err(Setback::SessionOver),
                    () = &mut gone => return Ok(is_granted_before(place, node).await),
                }
            }
            Before::Theirs(theirs) => {
                attempt.must_wait(None)?;
                if !next.is_on(attempt, &theirs.name).await? {
                    settle(place, &theirs);
                    continue;
                }
                match theirs.ahead.as_ref().filter(|_| !theirs.is_first) {
                    Some(name) => {
                        if !ahead.is_on(attempt, name).await? {
                            place.is_unknown();
                            continue;
                        }
                    }
                    None => ahead = Watched::default(),
                }
                attempt.is(Stage::Queueing);
                tokio::select! {
                    event = next.changed() => match event {
                        zk::EventType::NodeDeleted => settle(place, &theirs),
                        _ => place.is_unknown(),
                    },
                    _ = ahead.changed() => place.is_unknown(),
                    () = place.changed() => {}
                    () = &mut over => return Err(Setback::SessionOver),
                    () = &mut gone => return Ok(is_granted_before(place, node).await),
                }
            }
        }
    }
}

/// The node is seen to be gone. Whether it was granted before that.
async fn is_granted_before(place: &Place, node: &Node) -> bool {
    node.is_seen_gone();
    !place.is_gone().await
}

/// The one before us is gone. If nobody was before it, nobody is before us: what came later stands behind us.
fn settle(place: &Place, theirs: &Theirs) {
    if theirs.is_first { place.is_first() } else { place.is_unknown() }
}

/// Lists the directory for all of ours that stand in it: whoever comes while another one lists waits for the next
/// listing, which is one for all of them.
async fn survey(attempt: &Attempt<'_>, line: &Arc<Line>, synced: bool) -> Result<(), Setback> {
    attempt.is(Stage::Asking);
    let wanted = line.next_survey();
    let turn = line.turn();
    let _turn = turn.lock().await;
    if line.is_surveyed(wanted, synced) {
        return Ok(());
    }
    let number = line.start_survey();
    let children = list(attempt, synced).await?;
    line.finish_survey(number, synced, &children);
    Ok(())
}

async fn list(attempt: &Attempt<'_>, synced: bool) -> Result<Vec<String>, Setback> {
    let directory = attempt.node();
    let session = attempt.session;
    let turn = session.looks.turn(directory).await;
    let answer = session
        .ask(|client| async move {
            if synced {
                client.sync(directory).await?;
            }
            client.list_children(directory).await
        })
        .await?;
    drop(turn);
    match answer {
        Ok(children) => Ok(children),
        Err(zk::Error::NoNode) => Ok(Vec::new()),
        Err(error) => Err(refused(Some(attempt.path()), "READ", &attempt.full(directory), error).into()),
    }
}

/// Finds the place of a contender whose sequence does not tell it. False: it is gone.
async fn look(attempt: &Attempt<'_>, place: &Place, node: &Node) -> Result<bool, Setback> {
    attempt.is(Stage::Asking);
    let Some(name) = node.name() else { return Ok(false) };
    let name = name.to_string();
    for synced in [false, true] {
        let children = list(attempt, synced).await?;
        let contenders;
        let position = match queue::place(&children, &name) {
            Position::Unclear => {
                contenders = transactions(attempt.session, attempt.node(), &children).await?;
                queue::by_transaction(&contenders, &name)
            }
            position => position,
        };
        match position {
            Position::First => {
                place.is_first();
                return Ok(true);
            }
            Position::Behind(before) => {
                place.is_behind(Theirs { name: before.into(), is_first: false, ahead: None });
                return Ok(true);
            }
            Position::Missing | Position::Unclear => {}
        }
    }
    Ok(false)
}

/// The contenders with the transactions that made them, those that are gone by now left out.
async fn transactions(
    session: &Session,
    directory: &str,
    children: &[String],
) -> Result<Vec<(String, i64)>, Setback> {
    let mut contenders = Vec::new();
    // In portions, so that a long queue does not flood the connection.
    for names in queue::in_order(children).chunks(200) {
        let stats = session
            .ask(|client| async move {
                // A request is sent when it is made: all of them travel together.
                let asked: Vec<_> =
                    names.iter().map(|name| client.check_stat(&format!("{directory}/{name}"))).collect();
                let mut stats = Vec::with_capacity(asked.len());
                for answer in asked {
                    stats.push(answer.await?);
                }
                Ok(stats)
            })
            .await?
            .map_err(|error| Error::Backend { path: None, source: Cause::new(error) })?;
        let found =
            names.iter().zip(stats).filter_map(|(name, stat)| Some(((*name).to_owned(), stat?.czxid)));
        contenders.extend(found);
    }
    Ok(contenders)
}

/// A contender of somebody else that is being watched.
#[derive(Default)]
struct Watched(Option<(Arc<str>, BoxFuture<zk::EventType>)>);

impl Watched {
    /// Watches the contender `name`, unless that is done already. False: it is gone.
    async fn is_on(&mut self, attempt: &Attempt<'_>, name: &Arc<str>) -> Result<bool, Setback> {
        if self.0.as_ref().is_some_and(|(watched, _)| watched == name) {
            return Ok(true);
        }
        let watcher = watch(attempt, &format!("{}/{name}", attempt.node())).await?;
        self.0 = watcher.map(|watcher| -> (_, BoxFuture<_>) {
            (name.clone(), Box::pin(async move { watcher.changed().await.event_type }))
        });
        Ok(self.0.is_some())
    }

    /// Resolves with what became of it. Cancel-safe: the watch stays.
    async fn changed(&mut self) -> zk::EventType {
        match &mut self.0 {
            Some((_, event)) => {
                let event = event.await;
                self.0 = None;
                event
            }
            None => std::future::pending().await,
        }
    }
}

/// Watches a node; `None` if it is gone already.
async fn watch(attempt: &Attempt<'_>, node: &str) -> Result<Option<zk::OneshotWatcher>, Setback> {
    let session = attempt.session;
    // Reading leaves no watch behind when the node is gone, looking does.
    match session.ask(|client| async move { client.get_and_watch_data(node).await }).await? {
        Ok((_, _, watcher)) => return Ok(Some(watcher)),
        Err(zk::Error::NoNode) => return Ok(None),
        // Another program's contender, with rights of its own.
        Err(zk::Error::NoAuth) => {}
        Err(error) => {
            return Err(refused(Some(attempt.path()), "READ", &attempt.full(node), error).into());
        }
    }
    match session.ask(|client| async move { client.check_and_watch_stat(node).await }).await? {
        Ok((stat, watcher)) => Ok(stat.map(|_| watcher)),
        Err(error) => Err(refused(Some(attempt.path()), "READ", &attempt.full(node), error).into()),
    }
}
