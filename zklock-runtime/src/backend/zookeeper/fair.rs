use std::sync::Arc;

use tracing::debug;
use uuid::Uuid;
use zookeeper_client as zk;

use super::{
    answer::{Setback, refused},
    attempt::{Attempt, Stage},
    contender::OwnNode,
    entry,
    queue::{self, Place as Position},
    session::Session,
};
use crate::{
    error::{Cause, Error},
    hold::Hold,
};

/// Stands in the queue of a fair lock until it is our turn. Dropping the future withdraws: the node belongs to a
/// value that takes it away when dropped, from before the server made it.
pub(super) async fn acquire(attempt: &Attempt<'_>) -> Result<Arc<Hold>, Setback> {
    loop {
        let (own, alone, uuid) = entry::enter(attempt).await?;
        if let Some(hold) = queue_up(attempt, own, alone, uuid).await? {
            return Ok(hold);
        }
        debug!(target: "zklock", path = %attempt.request.path, "a waiting node was deleted by somebody else");
    }
}

/// Waits for our turn; `None` if the node is gone.
async fn queue_up(
    attempt: &Attempt<'_>,
    mut own: OwnNode,
    alone: bool,
    uuid: Uuid,
) -> Result<Option<Arc<Hold>>, Setback> {
    let node = own.node().clone();
    let name = own.name().to_owned();
    let mut position = if alone { Turn::Ours } else { look(attempt, &mut own, &name).await? };
    let gone = attempt.gone(&node);
    tokio::pin!(gone);
    loop {
        match position {
            Turn::Ours => match attempt.session.grant(own, attempt.grant(&node, uuid)) {
                Ok(hold) => return Ok(Some(hold)),
                Err(back) => {
                    own = back;
                    // By now the server may have ended the session: look again once it has not.
                    attempt.progress.is(Stage::Asking);
                    attempt.session.stands().await?;
                }
            },
            Turn::Gone => {
                own.is_gone();
                return Ok(None);
            }
            Turn::Behind(before) => {
                attempt.must_wait(None)?;
                let before = format!("{}/{before}", attempt.node());
                if let Some(watcher) = watch(attempt, &before).await? {
                    attempt.progress.is(Stage::Queueing);
                    tokio::select! {
                        _ = watcher.changed() => {}
                        () = &mut gone => return Ok(None),
                    }
                }
            }
        }
        position = look(attempt, &mut own, &name).await?;
    }
}

enum Turn {
    Ours,
    /// The name of the one before us.
    Behind(String),
    Gone,
}

/// Lists the queue and finds our place in it.
async fn look(attempt: &Attempt<'_>, own: &mut OwnNode, name: &str) -> Result<Turn, Setback> {
    attempt.progress.is(Stage::Asking);
    let session = attempt.session;
    let directory = attempt.node();
    let mut synced = false;
    loop {
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
        let children = match answer {
            Ok(children) => children,
            Err(zk::Error::NoNode) => Vec::new(),
            Err(error) => {
                return Err(
                    refused(Some(&attempt.request.path), "READ", &attempt.full(directory), error).into()
                );
            }
        };
        own.saw(children.len() > 1, queue::has_foreign(&children));
        let position = match queue::place(&children, name) {
            Position::Unclear => {
                let contenders = transactions(session, directory, &children).await?;
                owned(queue::by_transaction(&contenders, name))
            }
            position => owned(position),
        };
        match position {
            // After a reconnect we may be on a server that has not heard of our node yet. Believing it would
            // leave the node behind, with the next one queued up after it.
            Turn::Gone if !synced => synced = true,
            position => return Ok(position),
        }
    }
}

fn owned(position: Position<'_>) -> Turn {
    match position {
        Position::First => Turn::Ours,
        Position::Behind(before) => Turn::Behind(before.to_owned()),
        Position::Missing | Position::Unclear => Turn::Gone,
    }
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

/// Watches the node before ours; `None` if it is gone already.
async fn watch(attempt: &Attempt<'_>, before: &str) -> Result<Option<zk::OneshotWatcher>, Setback> {
    let session = attempt.session;
    // Reading leaves no watch behind when the node is gone, looking does.
    match session.ask(|client| async move { client.get_and_watch_data(before).await }).await? {
        Ok((_, _, watcher)) => return Ok(Some(watcher)),
        Err(zk::Error::NoNode) => return Ok(None),
        // Another program's contender, with rights of its own.
        Err(zk::Error::NoAuth) => {}
        Err(error) => {
            return Err(refused(Some(&attempt.request.path), "READ", &attempt.full(before), error).into());
        }
    }
    match session.ask(|client| async move { client.check_and_watch_stat(before).await }).await? {
        Ok((stat, watcher)) => Ok(stat.map(|_| watcher)),
        Err(error) => Err(refused(Some(&attempt.request.path), "READ", &attempt.full(before), error).into()),
    }
}
