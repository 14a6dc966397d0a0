use anyhow::Context as _;
use tokio::task::JoinSet;

use super::locker::Locker;
use crate::protocol::{Done, Kept};

/// So many tasks at a time take the locks.
const TASKS: usize = 64;

/// Holds many locks, to see what they weigh.
pub(super) struct Keeper<L: Locker> {
    kept: Vec<L::Held>,
}

impl<L: Locker> Keeper<L> {
    pub(super) async fn keep(&mut self, locker: &L, locks: usize) -> anyhow::Result<Kept> {
        // What the first lock of a process costs is not what each costs.
        locker.prepare("/kept-first").await?;
        let first = locker.acquire("/kept-first").await?;
        locker.release(first).await?;
        locker.settled().await?;
        for lock in 0..locks {
            locker.prepare(&path::<L>(lock)).await?;
            if !L::MAKES_PATHS {
                break;
            }
        }
        let before = resident()?;
        let mut set = JoinSet::new();
        for task in 0..TASKS {
            let locker = locker.clone();
            set.spawn(async move {
                let mut kept = Vec::new();
                for lock in (task..locks).step_by(TASKS) {
                    kept.push(locker.acquire_for_long(&path::<L>(lock)).await?);
                }
                anyhow::Ok(kept)
            });
        }
        while let Some(task) = set.join_next().await {
            self.kept.append(&mut task??);
        }
        Ok(Kept { before, after: resident()? })
    }

    pub(super) async fn give_back(&mut self, locker: &L) -> anyhow::Result<Done> {
        let mut set = JoinSet::new();
        for held in self.kept.drain(..) {
            let locker = locker.clone();
            set.spawn(async move { locker.release(held).await });
        }
        while let Some(released) = set.join_next().await {
            released??;
        }
        locker.settled().await?;
        Ok(Done {})
    }
}

impl<L: Locker> Default for Keeper<L> {
    fn default() -> Self {
        Self { kept: Vec::new() }
    }
}

fn path<L: Locker>(lock: usize) -> String {
    if L::MAKES_PATHS { format!("/kept/{lock}") } else { "/kept".into() }
}

/// Of this process, in bytes.
fn resident() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}
