use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::task::JoinSet;
use zklock_testkit::Chroot;
use zookeeper_client::{Acls, Client, CreateMode, MultiWriteResult};

const TASKS: usize = 64;
/// Of nodes, in a request for several.
const BATCH: usize = 8;
/// The throughput of a second is looked at after each.
const LOOK: Duration = Duration::from_secs(1);
/// So many looks are compared with as many before them: single ones differ, and get worse while the machine compiles.
const WINDOW: usize = 5;
/// What is less than so many times what it was has not grown.
const GROWTH: f64 = 1.05;

/// Creates and deletes nodes below `chroot` until that gets no quicker, for at most so many seconds: what the Java machines of
/// the servers have not compiled yet would be on the bill of whoever is measured first. Returns how many seconds it took.
pub(super) async fn run(chroot: &Chroot, at_most: usize) -> anyhow::Result<usize> {
    let (servers, path) = chroot_of(chroot)?;
    let client = Client::connector().with_session_timeout(Duration::from_secs(30)).connect(&servers).await?;
    let (nodes, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let folder = format!("{path}/{task}");
        client.create(&folder, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
        let (client, nodes, is_over) = (client.clone(), nodes.clone(), is_over.clone());
        tasks.spawn(async move {
            while !is_over.load(Relaxed) {
                // Some of the tasks ask for one thing at a time, others for several: both are measured.
                let made = if task % 2 == 0 {
                    one_by_one(&client, &folder).await?
                } else {
                    together(&client, &folder).await?
                };
                nodes.fetch_add(made, Relaxed);
            }
            anyhow::Ok(())
        });
    }
    let (mut seconds, mut before) = (Vec::new(), 0);
    while seconds.len() < at_most && !has_settled(&seconds) {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            // None ends by itself.
            Some(failed) = tasks.join_next() => failed?.context("while the servers are warmed up")?,
        }
        let now = nodes.load(Relaxed);
        seconds.push(now - before);
        before = now;
    }
    is_over.store(true, Relaxed);
    while let Some(task) = tasks.join_next().await {
        task?.context("while the servers are warmed up")?;
    }
    for task in 0..TASKS {
        client.delete(&format!("{path}/{task}"), None).await?;
    }
    Ok(seconds.len())
}

/// Whether the last throughputs are hardly better than those before them.
fn has_settled(throughputs: &[u64]) -> bool {
    let Some((earlier, last)) = throughputs.split_last_chunk::<WINDOW>() else { return false };
    let Some(before) = earlier.last_chunk::<WINDOW>() else { return false };
    let sum = |some: &[u64; WINDOW]| some.iter().sum::<u64>() as f64;
    sum(last) < sum(before) * GROWTH
}

async fn one_by_one(client: &Client, folder: &str) -> anyhow::Result<u64> {
    let prefix = format!("{folder}/c-");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, sequence) = client.create(&prefix, b"", &options).await?;
    client.delete(&format!("{prefix}{sequence}"), None).await?;
    Ok(1)
}

async fn together(client: &Client, folder: &str) -> anyhow::Result<u64> {
    let prefix = format!("{folder}/c-");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let mut creates = client.new_multi_writer();
    for _ in 0..BATCH {
        creates.add_create(&prefix, b"", &options)?;
    }
    let mut deletes = client.new_multi_writer();
    for made in creates.commit().await? {
        let MultiWriteResult::Create { path, .. } = made else {
            bail!("a create was answered with {made:?}")
        };
        deletes.add_delete(&path, None)?;
    }
    deletes.commit().await?;
    Ok(BATCH as u64)
}

/// The servers, and where to be on them.
fn chroot_of(chroot: &Chroot) -> anyhow::Result<(String, &str)> {
    let address = chroot.connect_string();
    let servers = address.strip_suffix(chroot.path()).context("the address has no chroot")?;
    Ok((servers.to_owned(), chroot.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_while_it_gets_quicker() {
        let (slow, quick) = ([100; WINDOW], [104; WINDOW]);
        assert!(!has_settled(&[]));
        assert!(!has_settled(&slow));
        assert!(has_settled(&[slow, quick].concat()));
        assert!(has_settled(&[quick, slow].concat()));
        assert!(!has_settled(&[slow, [106; WINDOW]].concat()));
        // A bad second says nothing.
        assert!(!has_settled(&[slow, [140, 140, 140, 140, 10]].concat()));
        // Only the last ones count.
        assert!(has_settled(&[[1; WINDOW], slow, quick].concat()));
    }

    #[tokio::test]
    async fn it_ends_in_time_and_leaves_nothing_behind() {
        let server = zklock_testkit::ZooKeeper::shared().await.unwrap();
        let chroot = server.chroot("warm-up").await.unwrap();
        assert_eq!(run(&chroot, 2).await.unwrap(), 2);
        assert!(server.children(chroot.path()).await.unwrap().is_empty());
    }
}
