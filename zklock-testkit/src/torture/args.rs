use std::path::PathBuf;
use std::time::Duration;

pub(super) const USAGE: &str = "\
usage: torture [--minutes N] [--seed S] [--processes P] [--tasks T] [--logs FOLDER]

Runs holders of zklock's locks against a ZooKeeper ensemble of three and PostgreSQL, breaks all of it at random,
and looks through what they wrote down for anything that must not be.

  --minutes N     how long faults are made, for example 0.5; default 2
  --seed S        decides which faults are made, and what the holders do; default: drawn, and printed
  --processes P   how many processes hold locks; default 3
  --tasks T       how many tasks there are in each; default 6
  --logs FOLDER   where the logs are kept; default: a temporary folder, which is removed if all is well";

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Args {
    Supervisor(Supervision),
    /// One of the processes that hold locks, started by the supervisor.
    Holder(Holding),
    Help,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Supervision {
    pub(super) time: Duration,
    pub(super) seed: u64,
    pub(super) processes: usize,
    pub(super) tasks: usize,
    pub(super) logs: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) name: String,
    pub(super) zookeeper: String,
    /// By way of the proxy that fails.
    pub(super) postgres: String,
    /// Past it.
    pub(super) direct: String,
    pub(super) log: PathBuf,
    pub(super) seed: u64,
    /// Which holder it is, and which life of it.
    pub(super) number: u64,
    pub(super) life: u64,
    pub(super) tasks: usize,
}

impl Args {
    pub(super) fn parse(args: impl IntoIterator<Item = String>, drawn: u64) -> Result<Self, String> {
        let mut args = args.into_iter().peekable();
        if args.next_if(|word| word == Holding::WORD).is_some() {
            return Holding::parse(args).map(Self::Holder);
        }
        let mut supervision =
            Supervision { time: Duration::from_mins(2), seed: drawn, processes: 3, tasks: 6, logs: None };
        while let Some(name) = args.next() {
            if matches!(name.as_str(), "--help" | "-h") {
                return Ok(Self::Help);
            }
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--minutes" => supervision.time = minutes(&value)?,
                "--seed" => supervision.seed = number(&name, &value)?,
                "--processes" => supervision.processes = number(&name, &value)?,
                "--tasks" => supervision.tasks = number(&name, &value)?,
                "--logs" => supervision.logs = Some(value.into()),
                _ => return Err(format!("there is no option {name}")),
            }
        }
        Ok(Self::Supervisor(supervision))
    }
}

impl Holding {
    const WORD: &str = "holder";

    /// As the arguments of a process.
    pub(super) fn to_args(&self) -> Vec<String> {
        let numbers = [self.seed, self.number, self.life, self.tasks as u64].map(|number| number.to_string());
        let log = self.log.to_string_lossy().into_owned();
        let texts =
            [Self::WORD, &self.name, &self.zookeeper, &self.postgres, &self.direct].map(str::to_owned);
        texts.into_iter().chain([log]).chain(numbers).collect()
    }

    fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let args: Vec<_> = args.collect();
        let [name, zookeeper, postgres, direct, log, seed, holder, life, tasks] = args.as_slice() else {
            return Err("a holder is started by the supervisor only".into());
        };
        Ok(Self {
            name: name.clone(),
            zookeeper: zookeeper.clone(),
            postgres: postgres.clone(),
            direct: direct.clone(),
            log: log.into(),
            seed: number("seed", seed)?,
            number: number("holder", holder)?,
            life: number("life", life)?,
            tasks: number("tasks", tasks)?,
        })
    }
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = number("--minutes", text)?;
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| format!("--minutes {text}: {error}"))
}

fn number<N: std::str::FromStr<Err: std::fmt::Display>>(name: &str, text: &str) -> Result<N, String> {
    text.parse().map_err(|error| format!("{name} {text}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(line.split_whitespace().map(str::to_owned), 7)
    }

    #[test]
    fn reads_what_the_usage_says() {
        let Ok(Args::Supervisor(given)) = parse("--minutes 0.5 --seed 3 --processes 2") else { panic!() };
        assert_eq!((given.time, given.seed, given.processes), (Duration::from_secs(30), 3, 2));
        let Ok(Args::Supervisor(default)) = parse("") else { panic!() };
        assert_eq!((default.time, default.seed), (Duration::from_mins(2), 7));
        for wrong in ["--minutes", "--minutes x", "--minutes -1", "--fast 1", "holder"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_holder_reads_what_it_is_given() {
        let holding = Holding {
            name: "p1.2".into(),
            zookeeper: "zk://h:1,h:2/c".into(),
            postgres: "postgres://u@h:3/d".into(),
            direct: "postgres://u@h:4/d".into(),
            log: "/tmp/a b".into(),
            seed: u64::MAX,
            number: 1,
            life: 2,
            tasks: 4,
        };
        assert_eq!(Args::parse(holding.to_args(), 0), Ok(Args::Holder(holding)));
    }
}
