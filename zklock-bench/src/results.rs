use std::{collections::BTreeMap, fmt};

use crate::{contestant::Contestant, servers::Setup, stats::median};

/// What was measured, for whom, round by round.
#[derive(Debug, Default)]
pub(crate) struct Results(BTreeMap<Case, BTreeMap<Contestant, BTreeMap<Metric, Vec<f64>>>>);

/// What all contestants of a round had to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) topic: Topic,
    pub(crate) setup: Setup,
    /// How many tasks, waiters or locks there were.
    pub(crate) size: usize,
}

/// What is looked at, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    Serial,
    Cold,
    Paths,
    OnePath,
    Processes,
    Handover,
    Drain,
    Memory,
    /// Cycles against the number of tasks, each on its own path.
    Tasks,
    /// What a waiter costs against the length of the queue, all of one process.
    LocalQueue,
    /// The same, of two processes.
    ForeignQueue,
    /// What an acquire costs against the number of locks that are held.
    Held,
    Macro,
    Transaction,
    /// The same with locks in memory.
    TransactionInMemory,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    CyclesPerSecond,
    /// Microseconds from the call to the grant.
    AcquireP50,
    AcquireP99,
    /// The same, with nothing on its way when the call begins.
    IdleP50,
    IdleP99,
    /// Microseconds from the call that gives back in one process to the grant in another.
    HandoverP50,
    HandoverP99,
    /// How many of those there were.
    Handovers,
    /// Requests at the servers.
    RequestsPerCycle,
    /// From the release of the first holder to the end of the last.
    RequestsPerWaiter,
    /// From the first waiter's call to the last one's place in the queue.
    RequestsToQueue,
    /// Microseconds, a waiter.
    QueueTime,
    DrainTime,
    /// Nodes that are still there a moment later.
    LeftBehind,
    /// Millions of bytes.
    MemoryGrowth,
    /// Nanoseconds.
    CallTime,
    /// Microseconds.
    CallP50,
    CallP99,
}

/// What one run of one contestant gave.
pub(crate) type Sample = Vec<(Metric, f64)>;

impl Metric {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CyclesPerSecond => "cycles/s",
            Self::AcquireP50 => "acquire p50, µs",
            Self::AcquireP99 => "acquire p99, µs",
            Self::IdleP50 => "idle acquire p50, µs",
            Self::IdleP99 => "idle acquire p99, µs",
            Self::HandoverP50 => "hand-over p50, µs",
            Self::HandoverP99 => "hand-over p99, µs",
            Self::Handovers => "hand-overs seen",
            Self::RequestsPerCycle => "requests/cycle",
            Self::RequestsPerWaiter => "requests/waiter to drain",
            Self::RequestsToQueue => "requests/waiter to queue",
            Self::QueueTime => "µs/waiter to queue",
            Self::DrainTime => "µs/waiter to drain",
            Self::LeftBehind => "nodes left behind",
            Self::MemoryGrowth => "RSS grown by, MB",
            Self::CallTime => "ns/call",
            Self::CallP50 => "call p50, µs",
            Self::CallP99 => "call p99, µs",
        }
    }
}

impl Topic {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Serial => "One task on one path",
            Self::Cold => "One task, never the same path twice",
            Self::Paths => "64 tasks of one session, each on a path of its own",
            Self::OnePath => "64 tasks of one session on one path",
            Self::Processes => "4 processes with 8 tasks each on one path",
            Self::Handover => "Hand-over between processes",
            Self::Drain => "A queue of 4 processes that is drained",
            Self::Memory => "Memory of held locks",
            Self::Tasks => "Tasks, each on a path of its own",
            Self::LocalQueue => "A queue of one process",
            Self::ForeignQueue => "A queue of two processes",
            Self::Held => "An acquire while other locks are held",
            Self::Macro => "What the attribute adds, with locks in memory",
            Self::Transaction => "Transactions on PostgreSQL, with a lock of ZooKeeper",
            Self::TransactionInMemory => "Transactions on PostgreSQL, with a lock in memory",
        }
    }

    /// What the size of a case counts, where it is not said by the title.
    pub(crate) fn unit(self) -> Option<&'static str> {
        match self {
            Self::Handover | Self::Drain | Self::LocalQueue | Self::ForeignQueue => Some("waiters"),
            Self::Tasks => Some("tasks"),
            Self::Memory | Self::Held => Some("held locks"),
            _ => None,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.topic.title())?;
        if let Some(unit) = self.topic.unit() {
            write!(f, ", {} {unit}", self.size)?;
        }
        write!(f, " ({})", self.setup)
    }
}

