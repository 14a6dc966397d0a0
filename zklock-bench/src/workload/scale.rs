use super::drain::drain;
use crate::{
    bench::Bench,
    contestant::Contestant::{CuratorEach, Raw, Zklock, ZklockUnfair},
    protocol::{Done, Kept, Order, Shape},
    results::{Metric, Topic},
};

const TASKS: [usize; 7] = [1, 4, 16, 64, 256, 1_024, 4_096];
const QUEUES: [usize; 5] = [1, 10, 100, 1_000, 10_000];
const HELD: [usize; 4] = [0, 100, 1_000, 10_000];

/// Each task of Curator's is a thread.
const MOST_THREADS: usize = 256;

const ROUNDS: usize = 3;
/// Takes long, and each of its waiters is a measurement.
const LONG_QUEUE: usize = 10_000;

pub(super) async fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    tasks(bench).await?;
    queues(bench).await?;
    held(bench).await
}

async fn tasks(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for tasks in TASKS {
        let case = bench.case(Topic::Tasks, tasks);
        let contestants: &[_] = if tasks <= MOST_THREADS {
            &[Raw, Zklock, ZklockUnfair, CuratorEach]
        } else {
            &[Raw, Zklock, ZklockUnfair]
        };
        bench
            .some_rounds(ROUNDS, case, contestants, async |bench, contestant| {
                bench.cycles_for(bench.time() / 2, contestant, 1, Shape::Own, tasks).await
            })
            .await?;
    }
    Ok(())
}

async fn queues(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for waiters in QUEUES {
        for (topic, processes) in [(Topic::LocalQueue, 1), (Topic::ForeignQueue, 2)] {
            let case = bench.case(topic, waiters);
            let rounds = if waiters < LONG_QUEUE { ROUNDS } else { 1 };
            bench
                .some_rounds(rounds, case, &[Zklock], async |bench, contestant| {
                    drain(bench, contestant, processes, waiters).await
                })
                .await?;
        }
    }
    Ok(())
}

async fn held(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for locks in HELD {
        let case = bench.case(Topic::Held, locks);
        bench
            .some_rounds(ROUNDS, case, &[Raw, Zklock, ZklockUnfair], async |bench, contestant| {
                let team = bench.team(contestant, 1).await?;
                let _: Kept = team.ask_first(Order::Keep { locks }).await?;
                let mut sample = bench.cycles_for(bench.time() / 2, contestant, 1, Shape::Own, 1).await?;
                sample.retain(|(metric, _)| *metric != Metric::RequestsPerCycle);
                let team = bench.team(contestant, 1).await?;
                let Done {} = team.ask_first(Order::Unkeep).await?;
                Ok(sample)
            })
            .await?;
    }
    Ok(())
}
