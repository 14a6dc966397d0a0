use std::{path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};

use crate::{
    contestant::Contestant,
    servers::{Setup, Size},
    workload::Workload,
};

/// Measures zklock beside raw create + delete of nodes, and beside other locks, on servers of its own.
///
/// In each round all contestants run once, in turn, so that what else the machine does hits all alike; what is shown
/// are medians of the rounds, and ratios that were formed within a round.
///
/// `all` takes up to 25 minutes on two cores, which it wants for itself, and writes docs/benchmarks.md. A single
/// workload takes a minute or two, and prints its tables: `paths --rounds 1 --skip kazoo` is quick.
#[derive(Debug, Parser)]
#[command(name = "zklock-bench", arg_required_else_help = true)]
pub(crate) struct Args {
    /// What to measure.
    #[arg(value_enum)]
    what: What,

    /// How often each contestant runs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// How long each run takes.
    #[arg(long, default_value = "1.5", value_parser = seconds)]
    seconds: Duration,

    /// A peer to leave out; may be given several times. One that is not left out must start.
    #[arg(long, value_name = "PEER", value_parser = peer)]
    skip: Vec<String>,

    /// How many servers vote [default: both, one after the other, for `all`; else one].
    #[arg(long)]
    servers: Option<Servers>,

    /// Whether servers force each transaction to the disk [default: both for `all`; else on].
    #[arg(long)]
    fsync: Option<Fsync>,

    /// Where to write the report [default: docs/benchmarks.md for `all`; else none is written].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What is to be done, all defaults filled in.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
    pub(crate) skip: Vec<String>,
    pub(crate) setups: Vec<Setup>,
    pub(crate) out: Option<PathBuf>,
    /// Whether all is measured, so that what stands beside the targets must be short.
    all: bool,
}

impl Plan {
    /// Whether a setup is measured for less long, with fewer contestants.
    pub(crate) fn is_brief_on(&self, setup: Setup) -> bool {
        self.all && setup != Setup::MAIN
    }

    pub(crate) fn workloads_on(&self, setup: Setup) -> impl Iterator<Item = Workload> {
        let brief = self.is_brief_on(setup);
        self.workloads.iter().copied().filter(move |workload| !brief || workload.is_on_all_setups())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    All,
    One(Workload),
}

impl ValueEnum for What {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [What; Workload::ALL.len() + 1] = {
            let mut all = [What::All; Workload::ALL.len() + 1];
            let mut i = 0;
            while i < Workload::ALL.len() {
                all[i + 1] = What::One(Workload::ALL[i]);
                i += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(match self {
            Self::All => clap::builder::PossibleValue::new("all").help("all of these"),
            Self::One(workload) => clap::builder::PossibleValue::new(workload.word()).help(workload.about()),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Servers {
    One,
    Three,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fsync {
    On,
    Off,
    Both,
}

impl Args {
    pub(crate) fn into_plan(self) -> Plan {
        let all = self.what == What::All;
        let servers = self.servers.unwrap_or(if all { Servers::Both } else { Servers::One });
        let fsync = self.fsync.unwrap_or(if all { Fsync::Both } else { Fsync::On });
        let sizes: &[_] = match servers {
            Servers::One => &[Size::One],
            Servers::Three => &[Size::Three],
            Servers::Both => &[Size::One, Size::Three],
        };
        let fsyncs: &[_] = match fsync {
            Fsync::On => &[true],
            Fsync::Off => &[false],
            Fsync::Both => &[true, false],
        };
        let setups = sizes.iter().flat_map(|&size| fsyncs.iter().map(move |&fsync| Setup { size, fsync }));
        Plan {
            workloads: match self.what {
                What::All => Workload::ALL.to_vec(),
                What::One(workload) => vec![workload],
            },
            rounds: self.rounds as usize,
            time: self.seconds,
            skip: self.skip,
            setups: setups.collect(),
            all,
            out: self.out.or(all.then(|| "docs/benchmarks.md".into())),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() => Ok(time),
        Ok(_) => Err("nothing can be seen in no time".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn peer(word: &str) -> Result<String, String> {
    let mut known: Vec<_> = Contestant::ALL.into_iter().filter_map(Contestant::peer).collect();
    known.dedup();
    known
        .contains(&word)
        .then(|| word.to_owned())
        .ok_or_else(|| format!("the peers are {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, clap::Error> {
        Args::try_parse_from(format!("zklock-bench {line}").split_whitespace()).map(Args::into_plan)
    }

    #[test]
    fn all_is_everything_and_a_single_workload_is_quick() {
        let all = plan("all").unwrap();
        assert_eq!((all.workloads.len(), all.setups.len()), (Workload::ALL.len(), 4));
        assert!(all.out.is_some());
        let one = plan("paths --rounds 1 --seconds 0.5 --skip client-lock").unwrap();
        assert_eq!(one.workloads, [Workload::Paths]);
        assert_eq!(one.setups, [Setup { size: Size::One, fsync: true }]);
        assert_eq!((one.rounds, one.time), (1, Duration::from_millis(500)));
        assert_eq!((one.skip, one.out), (vec!["client-lock".to_owned()], None));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in
            ["", "dance", "paths --rounds 0", "paths --seconds 0", "paths --skip raw", "paths --skip x"]
        {
            assert!(plan(wrong).is_err(), "{wrong}");
        }
    }
}
