use super::number;
use crate::{
    contestant::{
        CURATOR,
        Contestant::{
            self, Annotated, Plain, PlainTransaction, PlainTransactionUnderLock, Raw, Transactional, Zklock,
            ZklockUnfair,
        },
    },
    results::{Case, Metric, Results, Topic},
    servers::Setup,
    workload::{DRAINED, HANDOVER_WAITERS, KEPT, ONE_PATH_TASKS, PATHS_TASKS, PROCESSES_TASKS},
};

/// What zklock is to reach, and what it reached, on one server with fsync.
pub(crate) struct Target {
    pub(crate) what: &'static str,
    pub(crate) bounds: Vec<Bound>,
}

/// One figure of a target; several of one target must all be within.
pub(crate) struct Bound {
    /// What it is a multiple of, or its unit.
    of: &'static str,
    limit: Limit,
    /// `None` where it was not measured.
    measured: Option<f64>,
}

#[derive(Clone, Copy)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
    Under(f64),
}

/// All of them, in order.
pub(crate) fn targets(results: &Results) -> Vec<Target> {
    throughputs(results).into_iter().chain(costs(results)).collect()
}

/// With the same number of tasks as the other has.
fn throughputs(results: &Results) -> Vec<Target> {
    let of_raw = |case, who, factor| Bound {
        of: "of raw",
        limit: Limit::AtLeast(factor),
        measured: results.ratio(case, who, Raw, Metric::CyclesPerSecond),
    };
    let of_curator = |case, factor| Bound {
        of: "of Curator",
        limit: Limit::AtLeast(factor),
        measured: of_better(results, case, Zklock, Metric::CyclesPerSecond, f64::max),
    };
    let of_better_use = |case, factor| Bound { of: "of the better Curator use", ..of_curator(case, factor) };
    let (serial, cold) = (main(Topic::Serial, 1), main(Topic::Cold, 1));
    let (paths, one_path) = (main(Topic::Paths, PATHS_TASKS), main(Topic::OnePath, ONE_PATH_TASKS));
    vec![
        Target {
            what: "idle acquire, hot path, p50",
            bounds: vec![Bound {
                of: "of a raw create",
                limit: Limit::AtMost(1.1),
                measured: results.ratio(serial, Zklock, Raw, Metric::IdleP50),
            }],
        },
        Target {
            what: "serial, hot path, one task",
            bounds: vec![of_raw(serial, Zklock, 1.3), of_curator(serial, 1.8)],
        },
        Target {
            what: "serial, cold keys, nothing left behind",
            bounds: vec![
                of_raw(cold, Zklock, 1.2),
                Bound {
                    of: "nodes left behind",
                    limit: Limit::AtMost(0.0),
                    measured: results.most(cold, Zklock, Metric::LeftBehind),
                },
            ],
        },
        Target {
            what: "64 paths x 64 tasks, one session",
            bounds: vec![of_raw(paths, Zklock, 3.0), of_curator(paths, 5.0)],
        },
        // A run in which the order is broken ends the bench.
        Target {
            what: "one path x 64 tasks, fair, FIFO checked",
            bounds: vec![of_raw(one_path, Zklock, 3.0), of_better_use(one_path, 25.0)],
        },
        Target { what: "one path x 64 tasks, unfair", bounds: vec![of_raw(one_path, ZklockUnfair, 8.0)] },
        Target {
            what: "4 processes x 8 tasks, one path, fair",
            bounds: vec![of_better_use(main(Topic::Processes, PROCESSES_TASKS), 2.5)],
        },
    ]
}

