//! The processes that hold locks, and what is done to them and to their way to the database.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::args::Holding;
use super::faults::lasts;
use super::history::{Excuse, Violation};
use super::holder::{DRAIN, DRAINED};
use super::log::Follower;
use super::random::Random;
use super::record::Record;
use crate::error::Error;
use crate::proxy::{Direction, Proxy};
use crate::signal::{Signal, send};

/// How long a process may take for what it has begun, which it bounds to a few seconds itself.
const ENOUGH: Duration = Duration::from_secs(40);

/// How far away the database is while nothing else is wrong.
const FAR: Duration = Duration::from_millis(20);

/// All processes that hold locks now.
#[derive(Debug)]
pub(super) struct Holders {
    alive: Vec<Holder>,
    logs: PathBuf,
    /// Those that were started and not yet followed.
    started: Vec<PathBuf>,
}

#[derive(Debug)]
struct Holder {
    holding: Holding,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Holders {
    /// So many processes as `first`, which names neither itself nor its log.
    pub(super) fn start(processes: usize, first: &Holding, logs: PathBuf) -> Result<Self, Error> {
        let mut this = Self { alive: Vec::new(), logs, started: Vec::new() };
        for number in 0..processes {
            let holder = this.spawn(Holding { number: number as u64, ..first.clone() })?;
            this.alive.push(holder);
        }
        Ok(this)
    }

    /// Lets `follower` know of the logs of all processes that were started.
    pub(super) fn tell(&mut self, follower: &mut Follower) {
        self.started.drain(..).for_each(|log| follower.add(log));
    }

    fn spawn(&mut self, mut holding: Holding) -> Result<Holder, Error> {
        holding.name = format!("p{}.{}", holding.number, holding.life);
        holding.log = self.logs.join(format!("{}.jsonl", holding.name));
        self.started.push(holding.log.clone());
        let errors = File::create(self.logs.join(format!("{}.stderr", holding.name)))
            .map_err(Error::io("creating a log"))?;
        let program = std::env::current_exe().map_err(Error::io("looking for this program"))?;
        let mut child = Command::new(program)
            .args(holding.to_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(Error::io("starting a holder"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::io("starting a holder")(std::io::ErrorKind::BrokenPipe.into()));
        };
        Ok(Holder { holding, child, input: Some(input), output: BufReader::new(output) })
    }

    fn next_life(&mut self, number: usize) -> Result<(), Error> {
        let mut holding = self.alive[number].holding.clone();
        holding.life += 1;
        self.alive[number] = self.spawn(holding)?;
        Ok(())
    }

    /// Has all of them end what they have begun, and begin nothing more.
    pub(super) async fn drain(&mut self, record: &Record) {
        for holder in &mut self.alive {
            let name = holder.holding.name.clone();
            if !holder.drain().await {
                record.violation(Violation::NoProgress {
                    what: format!("{name} did not come to the end of what it had begun"),
                });
            }
        }
    }

    /// Has all of them close their locks and end.
    pub(super) async fn close(&mut self, record: &Record) {
        for holder in &mut self.alive {
            holder.close(record).await;
        }
    }
}

impl Holder {
    async fn drain(&mut self) -> bool {
        let drained = async {
            let input = self.input.as_mut()?;
            input.write_all(format!("{DRAIN}\n").as_bytes()).await.ok()?;
            let mut line = String::new();
            self.output.read_line(&mut line).await.ok()?;
            (line.trim() == DRAINED).then_some(())
        };
        timeout(ENOUGH, drained).await.is_ok_and(|drained| drained.is_some())
    }

    async fn close(&mut self, record: &Record) {
        self.input = None;
        match timeout(ENOUGH, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => {}
            Ok(ended) => record.violation(Violation::NoProgress {
                what: format!("{} ended with {ended:?}", self.holding.name),
            }),
            Err(_) => {
                record.violation(Violation::NoProgress {
                    what: format!("{} did not close its locks", self.holding.name),
                });
                let _ = self.child.kill().await;
            }
        }
    }

    fn send(&self, signal: Signal) -> Result<(), Error> {
        self.child.id().map_or(Ok(()), |id| send(id, signal))
    }
}

/// A fault of a process, or between it and its database.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Stop { process: usize },
    Kill { process: usize },
    Restart { process: usize },
    CutSql,
    BlackHoleSql { direction: Direction },
    DelaySql { delay: Duration },
    SwallowCommit { nth: u64 },
    DropCommit { nth: u64 },
    HoldCommit { nth: u64 },
}

/// Makes faults for so long, from choices that depend on the seed alone.
pub(super) async fn keep_failing(
    holders: &mut Holders,
    sql: &Proxy,
    mut random: Random,
    record: &Record,
) -> Result<(), Error> {
    loop {
        let (fault, lasts) = Fault::draw(&mut random, holders.alive.len());
        let pause = Duration::from_millis(random.between(200, 2_500));
        // A COMMIT takes longer than it takes to hand on the lock, so that one before the other shows.
        sql.delay(FAR, Direction::ToServer);
        let go_on = record.pause(pause).await;
        sql.heal()?;
        if !go_on {
            return Ok(());
        }
        fault.happen(holders, sql, lasts, record).await?;
    }
}

impl Fault {
    fn draw(random: &mut Random, processes: usize) -> (Self, Duration) {
        let process = random.index(processes);
        let direction = [Direction::ToServer, Direction::ToClient, Direction::Both][random.index(3)];
        let (nth, delay) = (random.between(1, 6), Duration::from_millis(random.between(10, 200)));
        let (lasts, long) = (lasts(random), Duration::from_millis(random.between(4_500, 8_000)));
        let fault = match random.index(18) {
            0..3 => Self::Stop { process },
            // Longer than its session: others have its locks when it goes on.
            3 | 4 | 16 | 17 => return (Self::Stop { process }, long),
            5 | 6 => Self::Kill { process },
            7 => Self::Restart { process },
            8 => Self::CutSql,
            9 => Self::BlackHoleSql { direction },
            10 | 13 | 14 => Self::DelaySql { delay },
            11 => Self::SwallowCommit { nth },
            12 => Self::DropCommit { nth },
            _ => Self::HoldCommit { nth },
        };
        (fault, lasts)
    }

