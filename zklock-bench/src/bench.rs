use std::{
    collections::BTreeMap,
    env,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::process::Command;

use crate::{
    args::Plan,
    contestant::Contestant,
    peer,
    protocol::{Cycles, Order, Shape},
    report,
    results::{Case, Metric, Results, Sample},
    running::Process,
    servers::{Servers, Setup},
};

pub(crate) fn main(plan: &Plan) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(run(plan))
}

async fn run(plan: &Plan) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut results = Results::default();
    for &setup in &plan.setups {
        let mut bench = Bench {
            plan,
            setup,
            servers: Servers::start(setup).await?,
            teams: BTreeMap::new(),
            results: &mut results,
        };
        for workload in &plan.workloads {
            workload.run(&mut bench).await.with_context(|| format!("{workload}, {setup}"))?;
        }
    }
    print!("{}", report::tables(&results));
    eprintln!("{} s in all", begun.elapsed().as_secs());
    Ok(())
}

/// One setup, with all that runs in it.
pub(crate) struct Bench<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) setup: Setup,
    pub(crate) servers: Servers,
    /// Started when they are first needed, and kept: a Java machine gets quick only with time.
    teams: BTreeMap<(Contestant, usize), Team>,
    results: &'a mut Results,
}

/// Processes of one contestant.
pub(crate) struct Team {
    /// Of the servers, with the chroot.
    pub(crate) address: String,
    pub(crate) processes: Vec<Process>,
}

/// How long a contestant may get used to its work.
const WARM_UP: Duration = Duration::from_millis(1_500);

impl Bench<'_> {
    /// Has each of the contestants that are not skipped run once in each round; who begins changes from round to round.
    pub(crate) async fn rounds(
        &mut self,
        case: Case,
        contestants: &[Contestant],
        mut run: impl AsyncFnMut(&mut Self, Contestant) -> anyhow::Result<Sample>,
    ) -> anyhow::Result<()> {
        let mut contestants: Vec<_> =
            contestants.iter().copied().filter(|contestant| !self.plan.skip.contains(contestant)).collect();
        for round in 1..=self.plan.rounds {
            for &contestant in &contestants {
                let sample = run(self, contestant).await.with_context(|| contestant.to_string())?;
                progress(case, round, contestant, &sample);
                self.results.add(case, contestant, &sample);
            }
            contestants.rotate_left(1);
        }
        Ok(())
    }

    pub(crate) fn case(&self, workload: crate::workload::Workload, size: usize) -> Case {
        Case { workload, setup: self.setup, size }
    }

    /// So many processes of a contestant.
    pub(crate) async fn team(
        &mut self,
        contestant: Contestant,
        processes: usize,
    ) -> anyhow::Result<&mut Team> {
        if !self.teams.contains_key(&(contestant, processes)) {
            let team = self.start(contestant, processes).await?;
            self.teams.insert((contestant, processes), team);
        }
        self.teams.get_mut(&(contestant, processes)).context("it was just started")
    }

    /// Processes that nobody has used before.
    pub(crate) async fn start(&self, contestant: Contestant, processes: usize) -> anyhow::Result<Team> {
        let mut team = Team { address: self.servers.chroot(contestant).await?, processes: Vec::new() };
        for number in 1..=processes {
            let command = command(contestant, &team.address)?;
            team.processes.push(Process::start(format!("{contestant} (process {number})"), command).await?);
        }
        for process in &mut team.processes {
            let millis = u64::try_from(WARM_UP.as_millis())? / processes as u64;
            let Cycles { .. } = process.ask(Order::Cycles { shape: Shape::Shared, tasks: 8, millis }).await?;
        }
        Ok(team)
    }

    /// Has a team's processes take and give back locks, all at the same time.
    pub(crate) async fn cycles(
        &mut self,
        contestant: Contestant,
        processes: usize,
        shape: Shape,
        tasks: usize,
    ) -> anyhow::Result<Sample> {
        let millis = u64::try_from(self.plan.time.as_millis())?;
        self.team(contestant, processes).await?;
        let before = self.servers.requests().await?;
        let all: Vec<Cycles> =
            self.team(contestant, processes).await?.ask(Order::Cycles { shape, tasks, millis }).await?;
        let requests = self.servers.requests().await? - before;
        anyhow::ensure!(
            all.iter().all(|one| one.in_order != Some(false)),
            "{contestant} served a later contender before an earlier one"
        );
        let cycles: u64 = all.iter().map(|one| one.cycles).sum();
        let nanos = all.iter().map(|one| one.nanos).max().unwrap_or(0);
        // Of several processes, the slowest.
        let micros = |of: fn(&Cycles) -> u64| all.iter().map(of).max().unwrap_or(0) as f64 / 1e3;
        Ok(vec![
            (Metric::CyclesPerSecond, cycles as f64 / (nanos as f64 / 1e9)),
            (Metric::AcquireP50, micros(|one| one.acquire_p50)),
            (Metric::AcquireP99, micros(|one| one.acquire_p99)),
            (Metric::RequestsPerCycle, requests as f64 / cycles as f64),
        ])
    }
}

impl Team {
    /// Asks all at the same time.
    pub(crate) async fn ask<A: serde::de::DeserializeOwned>(
        &mut self,
        order: Order,
    ) -> anyhow::Result<Vec<A>> {
        let mut asking = Vec::new();
        for process in &mut self.processes {
            asking.push(process.ask(order));
        }
        // Each writes its line at its first poll, so all must be polled together.
        join_all(asking).await.into_iter().collect()
    }
}

/// Waits for all of them, side by side.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut ready = true;
        for (future, output) in &mut futures {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => ready = false,
                }
            }
        }
        if ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

fn command(contestant: Contestant, address: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args([peer::WORD, contestant.word(), address]);
    Ok(command)
}

/// So that whoever waits sees something.
fn progress(case: Case, round: usize, contestant: Contestant, sample: &Sample) {
    let values: Vec<_> = sample
        .iter()
        .map(|(metric, value)| format!("{} {}", report::number(*value), metric.name()))
        .collect();
    eprintln!(
        "{} {} | {}, round {round} | {contestant}: {}",
        case.workload,
        case.size,
        case.setup,
        values.join(", ")
    );
}
