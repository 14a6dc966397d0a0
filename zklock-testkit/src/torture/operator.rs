//! What operators do with the lock service while it is used.

use std::time::Duration;

use serde_json::Value;
use zklock::Locks;
use zklock::sqlx::PgPool;

use super::history::{Excuse, Reach, Violation};
use super::holder::SESSION;
use super::log::now;
use super::record::Record;
use super::work::{CROWDED, PATHS};
use crate::ensemble::Ensemble;
use crate::error::Error;
use crate::zookeeper::ZooKeeper;

/// Ends the session of whoever holds or waits.
pub(super) async fn expire(
    ensemble: &Ensemble,
    (path, fair): (&str, bool),
    contender: usize,
    record: &Record,
) -> Result<(), Error> {
    let server = ensemble.member(ensemble.leader().await?);
    let node = if fair {
        let names = queue(server, path).await?;
        let Some(name) = names.get(contender % names.len().max(1)) else { return Ok(()) };
        format!("{path}/{name}")
    } else {
        path.to_owned()
    };
    let Some(found) = server.node(&node).await?.filter(|node| node.ephemeral_owner != 0) else {
        return Ok(());
    };
    let owner = identity(&found.data);
    let (excuse, reach) = (Excuse::Expired(owner.clone()), Reach::process(&owner));
    let window = record.begin(&format!("Expire {{ process: {owner} }}"), excuse, reach);
    // It may have ended by itself meanwhile.
    let _ = server.expire_session(found.ephemeral_owner).await;
    // It hears of it when it connects again, and by its own clock in any case.
    record.end(window, SESSION);
    Ok(())
}

/// Takes the node of a waiter out of a queue. Nobody may notice but that waiter, who queues up anew.
///
/// G1 assumes that nobody deletes the node of a holder, nor of one whom the holder may hand its lock to, before these
/// can hear of it. So this never happens to such a one: the one before it must be of another session, which cannot hand
/// over in memory, and is there in the very transaction of the delete; and it must not be the next in line, who may
/// have been told so already. With that nothing is excused, and a run in which it happens is judged like any other.
pub(super) async fn delete_waiter(
    ensemble: &Ensemble,
    contender: usize,
    record: &Record,
) -> Result<(), Error> {
    const FIRST: usize = 2;
    const PATIENCE: Duration = Duration::from_secs(2);

    let (path, _) = CROWDED;
    let server = ensemble.member(ensemble.leader().await?);
    let start = tokio::time::Instant::now();
    // Queues that are long enough come and go.
    while start.elapsed() < PATIENCE {
        let names = queue(server, path).await?;
        let waiters = names.len().saturating_sub(FIRST);
        if waiters > 0 {
            let place = FIRST + contender % waiters;
            let node = |place: usize| format!("{path}/{}", names[place]);
            let (before, waiter) = (server.node(&node(place - 1)).await?, server.node(&node(place)).await?);
            if let (Some(before), Some(waiter)) = (before, waiter)
                && before.ephemeral_owner != waiter.ephemeral_owner
            {
                let fault = format!("DeleteWaiter {{ process: {} }}", identity(&waiter.data));
                let begin = now();
                if server.delete_node_while(&node(place), &node(place - 1)).await? {
                    let ago = Duration::from_nanos(now() - begin);
                    record.was(&fault, ago, Duration::ZERO, Reach::NOTHING);
                    return Ok(());
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Loses all that the lock service knows. Its servers are away for longer than a session, as an operator must keep them
/// who does this, so that nobody believes in an old lock when new ones are given; and the rows that the old locks have
/// left in the database are adopted before anybody can write again.
pub(super) async fn wipe(ensemble: &Ensemble, database: &str, record: &Record) -> Result<(), Error> {
    /// Faults go on meanwhile, those of the database included.
    const PATIENCE: Duration = Duration::from_mins(1);

    let window = record.begin("Wipe", Excuse::None, Reach::ENSEMBLE);
    for member in 0..ensemble.len() {
        ensemble.member(member).kill()?;
    }
    tokio::time::sleep(SESSION).await;
    ensemble.wipe().await?;
    match tokio::time::timeout(PATIENCE, adopt(ensemble, database)).await {
        Ok(Ok(adopted)) => record.note("rows adopted after a wipe", adopted),
        Ok(Err(error)) => record.violation(Violation::Unexpected { op: "adopting".into(), error }),
        Err(_) => record.violation(Violation::NoProgress {
            what: format!("fence rows could not be adopted within {PATIENCE:?}"),
        }),
    }
    record.end(window, SESSION);
    Ok(())
}

async fn adopt(ensemble: &Ensemble, database: &str) -> Result<usize, String> {
    let pool = PgPool::connect_lazy(database).map_err(|error| error.to_string())?;
    loop {
        let adopted = async {
            let locks = Locks::builder(&ensemble.url()).identity("operator").connect().await?;
            let adopted = locks.adopt_fence(&pool, None).await;
            locks.close().await;
            adopted
        };
        match adopted.await {
            Ok(rows) => return Ok(usize::try_from(rows).unwrap_or(usize::MAX)),
            Err(
                zklock::Error::Unavailable { .. }
                | zklock::Error::Backend { .. }
                | zklock::Error::FenceTable { .. },
            ) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Whether a session lives. A session of zklock always has a node.
pub(super) async fn is_alive(ensemble: &Ensemble, session: i64) -> Result<bool, Error> {
    let dump = ensemble.member(ensemble.leader().await?).word("dump").await?;
    Ok(dump.lines().any(|line| line.trim() == format!("{session:#x}:")))
}

/// The contenders of a fair lock in the order of the queue, while that is not at the end of its numbers.
async fn queue(server: &ZooKeeper, path: &str) -> Result<Vec<String>, Error> {
    let mut names = server.children(path).await?;
    names.retain(|name| name.contains("-lock-"));
    names.sort_by_key(|name| name.rsplit_once("-lock-").map(|(_, sequence)| sequence.to_owned()));
    Ok(names)
}

/// A node of somebody who holds or waits.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) node: String,
    /// Who says to have made it.
    pub(super) process: String,
    pub(super) session: i64,
}

/// All contenders of all paths.
pub(super) async fn contenders(ensemble: &Ensemble) -> Result<Vec<Contender>, Error> {
    let server = ensemble.member(ensemble.leader().await?);
    let mut contenders = Vec::new();
    for (path, fair) in PATHS {
        let mut nodes = vec![path.to_owned()];
        if fair {
            let names = server.children(path).await?;
            nodes = names.iter().map(|name| format!("{path}/{name}")).collect();
        }
        for node in nodes {
            if let Some(found) = server.node(&node).await?.filter(|node| node.ephemeral_owner != 0) {
                // Containers have an owner too, which is none.
                if fair || found.ephemeral_owner != i64::MIN {
                    let (process, session) = (identity(&found.data), found.ephemeral_owner);
                    contenders.push(Contender { node, process, session });
                }
            }
        }
    }
    Ok(contenders)
}

/// Who says to have made a contender.
fn identity(data: &[u8]) -> String {
    let tag: Value = serde_json::from_slice(data).unwrap_or_default();
    tag["identity"].as_str().unwrap_or_default().to_owned()
}
