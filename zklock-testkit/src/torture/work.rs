//! One piece of work: take a lock, do something that must not be done twice at a time, give it back.

use std::sync::Arc;
use std::time::Duration;

use zklock::sqlx::{self, PgConnection, PgPool};
use zklock::{Error, Guard, LockPath, Locks, zk_lock};

use super::event::{Outcome, What};
use super::log::{Log, now};
use super::random::Random;

/// The locks of a run; each has a counter of its name.
pub(super) const PATHS: [(&str, bool); 5] =
    [CROWDED, ("/fair/0", true), ("/fair/1", true), (WRAPPING, true), ("/plain/0", false)];

/// Where several tasks of one process wait behind one another, and those of other processes between them.
pub(super) const CROWDED: (&str, bool) = ("/crowded", true);

/// Its directory's sequence is about to come to the end of its numbers.
pub(super) const WRAPPING: &str = "/wrapping";

/// What all the work of a process goes through.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) locks: Locks,
    /// For transactions, by way of the proxy that fails.
    pub(super) pool: PgPool,
    /// For readers, past it: so that they may be earlier than a COMMIT that is late.
    pub(super) direct: PgPool,
    pub(super) log: Log,
}

/// What is to be done, drawn before anything happens.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) op: String,
    pub(super) path: &'static str,
    pub(super) fair: bool,
    pub(super) increments: bool,
    /// How long the body takes, in steps between which it looks at its guard.
    pub(super) steps: u64,
    pub(super) step: Duration,
    pub(super) gives: Ending,
    /// When the caller goes away, if so.
    pub(super) leaves: Option<Duration>,
    pub(super) inspects: bool,
}

/// How a body ends that is not stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Well,
    Error,
    Panic,
}

impl Work {
    /// The tasks with an even number are those that crowd.
    pub(super) fn draw(op: String, task: usize, random: &mut Random) -> Self {
        let drawn = PATHS[random.index(PATHS.len())];
        let (path, fair) = if task.is_multiple_of(2) { CROWDED } else { drawn };
        let (increments, inspects) = (random.percent(60), random.percent(50));
        let steps = random.between(1, 4);
        let millis = match random.between(0, 100) {
            0..70 => random.between(0, 10),
            70..92 => random.between(10, 100),
            92..97 => random.between(300, 800),
            // Longer than the lock may be held.
            _ => random.between(1_000, 1_600),
        };
        let gives = match random.between(0, 100) {
            0..5 => Ending::Error,
            5 => Ending::Panic,
            _ => Ending::Well,
        };
        // In a crowd the lock is waited for longer than that.
        let leaves = random.percent(15).then(|| Duration::from_millis(random.between(0, 400)));
        let step = Duration::from_millis(millis) / u32::try_from(steps).unwrap_or(1);
        Self { op, path, fair, increments, steps, step, gives, leaves, inspects }
    }

    /// Something that is quick and must come to its end.
    pub(super) fn plain(op: String, (path, fair): (&'static str, bool)) -> Self {
        let (steps, step, gives) = (1, Duration::ZERO, Ending::Well);
        Self { op, path, fair, increments: true, steps, step, gives, leaves: None, inspects: false }
    }
}

impl Desk {
    /// Does it, and writes down what happened.
    pub(super) async fn work(self: &Arc<Self>, work: Work) -> Outcome {
        let Work { op, path, fair, increments, leaves, .. } = work.clone();
        self.log.say(now(), &op, What::Asked { path: path.to_owned(), fair, increments });
        let desk = self.clone();
        // A task, so that a panic in it is not ours.
        let mut body = tokio::spawn(async move {
            match (work.increments, work.fair) {
                (true, true) => increment_in_turn(&desk, &work).await.map(drop),
                (true, false) => increment_unfairly(&desk, &work).await.map(drop),
                (false, _) => desk.read(&work).await,
            }
        });
        let done = match leaves {
            None => (&mut body).await,
            Some(after) => {
                tokio::select! {
                    done = &mut body => done,
                    () = tokio::time::sleep(after) => {
                        self.log.say(now(), &op, What::Leaving);
                        body.abort();
                        (&mut body).await
                    }
                }
            }
        };
        let (outcome, detail) = match done {
            Ok(Ok(())) => (Outcome::Ok, String::new()),
            Ok(Err(failure)) => failure.outcome(),
            Err(error) if error.is_panic() => (Outcome::Panicked, String::new()),
            Err(_) => (Outcome::Cancelled, String::new()),
        };
        self.log.say(now(), &op, What::End { outcome, detail });
        outcome
    }

    /// Reads the counter with no transaction, and stays a while.
    async fn read(&self, work: &Work) -> Result<(), Failure> {
        let locks = self.locks.mutex(work.path).fair(work.fair).timeout(HOLD).wait(WAIT);
        // So that the queue tells which work stands where. A few bytes are never given back; so is the process.
        let function: &'static str = work.op.clone().leak();
        let guard = locks.function(function).acquire().await?;
        self.granted(work, &guard);
        if work.inspects && work.fair {
            self.inspect(work, &guard).await;
        }
        let read = guard.run(async {
            let value = counter(&self.direct, work.path).await?;
            self.log.say(now(), &work.op, What::Read { value });
            self.stay(work, &guard).await
        });
        read.await??;
        guard.release().await?;
        Ok(())
    }

