use std::time::Duration;

use anyhow::ensure;

use crate::{
    bench::Bench,
    clock::shared_nanos,
    contestant::Contestant::{self, ClientLock, CuratorEach, CuratorShared, Kazoo, Zklock, ZklockUnfair},
    protocol::{Holds, Order},
    results::{Metric, Sample, Topic},
    stats::percentile,
};

const CONTESTANTS: [Contestant; 6] = [Zklock, ZklockUnfair, ClientLock, CuratorEach, CuratorShared, Kazoo];

pub(crate) const WAITERS: [usize; 2] = [2, 100];

const PROCESSES: usize = 4;
/// How long each holds, so that the one before it is back in the queue in time.
const HOLD_MICROS: u64 = 1_000;
/// One task comes so long after the other, so that those of the processes take turns in the queue.
const STEP: Duration = Duration::from_millis(4);

pub(super) async fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let first = if bench.is_brief() { WAITERS.len() - 1 } else { 0 };
    for waiters in WAITERS.into_iter().skip(first) {
        let case = bench.case(Topic::Handover, waiters);
        bench
            .rounds(case, &CONTESTANTS, async |bench, contestant| hand_over(bench, contestant, waiters).await)
            .await?;
    }
    Ok(())
}

async fn hand_over(bench: &mut Bench<'_>, contestant: Contestant, waiters: usize) -> anyhow::Result<Sample> {
    let time = bench.time();
    // One holds while the others wait.
    let tasks = waiters + 1;
    let processes = tasks.min(PROCESSES);
    // Those that have no task look on.
    let team = bench.team(contestant, PROCESSES).await?;
    let step = u64::try_from(STEP.as_nanos())?;
    let start = shared_nanos() + u64::try_from(Duration::from_millis(50).as_nanos())?;
    let all_there = start + tasks as u64 * step;
    let end = all_there + u64::try_from(time.as_nanos())?;
    let all: Vec<Holds> = team
        .ask_each(|process| Order::Holds {
            tasks: if process < processes { (tasks - process).div_ceil(processes) } else { 0 },
            hold_micros: HOLD_MICROS,
            start: start + process as u64 * step,
            stride: processes as u64 * step,
            end,
        })
        .await?;
    let mut holds: Vec<_> = all
        .iter()
        .enumerate()
        .flat_map(|(process, holds)| {
            holds.holds.iter().map(move |&(granted, released)| (granted, released, process))
        })
        .collect();
    holds.sort_unstable();
    let mut hand_overs = Vec::new();
    for pair in holds.windows(2) {
        let [(_, released, from), (granted, _, to)] = *pair else { continue };
        ensure!(granted > released, "two processes held the lock at the same time");
        if from != to && (all_there..end).contains(&released) {
            hand_overs.push(granted - released);
        }
    }
    let mut sample = vec![(Metric::Handovers, hand_overs.len() as f64)];
    // None is not one that takes no time.
    if !hand_overs.is_empty() {
        sample.push((Metric::HandoverP50, percentile(&mut hand_overs, 50) as f64 / 1e3));
        sample.push((Metric::HandoverP99, percentile(&mut hand_overs, 99) as f64 / 1e3));
    }
    Ok(sample)
}
