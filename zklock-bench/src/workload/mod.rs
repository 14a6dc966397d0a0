mod cold;
mod one_path;
mod paths;
mod serial;

use std::fmt;

use crate::bench::Bench;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Workload {
    Serial,
    Cold,
    Paths,
    OnePath,
}

impl Workload {
    pub(crate) const ALL: [Self; 4] = [Self::Serial, Self::Cold, Self::Paths, Self::OnePath];

    /// On the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Cold => "cold",
            Self::Paths => "paths",
            Self::OnePath => "one-path",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Serial => "one task on one path: with nothing between the cycles, and idle",
            Self::Cold => "one task, never the same path twice",
            Self::Paths => "64 tasks of one session, each on a path of its own",
            Self::OnePath => "64 tasks of one session on one path",
        }
    }

    pub(crate) async fn run(self, bench: &mut Bench<'_>) -> anyhow::Result<()> {
        match self {
            Self::Serial => serial::run(bench).await,
            Self::Cold => cold::run(bench).await,
            Self::Paths => paths::run(bench).await,
            Self::OnePath => one_path::run(bench).await,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
