use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::args::{Holding, Supervision};
use super::event::{Event, Outcome, What};
use super::faults;
use super::history::{self, History, Increment, Violation};
use super::holder;
use super::log::Follower;
use super::operator::{Contender, contenders};
use super::process_faults::{self, Surroundings};
use super::processes::Holders;
use super::random::Random;
use super::record::Record;
use super::stalls;
use super::work::{CROWDED, PATHS, WRAPPING, Work};
use crate::ensemble::Ensemble;
use crate::error::Error;
use crate::proxy::Proxy;
use crate::random::random;
use crate::sql::Postgres;
use crate::wait::wait_until;

/// How long a path may take to be locked once when nothing is wrong any more: what a killed process held is free
/// after its session, and the machine may be busy.
const PROGRESS: Duration = Duration::from_secs(30);

/// How many numbers there are left for the contenders of [`WRAPPING`], so that they end soon.
const LEFT: i32 = 60;

/// Runs it all, prints what came of it, and says whether all was well.
pub(super) async fn run(supervision: Supervision) -> Result<ExitCode, Error> {
    let seed = supervision.seed;
    let given = supervision.logs.clone();
    let logs = given.unwrap_or_else(|| std::env::temp_dir().join(format!("torture-{seed}-{:08x}", random())));
    fs::create_dir_all(&logs).map_err(Error::io(format!("creating {}", logs.display())))?;
    println!("seed {seed}, for {:?}, logs in {}", supervision.time, logs.display());

    let servers = Servers::start().await?;
    let record = Record::new(supervision.time);
    tokio::select! {
        done = torture(&supervision, &servers, &record, &logs) => done,
        never = stalls::watch(&servers.ensemble, &record) => never,
    }
}

async fn torture(
    supervision: &Supervision,
    servers: &Servers,
    record: &Record,
    logs: &Path,
) -> Result<ExitCode, Error> {
    let seed = supervision.seed;
    let mut follower = Follower::default();
    let first = servers.holding(seed, supervision.tasks);
    let mut holders = Holders::start(supervision.processes, &first, logs.to_owned())?;
    tokio::try_join!(
        faults::keep_failing(&servers.ensemble, &servers.url, Random::new(seed, &[u64::MAX, 0]), record),
        process_faults::keep_failing(
            &mut holders,
            servers.surroundings(),
            Random::new(seed, &[u64::MAX, 1]),
            record
        ),
        tell_each_minute(record, logs),
    )?;
    servers.ensemble.heal()?;
    servers.sql.heal()?;

    println!("the faults are over");
    holders.drain(record).await;
    servers.look_for_leftovers(record).await?;
    let last = logs.join("end.jsonl");
    progress(Holding { name: "end".into(), log: last.clone(), ..first }, record).await?;
    holders.close(record).await;
    servers.look_for_leftovers(record).await?;

    holders.tell(&mut follower);
    follower.add(last);
    follower.catch_up().map_err(Error::io("reading the logs"))?;
    let history = servers.history(follower.events, record).await?;
    keep(logs, &history).map_err(Error::io("writing to the logs"))?;
    let mut violations = record.violations();
    violations.extend(history::check(&history));
    println!("{}", summary(&history.events, history.increments.len(), record));
    tell(&violations, seed);
    if violations.is_empty() {
        if supervision.logs.is_none() {
            let _ = fs::remove_dir_all(logs);
        }
        return Ok(ExitCode::SUCCESS);
    }
    println!("the logs are kept in {}", logs.display());
    Ok(ExitCode::FAILURE)
}

/// What holders need: an ensemble, and a database with a counter for each path.
#[derive(Debug)]
struct Servers {
    ensemble: Ensemble,
    postgres: Postgres,
    url: String,
    /// Before the database.
    sql: Proxy,
}

impl Servers {
    async fn start() -> Result<Self, Error> {
        let (ensemble, postgres) = tokio::try_join!(
            ensemble(),
            Postgres::builder().setting("track_commit_timestamp", "on").start()
        )?;
        let url = postgres.create_database("torture").await?;
        let mut tables = String::from(
            "CREATE TABLE counter (path text PRIMARY KEY, value bigint NOT NULL);
             CREATE TABLE increment (id bigserial, path text, value bigint, token text, op text);",
        );
        for (path, _) in PATHS {
            // Writing to a String does not fail.
            let _ = write!(tables, "INSERT INTO counter VALUES ('{path}', 0);");
        }
        postgres.sql(&url, &tables).await?;
        let sql = Proxy::start(&url).await?;
        Ok(Self { ensemble, postgres, url, sql })
    }

