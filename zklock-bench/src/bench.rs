use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};

use crate::{
    args::Plan,
    contestant::Contestant,
    launch::Launch,
    protocol::{Cycles, Order, Shape},
    report,
    results::{Case, Metric, Results, Sample, Topic},
    running::Process,
    servers::{Servers, Setup, SideServer},
    team::Team,
    together,
    workload::Workload,
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
            sides: BTreeMap::new(),
            launch: Launch::default(),
            teams: BTreeMap::new(),
            results: &mut results,
        };
        if plan.workloads_on(setup).any(Workload::is_on_servers) {
            let seconds = bench.servers.warm_up(bench.is_brief()).await?;
            eprintln!("{setup}: warmed up for {seconds} s");
        }
        for workload in plan.workloads_on(setup) {
            // Idle ones disturb the others.
            bench.teams.retain(|(_, processes), _| *processes == workload.processes());
            workload.run(&mut bench).await.with_context(|| format!("{workload}, {setup}"))?;
        }
    }
    let took = begun.elapsed();
    match &plan.out {
        Some(out) => report::write(out, &results, plan, took)?,
        None => print!("{}\n{}", report::text(&results), report::summary(&results)),
    }
    eprintln!("{} s in all", took.as_secs());
    Ok(())
}

/// One setup, with all that runs in it.
pub(crate) struct Bench<'a> {
    plan: &'a Plan,
    pub(crate) setup: Setup,
    /// Started when they are first needed, and kept: a Java machine gets quick only with time. Before the servers, since
    /// they end first.
    teams: BTreeMap<(Contestant, usize), Team>,
    pub(crate) servers: Servers,
    sides: BTreeMap<Contestant, SideServer>,
    launch: Launch,
    results: &'a mut Results,
}

impl Bench<'_> {
    pub(crate) fn case(&self, topic: Topic, size: usize) -> Case {
        Case { topic, setup: self.setup, size }
    }

    /// How long a run takes.
    pub(crate) fn time(&self) -> Duration {
        if self.is_brief() { self.plan.time / 2 } else { self.plan.time }
    }

    /// Whether this setup stands beside that of the targets in a long run.
    pub(crate) fn is_brief(&self) -> bool {
        self.plan.is_brief_on(self.setup)
    }

    pub(crate) fn round_count(&self) -> usize {
        if self.is_brief() { self.plan.rounds.min(3) } else { self.plan.rounds }
    }

    /// Has each of the contestants that take part run once in each round; who begins changes from round to round.
    pub(crate) async fn rounds(
        &mut self,
        case: Case,
        contestants: &[Contestant],
        run: impl AsyncFnMut(&mut Self, Contestant) -> anyhow::Result<Sample>,
    ) -> anyhow::Result<()> {
        self.some_rounds(self.round_count(), case, contestants, run).await
    }

    /// The same for at most so many rounds.
    pub(crate) async fn some_rounds(
        &mut self,
        rounds: usize,
        case: Case,
        contestants: &[Contestant],
        mut run: impl AsyncFnMut(&mut Self, Contestant) -> anyhow::Result<Sample>,
    ) -> anyhow::Result<()> {
        let mut contestants: Vec<_> =
            contestants.iter().copied().filter(|contestant| self.takes_part(*contestant)).collect();
        for round in 1..=rounds.min(self.round_count()) {
            for &contestant in &contestants {
                let sample = run(self, contestant).await.with_context(|| contestant.to_string())?;
                progress(case, round, contestant, &sample);
                self.results.add(case, contestant, &sample);
            }
            if !contestants.is_empty() {
                contestants.rotate_left(1);
            }
        }
        Ok(())
    }

    fn takes_part(&self, contestant: Contestant) -> bool {
        let skipped = contestant.peer().is_some_and(|peer| self.plan.skip.iter().any(|skip| skip == peer));
        // Those are single servers, and force what they write to the disk.
        let elsewhere = !contestant.is_on_zookeeper() && self.setup != Setup::MAIN;
        let in_brief = contestant.peer().is_none_or(|peer| peer == "curator");
        !skipped && !elsewhere && (in_brief || !self.is_brief()) && SideServer::is_installed(contestant)
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
    pub(crate) async fn start(&mut self, contestant: Contestant, processes: usize) -> anyhow::Result<Team> {
        let address = self.address(contestant).await?;
        let mut commands = Vec::new();
        for number in 1..=processes {
            let command = self.launch.command(contestant, &address).await?;
            commands.push((format!("{contestant}, process {number} of {processes}"), command));
        }
        let starting = commands.into_iter().map(|(name, command)| Process::start(name, command));
        let processes = together::all(starting).await.into_iter().collect::<anyhow::Result<_>>()?;
        let mut team = Team { address, processes };
        team.warm_up(contestant, self.is_brief()).await?;
        Ok(team)
    }

    async fn address(&mut self, contestant: Contestant) -> anyhow::Result<String> {
        if contestant.is_on_zookeeper() {
            return self.servers.chroot(contestant).await;
        }
        let side = match self.sides.entry(contestant) {
            Entry::Occupied(side) => side.into_mut(),
            Entry::Vacant(place) => place.insert(SideServer::start(contestant).await?),
        };
        Ok(side.address().to_owned())
    }

    /// Has a team's processes take and give back locks, all at the same time.
    pub(crate) async fn cycles(
        &mut self,
        contestant: Contestant,
        processes: usize,
        shape: Shape,
        tasks: usize,
    ) -> anyhow::Result<Sample> {
        self.cycles_for(self.time(), contestant, processes, shape, tasks).await
    }

    /// The same for so long.
    pub(crate) async fn cycles_for(
        &mut self,
        time: Duration,
        contestant: Contestant,
        processes: usize,
        shape: Shape,
        tasks: usize,
    ) -> anyhow::Result<Sample> {
        let millis = u64::try_from(time.as_millis())?.max(1);
        self.team(contestant, processes).await?;
        let before = self.servers.requests().await?;
        let all: Vec<Cycles> =
            self.team(contestant, processes).await?.ask(Order::Cycles { shape, tasks, millis }).await?;
        let requests = self.servers.requests().await? - before;
        ensure!(
            all.iter().all(|one| one.in_order != Some(false)),
            "served a later contender before an earlier one"
        );
        let cycles: u64 = all.iter().map(|one| one.count).sum();
        let nanos = all.iter().map(|one| one.nanos).max().unwrap_or(0);
        // Of several processes, the slowest.
        let micros = |of: fn(&Cycles) -> u64| all.iter().map(of).max().unwrap_or(0) as f64 / 1e3;
        let mut sample = vec![
            (Metric::CyclesPerSecond, cycles as f64 / (nanos as f64 / 1e9)),
            (Metric::AcquireP50, micros(|one| one.acquire_p50)),
            (Metric::AcquireP99, micros(|one| one.acquire_p99)),
        ];
        if contestant.is_on_zookeeper() {
            sample.push((Metric::RequestsPerCycle, requests as f64 / cycles as f64));
        }
        Ok(sample)
    }
}

/// So that whoever waits sees something.
fn progress(case: Case, round: usize, contestant: Contestant, sample: &Sample) {
    let values: Vec<_> = sample
        .iter()
        .map(|(metric, value)| format!("{} {}", metric.name(), report::number(*value)))
        .collect();
    eprintln!("{case} | round {round} | {contestant}: {}", values.join("; "));
}
