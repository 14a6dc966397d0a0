mod cold;
mod drain;
mod handover;
mod macros;
mod one_path;
mod paths;
mod processes;
mod rss;
mod scale;
mod serial;
mod transaction;

use std::fmt;

pub(crate) use self::{
    drain::WAITERS as DRAINED, handover::WAITERS as HANDOVER_WAITERS, one_path::TASKS as ONE_PATH_TASKS,
    paths::TASKS as PATHS_TASKS, processes::SIZE as PROCESSES_TASKS, rss::LOCKS as KEPT,
};

use crate::bench::Bench;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Serial,
    Cold,
    Paths,
    OnePath,
    Processes,
    Handover,
    Drain,
    Rss,
    Macro,
    Transaction,
    Scale,
}

impl Workload {
    pub(crate) const ALL: [Self; 11] = [
        Self::Serial,
        Self::Cold,
        Self::Paths,
        Self::OnePath,
        Self::Processes,
        Self::Handover,
        Self::Drain,
        Self::Rss,
        Self::Macro,
        Self::Transaction,
        Self::Scale,
    ];

    /// On the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Cold => "cold",
            Self::Paths => "paths",
            Self::OnePath => "one-path",
            Self::Processes => "processes",
            Self::Handover => "handover",
            Self::Drain => "drain",
            Self::Rss => "rss",
            Self::Macro => "macro",
            Self::Transaction => "transaction",
            Self::Scale => "scale",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Serial => "one task on one path: with nothing between the cycles, and idle",
            Self::Cold => "one task, never the same path twice",
            Self::Paths => "64 tasks of one session, each on a path of its own",
            Self::OnePath => "64 tasks of one session on one path; FIFO is checked",
            Self::Processes => "4 processes with 8 tasks each on one path",
            Self::Handover => {
                "from the release in one process to the grant in another, with 2 and 100 waiters"
            }
            Self::Drain => "500 waiters of 4 processes, with the requests that they make",
            Self::Rss => "memory of 10,000 held locks",
            Self::Macro => "the annotated function, the same by hand, and without a lock; in memory",
            Self::Transaction => "transactional against sqlx's begin and commit, on PostgreSQL",
            Self::Scale => "1 to 4,096 tasks, queues of 1 to 10,000, 0 to 10,000 held locks",
        }
    }

    /// How many processes of a contestant it uses, where they may be those that others used before.
    pub(crate) fn processes(self) -> usize {
        match self {
            Self::Serial | Self::Cold | Self::Paths | Self::OnePath | Self::Scale => 1,
            Self::Processes | Self::Handover | Self::Drain => 4,
            Self::Rss | Self::Macro | Self::Transaction => 0,
        }
    }

    /// Whether it uses the servers.
    pub(crate) fn is_on_servers(self) -> bool {
        self != Self::Macro
    }

    /// Whether it says something new of other servers than those of the targets.
    pub(crate) fn is_on_all_setups(self) -> bool {
        !matches!(self, Self::Drain | Self::Rss | Self::Macro | Self::Transaction | Self::Scale)
    }

    pub(crate) async fn run(self, bench: &mut Bench<'_>) -> anyhow::Result<()> {
        match self {
            Self::Serial => serial::run(bench).await,
            Self::Cold => cold::run(bench).await,
            Self::Paths => paths::run(bench).await,
            Self::OnePath => one_path::run(bench).await,
            Self::Processes => processes::run(bench).await,
            Self::Handover => handover::run(bench).await,
            Self::Drain => drain::run(bench).await,
            Self::Rss => rss::run(bench).await,
            Self::Macro => macros::run(bench).await,
            Self::Transaction => transaction::run(bench).await,
            Self::Scale => scale::run(bench).await,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
