use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::{
    bench::Bench,
    contestant::Contestant::{self, ClientLock, CuratorEach, Kazoo, Zklock, ZklockUnfair},
    protocol::{DRAINED_PATH, Done, Order},
    results::{Metric, Sample, Topic},
    together,
};

const CONTESTANTS: [Contestant; 5] = [Zklock, ZklockUnfair, ClientLock, CuratorEach, Kazoo];

pub(crate) const WAITERS: usize = 500;
const PROCESSES: usize = 4;

const DEADLINE: Duration = Duration::from_mins(5);

pub(super) async fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let case = bench.case(Topic::Drain, WAITERS);
    bench
        .rounds(case, &CONTESTANTS, async |bench, contestant| {
            drain(bench, contestant, PROCESSES, WAITERS).await
        })
        .await
}

/// Has so many tasks queue behind a holder, and lets them through.
pub(super) async fn drain(
    bench: &mut Bench<'_>,
    contestant: Contestant,
    processes: usize,
    waiters: usize,
) -> anyhow::Result<Sample> {
    let team = bench.team(contestant, processes).await?;
    let address = team.address.clone();
    let Done {} = team.ask_first(Order::Hold).await?;

    let before = bench.servers.requests().await?;
    let queueing = Instant::now();
    let team = bench.team(contestant, processes).await?;
    let queue = |process| Order::Queue { tasks: (waiters + processes - 1 - process) / processes };
    let _: Vec<Done> = team.ask_each(queue).await?;
    // Who waits for an unfair lock stands in no queue.
    while contestant != ZklockUnfair && bench.servers.children(&address, DRAINED_PATH).await?.len() <= waiters
    {
        ensure!(queueing.elapsed() < DEADLINE, "{waiters} waiters are not in the queue after {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let queued = (bench.servers.requests().await?, queueing.elapsed());

    let draining = Instant::now();
    let team = bench.team(contestant, processes).await?;
    let Done {} = team.ask_first(Order::Release).await?;
    let drained = team.processes.iter_mut().map(|process| process.ask::<Done>(Order::Drained));
    for done in together::all(drained).await {
        let Done {} = done?;
    }
    let took = draining.elapsed();
    let requests = bench.servers.requests().await? - queued.0;

    let waiters = waiters as f64;
    Ok(vec![
        (Metric::RequestsPerWaiter, requests as f64 / waiters),
        (Metric::RequestsToQueue, (queued.0 - before) as f64 / waiters),
        (Metric::QueueTime, queued.1.as_secs_f64() * 1e6 / waiters),
        (Metric::DrainTime, took.as_secs_f64() * 1e6 / waiters),
    ])
}
