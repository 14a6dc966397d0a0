use std::collections::BTreeMap;

use crate::{contestant::Contestant, servers::Setup, stats::median, workload::Workload};

/// What was measured, for whom, round by round.
#[derive(Debug, Default)]
pub(crate) struct Results(BTreeMap<Case, BTreeMap<Contestant, BTreeMap<Metric, Vec<f64>>>>);

/// What all contestants of a round had to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) workload: Workload,
    pub(crate) setup: Setup,
    /// How many tasks, waiters or locks there were.
    pub(crate) size: usize,
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
    /// Requests at the servers.
    RequestsPerCycle,
    /// Nodes that are still there a moment later.
    LeftBehind,
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
            Self::RequestsPerCycle => "requests/cycle",
            Self::LeftBehind => "nodes left behind",
        }
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

    /// How many times the one has what the other has: the median of what it was in each round.
    pub(crate) fn ratio(
        &self,
        case: Case,
        one: Contestant,
        other: Contestant,
        metric: Metric,
    ) -> Option<f64> {
        let (one, other) = (self.values(case, one, metric), self.values(case, other, metric));
        let ratios: Vec<_> = one.iter().zip(other).map(|(one, other)| one / other).collect();
        median(&ratios)
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
        let case = Case { workload: Workload::Serial, setup: Setup::MAIN, size: 1 };
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
