use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use sqlx::Pool;
use tokio::{runtime::Handle, sync::oneshot::Sender};
use uuid::Uuid;

use super::{
    Tx, TxSpec,
    database::{Database, Limits, roll_back_all},
    fence::{Fence, NotReady, Row, Stored},
    session::{self, Phase, Session},
    unbroken::Unbroken,
};
use crate::{
    clock::Tick,
    engine::Engine,
    error::{Cause, Error},
    hold::Hold,
};

/// How long a connection is still waited for that nobody wants any more.
const LINGER: Duration = Duration::from_secs(1);

/// Begins, and goes on with that when the caller goes away: a connection on which BEGIN was cut short would give its
/// next borrower a transaction that nobody ends.
pub(crate) async fn begin<'a, DB: Database>(
    pool: Pool<DB>,
    hold: &Arc<Hold>,
    spec: TxSpec,
    engine: &Arc<Engine>,
    fence: &Arc<Fence>,
    grace: Duration,
) -> Result<Tx<'a, DB>, Error> {
    let Ok(runtime) = Handle::try_current() else {
        return Err(failed(hold, "a transaction needs a Tokio runtime, and there is none here"));
    };
    let work = Begin { pool, hold: hold.clone(), spec, engine: engine.clone(), fence: fence.clone(), grace };
    let begun = Unbroken::new(runtime, |reply| work.run(reply)).await;
    begun.unwrap_or_else(|_| Err(failed(hold, "the Tokio runtime is shutting down")))
}

struct Begin<DB: Database> {
    pool: Pool<DB>,
    hold: Arc<Hold>,
    spec: TxSpec,
    engine: Arc<Engine>,
    fence: Arc<Fence>,
    grace: Duration,
}

/// What the caller gets. That it rolls back when it is dropped counts on the way too.
type Reply<DB> = Sender<Result<Tx<'static, DB>, Error>>;