    fn holding(&self, seed: u64, tasks: usize) -> Holding {
        Holding {
            name: String::new(),
            zookeeper: self.ensemble.url(),
            postgres: self.sql.url(&self.url),
            direct: self.url.clone(),
            log: PathBuf::new(),
            seed,
            number: 0,
            life: 0,
            tasks,
        }
    }

    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings { ensemble: &self.ensemble, postgres: &self.postgres, sql: &self.sql }
    }

    /// With nobody at work there is no contender and no transaction; but what a killed process left takes the
    /// session timeout.
    async fn look_for_leftovers(&self, record: &Record) -> Result<(), Error> {
        const SOON: Duration = Duration::from_secs(15);

        let mut left = Vec::new();
        let gone = wait_until(SOON, "contenders to go", async || {
            match contenders(&self.ensemble).await {
                Ok(found) => left = found,
                Err(_) => return false,
            }
            left.is_empty()
        });
        if gone.await.is_err() {
            for Contender { node, process: owner, .. } in left {
                record.violation(Violation::Orphan { node, owner });
            }
        }
        let mut open = String::new();
        let ended = wait_until(SOON, "transactions to end", async || {
            let asked = "SELECT pid, state, xact_start, query FROM pg_stat_activity \
                         WHERE datname = current_database() AND xact_start IS NOT NULL \
                         AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
            match self.postgres.sql(&self.url, asked).await {
                Ok(found) => open = found,
                Err(_) => return false,
            }
            open.is_empty()
        });
        if ended.await.is_err() {
            record.violation(Violation::OpenTransaction { what: open });
        }
        Ok(())
    }

    async fn history(&self, events: Vec<Event>, record: &Record) -> Result<History, Error> {
        let wrong = |answer: &str| Error::Answer { asked: "the database".into(), answer: answer.to_owned() };
        let asked =
            "SELECT path, value, token, op FROM increment ORDER BY pg_xact_commit_timestamp(xmin), id";
        let mut increments = Vec::new();
        for line in self.postgres.sql(&self.url, asked).await?.lines() {
            let fields: Vec<_> = line.split('|').collect();
            let [path, value, token, op] = fields[..] else { return Err(wrong(line)) };
            increments.push(Increment {
                path: path.to_owned(),
                value: value.parse().map_err(|_| wrong(line))?,
                token: token.to_owned(),
                op: op.to_owned(),
            });
        }
        let mut counters = BTreeMap::new();
        for line in self.postgres.sql(&self.url, "SELECT path, value FROM counter").await?.lines() {
            let (path, value) = line.split_once('|').ok_or_else(|| wrong(line))?;
            counters.insert(path.to_owned(), value.parse().map_err(|_| wrong(line))?);
        }
        Ok(History { events, increments, counters, faults: record.windows() })
    }
}

/// Three servers, with a directory whose sequence is about to end.
async fn ensemble() -> Result<Ensemble, Error> {
    const CATCH_UP: Duration = Duration::from_mins(1);

    let ensemble = Ensemble::start(3).await?;
    let member = ensemble.member(ensemble.leader().await?);
    // Its child keeps the directory from being deleted as an empty one.
    let child = format!("{WRAPPING}/config");
    member.create_node(WRAPPING, b"").await?;
    member.create_node(&child, b"").await?;
    for member in 0..ensemble.len() {
        wait_until(CATCH_UP, "a member to catch up", async || {
            ensemble.member(member).children(WRAPPING).await.is_ok_and(|names| !names.is_empty())
        })
        .await?;
    }
    for member in 0..ensemble.len() {
        ensemble.member(member).kill()?;
    }
    for member in 0..ensemble.len() {
        ensemble.member(member).set_child_counter(&child, i32::MAX - LEFT)?;
        ensemble.member(member).start_again()?;
    }
    ensemble.wait_until_serving().await?;
    Ok(ensemble)
}

