use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use zookeeper_client as zk;

use super::{
    answer::{Setback, refused},
    nodes::Tag,
    plain::is_held,
    queue,
    session::Session,
};
use crate::{backend::QueueEntry, path::LockPath};

/// How many contenders are read: operators look at the front of a queue.
const MOST: usize = 1000;

/// The queue of `path`, the holder first.
pub(super) async fn queue_of(session: &Arc<Session>, path: &LockPath) -> Result<Vec<QueueEntry>, Setback> {
    read(session, path, MOST).await
}

/// Who holds `path`, as far as it says so.
pub(super) async fn holder_of(session: &Arc<Session>, path: &LockPath) -> Option<String> {
    let holder = read(session, path, 1).await.ok()?.into_iter().next()?;
    match (holder.identity, holder.function) {
        (Some(identity), Some(function)) => Some(format!("{identity} in {function}")),
        (identity, _) => identity,
    }
}

async fn read(session: &Arc<Session>, path: &LockPath, most: usize) -> Result<Vec<QueueEntry>, Setback> {
    let node = path.as_str();
    let failed = |error| {
        let node = format!("{}{node}", session.config.address.chroot());
        Setback::from(refused(Some(path), "READ", &node, error))
    };
    let answer = session
        .ask(|client| async move {
            client.sync(node).await?;
            client.get_data(node).await
        })
        .await?;
    match answer {
        Ok((data, stat)) if is_held(&stat) => return Ok(vec![entry(node, true, &data, &stat)]),
        Err(zk::Error::NoNode) => return Ok(Vec::new()),
        // Children are listed with the same right; the list says so, if need be.
        Ok(_) | Err(_) => {}
    }
    let children = match session.ask(|client| async move { client.list_children(node).await }).await? {
        Ok(children) => children,
        Err(zk::Error::NoNode) => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let names = queue::in_order(&children);
    let clear = queue::names_decide(&names);
    let most = if clear { most } else { MOST };
    // With the transactions that made them.
    let mut entries: Vec<(i64, QueueEntry)> = Vec::new();
    for names in names[..names.len().min(most)].chunks(100) {
        let answers = session
            .ask(|client| async move {
                let asked: Vec<_> =
                    names.iter().map(|name| client.get_data(&format!("{node}/{name}"))).collect();
                let mut answers = Vec::with_capacity(asked.len());
                for answer in asked {
                    answers.push(match answer.await {
                        Ok(answer) => Some(Some(answer)),
                        Err(zk::Error::NoNode) => None,
                        // Another program's contender, with rights of its own.
                        Err(zk::Error::NoAuth) => Some(None),
                        Err(error) => return Err(error),
                    });
                }
                Ok(answers)
            })
            .await?
            .map_err(failed)?;
        for (name, answer) in names.iter().zip(answers) {
            match answer {
                Some(Some((data, stat))) => entries.push((stat.czxid, entry(name, false, &data, &stat))),
                Some(None) => {
                    // Where it stands is all that is known of it.
                    let czxid = entries.last().map_or(0, |(czxid, _)| *czxid);
                    let name = (*name).to_owned();
                    let unknown =
                        QueueEntry { is_holder: false, identity: None, function: None, since: None, name };
                    entries.push((czxid, unknown));
                }
                None => {}
            }
        }
    }
    if !clear {
        entries.sort_by_key(|(czxid, _)| *czxid);
    }
    let mut entries: Vec<_> = entries.into_iter().map(|(_, entry)| entry).collect();
    if let Some(first) = entries.first_mut() {
        first.is_holder = true;
    }
    Ok(entries)
}

fn entry(name: &str, is_holder: bool, data: &[u8], stat: &zk::Stat) -> QueueEntry {
    let tag = Tag::read(data);
    let created =
        u64::try_from(stat.ctime).ok().and_then(|time| UNIX_EPOCH.checked_add(Duration::from_millis(time)));
    let since: Option<SystemTime> = tag.since().or(created);
    QueueEntry {
        is_holder,
        identity: tag.identity,
        function: tag.function,
        since,
        name: name.rsplit('/').next().unwrap_or_default().to_owned(),
    }
}
