use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sqlx::Pool;
use tokio::sync::Notify;
use uuid::Uuid;

use super::{
    database::{Database, MayRun, Options},
    fence::Row,
};
use crate::{
    engine::Engine,
    error::{Cause, Error},
    hold::{Hold, Stop},
    path::LockPath,
};

/// How long one try to end a transaction from outside may take.
const STOP: Duration = Duration::from_secs(5);
/// The same for a statement.
const CANCEL: Duration = Duration::from_millis(500);

/// What is known of a transaction to those who do not own its connection.
pub(crate) struct Running<DB: Database> {
    path: LockPath,
    engine: Arc<Engine>,
    /// Connections that stop are made for the purpose: the pool may be exhausted by what is to be stopped.
    pub(crate) options: Arc<Options<DB>>,
    pub(crate) mark: DB::Mark,
    /// `None` without a fence.
    pub(crate) row: Option<Row>,
    end: Mutex<End>,
    ended: Notify,
}

#[derive(Default)]
struct End {
    /// It is over for certain.
    reached: bool,
    /// Somebody ends it from outside: its connection may be cut at any time from now on, even when the transaction
    /// comes to its end by itself first, so nobody else may get it.
    forced: bool,
}

impl<DB: Database> Running<DB> {
    pub(crate) fn new(pool: &Pool<DB>, hold: &Arc<Hold>, engine: &Arc<Engine>, unfenced: bool) -> Arc<Self> {
        let writer = Uuid::new_v4();
        let may_run: MayRun = {
            let hold = hold.clone();
            Arc::new(move || hold.lapsed().is_none())
        };
        Arc::new(Self {
            path: hold.path().clone(),
            engine: engine.clone(),
            options: pool.connect_options(),
            mark: DB::mark(writer, may_run),
            row: (!unfenced).then(|| Row::new(hold, writer)),
            end: Mutex::default(),
            ended: Notify::new(),
        })
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The transaction is over for certain. Whether its connection can be given to somebody else.
    pub(crate) fn end(&self) -> bool {
        let forced = {
            let mut end = self.lock();
            end.reached = true;
            end.forced
        };
        self.ended.notify_waiters();
        !forced || DB::IN_PROCESS
    }

    async fn ended(&self) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Registered before the look, else an end in between would be missed.
            ended.as_mut().enable();
            if self.lock().reached {
                return;
            }
            ended.await;
        }
    }

    /// Ends the statement that runs in it, on the engine's thread. Nobody else may get its connection afterwards.
    pub(crate) async fn cancel(self: &Arc<Self>) {
        {
            let mut end = self.lock();
            if end.reached {
                return;
            }
            end.forced = true;
        }
        let running = self.clone();
        let task = self.engine.handle().spawn(async move {
            let cancel = DB::cancel(&running.options, &running.mark);
            // Whether it has had an effect is seen on the connection.
            drop(tokio::time::timeout(CANCEL, cancel).await);
        });
        let _ = task.await;
    }

    /// Whether it is in the database that `options` lead to.
    pub(crate) fn is_in_the_place_of(&self, options: &Options<DB>) -> bool {
        std::ptr::eq(&raw const *self.options, options) || DB::is_same_place(&self.options, options)
    }

    /// Ends the transaction from outside, on the engine's thread; the future only waits for it.
    pub(crate) fn stop(self: &Arc<Self>) -> impl Future<Output = Result<(), Error>> + Send + use<DB> {
        let task = {
            let mut end = self.lock();
            end.forced = !end.reached;
            end.forced.then(|| {
                DB::interrupt(&self.mark);
                let running = self.clone();
                self.engine.handle().spawn(async move {
                    let stop = DB::stop(&running.options, &running.mark, running.row.as_ref());
                    match tokio::time::timeout(STOP, stop).await {
                        Ok(Ok(true)) => Ok(()),
                        Ok(Ok(false)) => Err(Cause::new("the transaction was not found on the server")),
                        Ok(Err(error)) => Err(Cause::new(error)),
                        Err(_) => Err(Cause::new("the transaction could not be ended in time")),
                    }
                })
            })
        };
        let running = self.clone();
        async move {
            let Some(task) = task else { return Ok(()) };
            let outcome = tokio::select! {
                outcome = task => outcome.unwrap_or_else(|error| Err(Cause::new(error))),
                // Its owner was quicker.
                () = running.ended() => Ok(()),
            };
            outcome.map_err(|source| {
                tracing::warn!(target: "zklock", path = %running.path, %source, "a transaction could not be ended from outside");
                Error::Database { path: running.path.clone(), source }
            })
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a hold gets to stop a transaction with.
pub(crate) struct Stopper<DB: Database>(pub(crate) Arc<Running<DB>>);

impl<DB: Database> Stop for Stopper<DB> {
    fn stop(&self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        Box::pin(self.0.stop())
    }
}