    async fn happen(
        self,
        holders: &mut Holders,
        sql: &Proxy,
        lasts: Duration,
        record: &Record,
    ) -> Result<(), Error> {
        let excuse = match self {
            Self::Stop { .. } | Self::Kill { .. } | Self::BlackHoleSql { .. } | Self::HoldCommit { .. } => {
                Excuse::LateCommit
            }
            // A delay is far shorter than what zklock allows for between the last look at the clock and the end of
            // the session.
            _ => Excuse::None,
        };
        let window = record.begin(&format!("{self:?}"), excuse);
        match self {
            Self::Stop { process } => {
                holders.alive[process].send(Signal::Stop)?;
                tokio::time::sleep(lasts).await;
                holders.alive[process].send(Signal::Continue)?;
            }
            Self::Kill { process } => {
                holders.alive[process].send(Signal::Kill)?;
                let _ = holders.alive[process].child.wait().await;
                holders.next_life(process)?;
            }
            Self::Restart { process } => {
                holders.alive[process].close(record).await;
                holders.next_life(process)?;
            }
            Self::CutSql => sql.cut(),
            Self::BlackHoleSql { direction } => sql.black_hole(direction),
            Self::DelaySql { delay } => sql.delay(delay, Direction::Both),
            Self::SwallowCommit { nth } => drop(sql.swallow_reply("COMMIT", nth)),
            Self::DropCommit { nth } => drop(sql.drop_request("COMMIT", nth)),
            Self::HoldCommit { nth } => drop(sql.hold_request("COMMIT", nth)),
        }
        if !matches!(self, Self::Stop { .. } | Self::Kill { .. } | Self::Restart { .. } | Self::CutSql) {
            tokio::time::sleep(lasts).await;
            sql.heal()?;
        }
        // What was on its way arrives.
        record.end(window, Duration::from_secs(5));
        Ok(())
    }
}
