use std::{
    future::Future,
    io,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::{oneshot, watch},
};

use crate::{clock::Tick, timers::Timers};

/// How long blocking calls of the thread may take to end with it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The thread that a `Locks` owns, with a small runtime of its own.
///
/// Heartbeats, the reaper and the connections that stop transactions live here: a user's runtime may be
/// blocked by a body or gone with its test, and neither may cost a lock.
#[derive(Debug)]
pub(crate) struct Engine {
    handle: Handle,
    timers: Arc<Timers>,
    /// Dropped to end the thread.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// Its other end is dropped when the thread is about to end.
    running: watch::Receiver<()>,
}

impl Engine {
    pub(crate) fn start() -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (alive, running) = watch::channel(());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let timers = Timers::start(&handle);
        thread::Builder::new().name("zklock".into()).spawn(move || {
            // Resolves with an error when the sender is dropped, which is the signal.
            let _ = runtime.block_on(stopped);
            // A name that is being looked up must not keep the thread for ever.
            runtime.shutdown_timeout(LAST_WORDS);
            drop(alive);
        })?;
        Ok(Self { handle, timers, stop: Mutex::new(Some(stop)), running })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn timers(&self) -> &Arc<Timers> {
        &self.timers
    }

    /// A timer of this thread, which any runtime can await.
    pub(crate) async fn sleep_until(&self, tick: Tick) {
        self.timers.sleep_until(tick).await;
    }

    /// Ends the thread once `last` is done.
    pub(crate) fn stop_after(&self, last: impl Future<Output = ()> + Send + 'static) {
        if let Some(stop) = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.handle.spawn(async move {
                last.await;
                drop(stop);
            });
        }
    }

    /// Resolves when the thread has let go of everything.
    pub(crate) async fn ended(&self) {
        let mut running = self.running.clone();
        // Nothing is ever sent.
        while running.changed().await.is_ok() {}
    }
}

/// A timer of the runtime behind `handle`, which any runtime can await. It resolves at `tick`, or when that runtime ends:
/// a bare timer panics when it is polled after the end of its runtime, and that would be in a user's task.
#[cfg(feature = "zookeeper")]
pub(crate) async fn sleep_until(handle: &Handle, tick: Tick) {
    if tick == Tick::NEVER {
        return std::future::pending().await;
    }
    let mut timer = tokio::task::JoinSet::new();
    timer.spawn_on(async move { tokio::time::sleep(tick.remaining()).await }, handle);
    timer.join_next().await;
}
