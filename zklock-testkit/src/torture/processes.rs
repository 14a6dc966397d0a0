//! The processes that hold locks.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::args::Holding;
use super::history::Violation;
use super::holder::{BLOCK, BLOCKED, DRAIN, DRAINED, UNBLOCK};
use super::log::Follower;
use super::record::Record;
use crate::error::Error;
use crate::signal::{Signal, send};

/// How long a process may take for what it has begun, which it bounds to a few seconds itself.
const ENOUGH: Duration = Duration::from_secs(40);

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

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.alive.len()
    }

    pub(super) fn name(&self, number: usize) -> &str {
        &self.alive[number].holding.name
    }

    pub(super) fn send(&self, number: usize, signal: Signal) -> Result<(), Error> {
        self.alive[number].send(signal)
    }

    /// Kills one, and starts another in its place.
    pub(super) async fn kill(&mut self, number: usize) -> Result<(), Error> {
        self.send(number, Signal::Kill)?;
        let _ = self.alive[number].child.wait().await;
        self.next_life(number)
    }

    /// Has one come to its end, and starts another in its place.
    pub(super) async fn restart(&mut self, number: usize, record: &Record) -> Result<(), Error> {
        self.alive[number].close(record).await;
        self.next_life(number)
    }

    /// Keeps all threads busy that its tasks run on, until [`unblock`](Self::unblock). How many there are, if it
    /// worked.
    pub(super) async fn block(&mut self, number: usize) -> Option<usize> {
        let answer = self.alive[number].tell(BLOCK).await?;
        answer.strip_prefix(BLOCKED)?.trim().parse().ok()
    }

    pub(super) async fn unblock(&mut self, number: usize) {
        self.alive[number].tell(UNBLOCK).await;
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
        self.tell(DRAIN).await.is_some_and(|answer| answer == DRAINED)
    }

    /// Says a line to it, and gives its answer.
    async fn tell(&mut self, order: &str) -> Option<String> {
        let answer = async {
            let input = self.input.as_mut()?;
            input.write_all(format!("{order}\n").as_bytes()).await.ok()?;
            let mut line = String::new();
            self.output.read_line(&mut line).await.ok()?;
            Some(line.trim().to_owned())
        };
        timeout(ENOUGH, answer).await.ok().flatten()
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