fn costs(results: &Results) -> Vec<Target> {
    let at_most = |value, of, measured| vec![Bound { of, limit: Limit::AtMost(value), measured }];
    let zklock = |case, metric| results.median(case, Zklock, metric);
    let [few, many] = HANDOVER_WAITERS.map(|waiters| main(Topic::Handover, waiters));
    let of_curators = |case, metric| of_better(results, case, Zklock, metric, f64::min);
    vec![
        Target {
            what: "hand-over between processes, p50 and p99",
            bounds: [
                at_most(0.55, "of Curator's p50 (2 waiters)", of_curators(few, Metric::HandoverP50)),
                at_most(0.25, "of its p99", of_curators(few, Metric::HandoverP99)),
                at_most(0.55, "of its p50 (100 waiters)", of_curators(many, Metric::HandoverP50)),
                at_most(0.25, "of its p99", of_curators(many, Metric::HandoverP99)),
            ]
            .into_iter()
            .flatten()
            .collect(),
        },
        Target {
            what: "requests at the server per cycle, 64 paths x 64 tasks",
            bounds: at_most(0.08, "", zklock(main(Topic::Paths, PATHS_TASKS), Metric::RequestsPerCycle)),
        },
        Target {
            what: "500 waiters of 4 processes drained",
            bounds: at_most(
                3.0,
                "requests a waiter",
                zklock(main(Topic::Drain, DRAINED), Metric::RequestsPerWaiter),
            ),
        },
        Target {
            what: "RSS at 10,000 held locks over none",
            bounds: at_most(10.0, "MB", zklock(main(Topic::Memory, KEPT), Metric::MemoryGrowth)),
        },
        Target {
            what: "annotated function on the memory backend, uncontended",
            bounds: vec![Bound {
                of: "µs above the plain function",
                limit: Limit::Under(1.0),
                measured: {
                    let of = |who: Contestant| (main(Topic::Macro, 1), who, Metric::CallTime);
                    results.within_rounds(&[of(Annotated), of(Plain)], |ns| (ns[0] - ns[1]) / 1e3)
                },
            }],
        },
        Target {
            what: "transactional on PostgreSQL, fenced, all guards",
            bounds: at_most(1.5, "of plain begin, body, commit, plus the lock", {
                let of = |who: Contestant| (main(Topic::Transaction, 1), who, Metric::CallP50);
                let calls = [of(Transactional), of(PlainTransactionUnderLock), of(PlainTransaction)];
                // What the lock adds to the very same calls is taken off.
                results.within_rounds(&calls, |micros| {
                    let [transactional, under_lock, plain] = [micros[0], micros[1], micros[2]];
                    (transactional - (under_lock - plain)) / plain
                })
            }),
        },
    ]
}

fn main(topic: Topic, size: usize) -> Case {
    Case { topic, setup: Setup::MAIN, size }
}

impl Target {
    pub(crate) fn limits(&self) -> String {
        listed(self.bounds.iter().map(|bound| {
            let (word, value) = match bound.limit {
                Limit::AtLeast(value) => ("at least", value),
                Limit::AtMost(value) => ("at most", value),
                Limit::Under(value) => ("under", value),
            };
            format!("{word} {value} {}", bound.of)
        }))
    }

    pub(crate) fn measured(&self) -> String {
        listed(self.bounds.iter().map(|bound| bound.measured.map_or("not measured".to_owned(), number)))
    }

    pub(crate) fn verdict(&self) -> &'static str {
        if self.bounds.iter().any(|bound| bound.measured.is_none()) {
            "not measured"
        } else if self.bounds.iter().all(Bound::is_met) {
            "met"
        } else {
            "**not met**"
        }
    }
}

impl Bound {
    fn is_met(&self) -> bool {
        self.measured.is_some_and(|measured| match self.limit {
            Limit::AtLeast(value) => measured >= value,
            Limit::AtMost(value) => measured <= value,
            Limit::Under(value) => measured < value,
        })
    }
}

fn listed(parts: impl Iterator<Item = String>) -> String {
    parts.map(|part| part.trim().to_owned()).collect::<Vec<_>>().join("; ")
}

/// Against the better of Curator's uses in each round, as `better` says which that is.
fn of_better(
    results: &Results,
    case: Case,
    who: Contestant,
    metric: Metric,
    better: fn(f64, f64) -> f64,
) -> Option<f64> {
    let took_part =
        CURATOR.into_iter().filter(|curator| results.contestants(case).any(|found| found == *curator));
    let of: Vec<_> = std::iter::once(who).chain(took_part).map(|who| (case, who, metric)).collect();
    (of.len() > 1).then(|| {
        results.within_rounds(&of, |values| {
            values[0] / values[1..].iter().copied().reduce(better).unwrap_or(f64::NAN)
        })
    })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::Contestant::{CuratorEach, CuratorShared};

    #[test]
    fn what_was_not_measured_is_not_met() {
        let targets = targets(&Results::default());
        assert_eq!(targets.len(), 13);
        assert!(targets.iter().all(|target| target.verdict() == "not measured"));
    }

    #[test]
    fn the_better_use_of_curator_counts() {
        let mut results = Results::default();
        let case = Case { topic: Topic::OnePath, setup: Setup::MAIN, size: ONE_PATH_TASKS };
        for (who, value) in [(Zklock, 100.0), (CuratorEach, 4.0), (CuratorShared, 2.0), (Raw, 10.0)] {
            results.add(case, who, &vec![(Metric::CyclesPerSecond, value)]);
        }
        let targets = targets(&results);
        let target = targets.iter().find(|target| target.what.contains("FIFO")).unwrap();
        assert_eq!((target.measured().as_str(), target.verdict()), ("10.0; 25.0", "met"));
        assert_eq!(target.limits(), "at least 3 of raw; at least 25 of the better Curator use");
    }
}