impl Results {
    pub(crate) fn add(&mut self, case: Case, contestant: Contestant, sample: &Sample) {
        let metrics = self.0.entry(case).or_default().entry(contestant).or_default();
        for &(metric, value) in sample {
            metrics.entry(metric).or_default().push(value);
        }
    }

    pub(crate) fn cases(&self) -> impl Iterator<Item = Case> {
        self.0.keys().copied()
    }

    /// The cases of a topic on one setup, by size.
    pub(crate) fn cases_of(&self, topic: Topic, setup: Setup) -> Vec<Case> {
        self.cases().filter(|case| case.topic == topic && case.setup == setup).collect()
    }

    pub(crate) fn contestants(&self, case: Case) -> impl Iterator<Item = Contestant> {
        self.0.get(&case).into_iter().flat_map(|contestants| contestants.keys().copied())
    }

    /// What is known of at least one contestant.
    pub(crate) fn metrics(&self, case: Case) -> Vec<Metric> {
        let contestants = self.0.get(&case).into_iter().flat_map(BTreeMap::values);
        let mut metrics: Vec<_> = contestants.flat_map(|metrics| metrics.keys().copied()).collect();
        metrics.sort_unstable();
        metrics.dedup();
        metrics
    }

    pub(crate) fn median(&self, case: Case, contestant: Contestant, metric: Metric) -> Option<f64> {
        median(self.values(case, contestant, metric))
    }

    /// The largest of all rounds, for what must never be.
    pub(crate) fn most(&self, case: Case, contestant: Contestant, metric: Metric) -> Option<f64> {
        self.values(case, contestant, metric).iter().copied().reduce(f64::max)
    }

    /// How many times the one has what the other has: the median of what it was in each round.
    pub(crate) fn ratio(
        &self,
        case: Case,
        one: Contestant,
        other: Contestant,
        metric: Metric,
    ) -> Option<f64> {
        self.within_rounds(&[(case, one, metric), (case, other, metric)], |values| values[0] / values[1])
    }

    /// The median of what is formed of several values in each round.
    pub(crate) fn within_rounds(
        &self,
        of: &[(Case, Contestant, Metric)],
        form: impl Fn(&[f64]) -> f64,
    ) -> Option<f64> {
        let values: Vec<_> =
            of.iter().map(|&(case, contestant, metric)| self.values(case, contestant, metric)).collect();
        let rounds = values.iter().map(|values| values.len()).min()?;
        let formed: Vec<_> = (0..rounds)
            .map(|round| form(&values.iter().map(|values| values[round]).collect::<Vec<_>>()))
            .collect();
        median(&formed)
    }

    fn values(&self, case: Case, contestant: Contestant, metric: Metric) -> &[f64] {
        let metrics = self.0.get(&case).and_then(|contestants| contestants.get(&contestant));
        metrics.and_then(|metrics| metrics.get(&metric)).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_formed_within_a_round() {
        let mut results = Results::default();
        let case = Case { topic: Topic::Serial, setup: Setup::MAIN, size: 1 };
        // The machine was busy in the second round.
        for (raw, zklock) in [(100.0, 200.0), (10.0, 20.0), (100.0, 190.0)] {
            results.add(case, Contestant::Raw, &vec![(Metric::CyclesPerSecond, raw)]);
            results.add(case, Contestant::Zklock, &vec![(Metric::CyclesPerSecond, zklock)]);
        }
        let ratio = |one, other| results.ratio(case, one, other, Metric::CyclesPerSecond);
        assert_eq!(ratio(Contestant::Zklock, Contestant::Raw), Some(2.0));
        assert_eq!(ratio(Contestant::Zklock, Contestant::ClientLock), None);
        assert_eq!(results.median(case, Contestant::Raw, Metric::CyclesPerSecond), Some(100.0));
    }
}
