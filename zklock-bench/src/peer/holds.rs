use std::time::Duration;

use tokio::task::JoinSet;

use super::locker::Locker;
use crate::{
    clock::shared_nanos,
    protocol::{Holds, SHARED_PATH},
};

/// Each task holds in turn; between those of other processes, since all begin at times that interleave.
pub(super) async fn run<L: Locker>(
    locker: &L,
    tasks: usize,
    hold_micros: u64,
    start: u64,
    stride: u64,
    end: u64,
) -> anyhow::Result<Holds> {
    locker.prepare(SHARED_PATH).await?;
    let mut set = JoinSet::new();
    for task in 0..tasks {
        let locker = locker.clone();
        set.spawn(async move {
            let begin = start + task as u64 * stride;
            tokio::time::sleep(Duration::from_nanos(begin.saturating_sub(shared_nanos()))).await;
            let mut holds = Vec::new();
            while shared_nanos() < end {
                let held = locker.acquire(SHARED_PATH).await?;
                let granted = shared_nanos();
                tokio::time::sleep(Duration::from_micros(hold_micros)).await;
                holds.push((granted, shared_nanos()));
                locker.release(held).await?;
            }
            anyhow::Ok(holds)
        });
    }
    let mut holds = Vec::new();
    while let Some(task) = set.join_next().await {
        holds.append(&mut task??);
    }
    locker.settled().await?;
    Ok(Holds { holds })
}