impl<DB: Database> Begin<DB> {
    async fn run(self, mut reply: Reply<DB>) {
        let mut acquire = pin!(self.pool.acquire());
        let mut over = pin!(session::over(&self.hold));
        let connection = tokio::select! {
            biased;
            connection = &mut acquire => connection,
            () = reply.closed() => return linger(acquire).await,
            reason = &mut over => {
                let _ = reply.send(Err(self.hold.error(reason)));
                return linger(acquire).await;
            }
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                let _ = reply.send(Err(failed(&self.hold, error)));
                return;
            }
        };
        let mut session = Box::new(Session::new(
            connection,
            &self.pool,
            &self.hold,
            &self.engine,
            self.spec.unfenced,
            self.grace,
        ));
        let begun = tokio::select! {
            biased;
            begun = self.start(&mut session) => begun,
            reason = over => {
                // Whoever waits need not wait for the clean-up, which the lock waits for.
                let _ = reply.send(Err(self.hold.error(reason)));
                return session::clean_up(session).await;
            }
        };
        match begun {
            Ok(()) => {
                let _ = reply.send(Ok(Tx::own(session)));
            }
            Err(error) => {
                session::clean_up(session).await;
                let _ = reply.send(Err(error));
            }
        }
    }

    /// BEGIN and the first statement.
    async fn start(&self, session: &mut Session<DB>) -> Result<(), Error> {
        let running = session.running().clone();
        let mut changed = 0;
        let mut conflicts = 0;
        loop {
            // The lock may have gone while the connection was waited for.
            self.hold.check().map_err(|reason| self.hold.error(reason))?;
            session.enter(Phase::Busy);
            if let Some(row) = &running.row {
                let ready = self.fence.prepare(session.connection()?, &self.pool, row).await;
                ready.map_err(|error| not_ready::<DB>(&self.hold, error))?;
                self.hold.check().map_err(|reason| self.hold.error(reason))?;
            }
            let began = DB::begin(session.connection()?, &running.mark, self.limits()).await;
            began.map_err(|error| self.judge(error))?;
            session.enter(Phase::Open);
            let Some(row) = &running.row else {
                let known = DB::identify(session.connection()?, &running.mark).await;
                return known.map_err(|error| self.judge(error));
            };
            match DB::raise(session.connection()?, Some(&running.mark), row).await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    // Two looks that contradict the refusal are taken for what they may be, and not for ever.
                    changed += 1;
                    self.undo(session).await?;
                    let stored = DB::look(session.connection()?, &row.key).await;
                    let stored = stored.map_err(|error| failed(&self.hold, error))?;
                    if stored.is_none() {
                        self.fence.forget(&self.pool, row);
                    }
                    refused(&self.hold, row, stored.as_ref(), changed > 3)?;
                }
                // Dropped since it was last seen.
                Err(error) if DB::is_missing_table(&error) && changed < 3 => {
                    changed += 1;
                    self.undo(session).await?;
                    self.fence.forget(&self.pool, row);
                }
                // Of two that want the row at the strict levels of isolation, one is told to try again.
                Err(error) if DB::is_conflict(&error) && conflicts < CONFLICTS => {
                    self.undo(session).await?;
                    conflicts += 1;
                    let pause = pause(conflicts);
                    tracing::warn!(
                        target: "zklock", path = %self.hold.path(), %error, conflicts, ?pause,
                        "the fence row is in dispute; the transaction is begun again"
                    );
                    tokio::time::sleep(pause).await;
                }
                Err(error) => return Err(self.judge(error)),
            }
        }
    }

    /// Rolls back, with the connection kept for the next try.
    async fn undo(&self, session: &mut Session<DB>) -> Result<(), Error> {
        let running = session.running().clone();
        let connection = session.connection()?;
        let undone = async {
            DB::let_run(connection).await?;
            roll_back_all::<DB>(connection).await
        };
        undone.await.map_err(|error| failed(&self.hold, error))?;
        let restored = DB::restore(session.connection()?, &running.mark).await;
        restored.map_err(|error| failed(&self.hold, error))
    }

    fn limits(&self) -> Limits {
        let deadline = self.hold.deadline();
        Limits {
            remaining: (deadline != Tick::NEVER).then(|| deadline.remaining()),
            isolation: self.spec.isolation,
            fenced: !self.spec.unfenced,
        }
    }

    /// A statement that failed because the time was up is told as that.
    fn judge(&self, error: sqlx::Error) -> Error {
        match self.hold.check() {
            Ok(()) => failed(&self.hold, error),
            Err(reason) => self.hold.error(reason),
        }
    }
}

/// Waits a moment longer for a connection that nobody wants any more: a pool that is left while it looks at an idle
/// connection closes it, which is a waste, and the end of a database in memory.
async fn linger(acquire: impl Future) {
    drop(tokio::time::timeout(LINGER, acquire).await);
}

/// How often a transaction is begun again that had to give way: some seconds.
const CONFLICTS: u32 = 12;

/// Half of it by chance, so that two that gave way to each other do not meet again.
fn pause(conflicts: u32) -> Duration {
    let longest = 5_000_u64 << conflicts.min(7);
    let chance = u64::from(Uuid::new_v4().as_fields().0);
    Duration::from_micros(longest / 2 + chance % (longest / 2))
}

/// What a row that was not raised means. `Ok` when it is to be tried again.
pub(crate) fn refused(hold: &Hold, row: &Row, stored: Option<&Stored>, enough: bool) -> Result<(), Error> {
    let path = hold.path().clone();
    match stored {
        None if enough => Err(failed(hold, "the fence row is deleted again and again")),
        None => Ok(()),
        Some(stored) if stored.ensemble != row.ensemble => Err(Error::ForeignFence {
            path,
            theirs: stored.ensemble_name(),
            ours: hold.token().ensemble().to_string(),
        }),
        Some(stored) if row.may_follow(stored) && !enough => Ok(()),
        Some(_) => Err(Error::Fenced { path }),
    }
}

pub(crate) fn not_ready<DB: Database>(hold: &Hold, error: NotReady) -> Error {
    match error {
        NotReady::NoTable => failed(
            hold,
            format!("the table `zklock_fence` is missing; create it once with: {}", DB::FENCE_TABLE),
        ),
        NotReady::Failed(error) => failed(hold, error),
    }
}

pub(crate) fn failed(hold: &Hold, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Database { path: hold.path().clone(), source: Cause::new(error) }
}