    async fn inspect(&self, work: &Work, guard: &Guard) {
        let asked = now();
        let Ok(queue) = self.locks.inspect(work.path).await else { return };
        let names = queue.into_iter().map(|entry| entry.function.unwrap_or_default());
        let ahead = names.take_while(|name| *name != work.op).collect();
        self.log.say(asked, &work.op, What::Queue { ahead });
        self.held(work, guard);
    }

    fn granted(&self, work: &Work, guard: &Guard) {
        self.log.say(now(), &work.op, What::Granted { token: token(guard) });
        self.held(work, guard);
    }

    fn held(&self, work: &Work, guard: &Guard) {
        // Before the question: what is true afterwards was true all the time since the grant.
        let at = now();
        if guard.is_held() {
            self.log.say(at, &work.op, What::Held);
        }
    }

    async fn stay(&self, work: &Work, guard: &Guard) -> Result<(), Failure> {
        for _ in 0..work.steps {
            self.held(work, guard);
            tokio::time::sleep(work.step).await;
        }
        self.held(work, guard);
        match work.gives {
            Ending::Well => Ok(()),
            Ending::Error => Err(Failure::OnPurpose),
            Ending::Panic => panic!("on purpose"),
        }
    }

    /// Reads in one statement and writes in another what was computed in between, which is wrong for whoever is not
    /// alone.
    async fn increment(&self, work: &Work, guard: &Guard, tx: &mut PgConnection) -> Result<(), Failure> {
        self.granted(work, guard);
        let value = counter(&mut *tx, work.path).await? + 1;
        self.stay(work, guard).await?;
        sqlx::query("UPDATE counter SET value = $1 WHERE path = $2")
            .bind(value)
            .bind(work.path)
            .execute(&mut *tx)
            .await?;
        sqlx::query("INSERT INTO increment (path, value, token, op) VALUES ($1, $2, $3, $4)")
            .bind(work.path)
            .bind(value)
            .bind(token(guard))
            .bind(&work.op)
            .execute(tx)
            .await?;
        self.held(work, guard);
        Ok(())
    }
}

const HOLD: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_secs(3);

#[zk_lock(path = path(work), timeout = "1s", wait = "3s", locks = desk.locks, transactional(pool = desk.pool))]
async fn increment_in_turn(
    desk: &Desk,
    work: &Work,
    #[guard] guard: &Guard,
    #[tx] tx: &mut PgConnection,
) -> Result<(), Failure> {
    desk.increment(work, guard, tx).await
}

#[zk_lock(path = path(work), fair = false, timeout = "1s", wait = "3s", locks = desk.locks, transactional(pool = desk.pool))]
async fn increment_unfairly(
    desk: &Desk,
    work: &Work,
    #[guard] guard: &Guard,
    #[tx] tx: &mut PgConnection,
) -> Result<(), Failure> {
    desk.increment(work, guard, tx).await
}

fn path(work: &Work) -> Result<LockPath, Error> {
    LockPath::try_from(work.path)
}

/// Tokens of two ensembles do not compare, so it says which one.
fn token(guard: &Guard) -> String {
    let token = guard.fencing_token();
    format!("{}/{token}", token.ensemble())
}

async fn counter(database: impl sqlx::PgExecutor<'_>, path: &str) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT value FROM counter WHERE path = $1").bind(path).fetch_one(database).await
}

/// Why a piece of work did not come to its end.
#[derive(Debug)]
pub(super) enum Failure {
    Lock(Error),
    /// The body's own, so that it is rolled back.
    Sql(sqlx::Error),
    OnPurpose,
}

impl Failure {
    fn outcome(&self) -> (Outcome, String) {
        let error = match self {
            Self::OnPurpose => return (Outcome::RolledBack, String::new()),
            Self::Sql(error) => return (Outcome::RolledBack, error.to_string()),
            Self::Lock(error) => error,
        };
        let outcome = match error {
            Error::Busy { .. } => Outcome::Busy,
            Error::Unavailable { .. } => Outcome::Unavailable,
            Error::Overrun { .. } => Outcome::Overrun,
            Error::Lost { .. } => Outcome::Lost,
            Error::Fenced { .. } => Outcome::Fenced,
            Error::ForeignFence { .. } => Outcome::ForeignFence,
            Error::NotCommitted { .. } => Outcome::NotCommitted,
            Error::TransactionEnded { .. } => Outcome::TransactionEnded,
            Error::CommitUnknown { .. } => Outcome::CommitUnknown,
            Error::Database { .. } => Outcome::Database,
            Error::Backend { .. } | Error::Closed => Outcome::Backend,
            _ => Outcome::Unexpected,
        };
        (outcome, error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}