/// Every path can be locked and counted once more.
async fn progress(holding: Holding, record: &Record) -> Result<(), Error> {
    let desk = holder::open(&holding).await?;
    for (number, path) in PATHS.into_iter().enumerate() {
        let start = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            let outcome = desk.work(Work::plain(format!("end-{number}-{tries}"), path)).await;
            if outcome == Outcome::Ok {
                break;
            }
            if start.elapsed() > PROGRESS {
                let what = format!("{} could not be locked within {PROGRESS:?}: {outcome:?}", path.0);
                record.violation(Violation::NoProgress { what });
                break;
            }
        }
    }
    desk.locks.close().await;
    Ok(())
}

async fn tell_each_minute(record: &Record, logs: &Path) -> Result<(), Error> {
    const MINUTE: Duration = Duration::from_mins(1);

    let mut follower = Follower::default();
    let mut known = Vec::new();
    while record.remaining() > MINUTE {
        tokio::time::sleep(MINUTE).await;
        let found = logs_in(logs).map_err(Error::io("looking for logs"))?;
        for log in found.into_iter().filter(|log| !known.contains(log)).collect::<Vec<_>>() {
            known.push(log.clone());
            follower.add(log);
        }
        follower.catch_up().map_err(Error::io("reading the logs"))?;
        println!("{}", summary(&follower.events, 0, record));
    }
    Ok(())
}

fn logs_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder)?.map(|file| file.map(|file| file.path()));
    let files: Vec<_> = files.collect::<Result<_, _>>()?;
    Ok(files.into_iter().filter(|file| file.extension().is_some_and(|end| end == "jsonl")).collect())
}

/// Counts of what there was.
fn summary(events: &[Event], increments: usize, record: &Record) -> String {
    let mut outcomes: BTreeMap<Outcome, usize> = BTreeMap::new();
    let mut granted: BTreeSet<&str> = BTreeSet::new();
    let mut crowd = Vec::new();
    let mut crowded = BTreeSet::new();
    for Event { at, op, what } in events {
        match what {
            What::Asked { path, .. } if path == CROWDED.0 => drop(crowded.insert(op.as_str())),
            What::Granted { .. } => {
                granted.insert(op);
                crowd.push((*at, op.as_str()));
            }
            What::End { outcome, .. } => *outcomes.entry(*outcome).or_default() += 1,
            _ => {}
        }
    }
    let left = events.iter().filter(|event| event.what == What::Leaving);
    let waiting = left.filter(|event| !granted.contains(event.op.as_str())).count();
    crowd.retain(|(_, op)| crowded.contains(op));
    crowd.sort_unstable();
    let process = |(_, op): &(u64, &str)| op.split_once('-').map(|(process, _)| process.to_owned());
    let within = crowd.windows(2).filter(|pair| process(&pair[0]) == process(&pair[1])).count();

    let mut text = format!("grants {}", granted.len());
    if increments > 0 {
        let _ = write!(text, ", commits {increments}");
    }
    let _ = write!(text, ", on {} {}, {within} of them within one process", CROWDED.0, crowd.len());
    let _ = write!(text, ", cancelled before the grant {waiting}");
    let _ = write!(text, "\n  outcomes:");
    for (outcome, count) in outcomes {
        let _ = write!(text, " {outcome:?} {count}");
    }
    let _ = write!(text, "\n  faults:");
    for (fault, count) in record.counts() {
        let _ = write!(text, " {fault} {count}");
    }
    for (what, count) in record.notes() {
        let _ = write!(text, "; {what} {count}");
    }
    text
}

fn tell(violations: &[Violation], seed: u64) {
    const MOST: usize = 20;

    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for violation in violations {
        *kinds.entry(violation.name()).or_default() += 1;
    }
    for violation in violations.iter().take(MOST) {
        println!("VIOLATION {violation}");
    }
    let kinds: Vec<_> = kinds.into_iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let kinds = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
    println!("seed {seed}, violations: {kinds}");
}

/// Puts what is not in the logs beside them.
fn keep(logs: &Path, history: &History) -> std::io::Result<()> {
    let mut text = String::new();
    for fault in &history.faults {
        let _ = writeln!(text, "{} {} {} {:?}", fault.begin, fault.end, fault.fault, fault.excuse);
    }
    fs::write(logs.join("faults.txt"), text)?;
    let mut text = String::new();
    for Increment { path, value, token, op } in &history.increments {
        let _ = writeln!(text, "{path} {value} {token} {op}");
    }
    fs::write(logs.join("increments.txt"), text)
}
