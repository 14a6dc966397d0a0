use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify};

use crate::clock::Tick;

/// The timers of an engine, which any runtime can await.
///
/// One task serves all of them, from a queue ordered by time: a timer costs one entry, no task of its own and, as long
/// as it is not the earliest, no wake-up.
#[derive(Debug)]
pub(crate) struct Timers {
    table: Mutex<Table>,
    /// The earliest entry came forward.
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Table {
    queue: BTreeMap<(Tick, u64), Waker>,
    last: u64,
    /// When the task will look again by itself.
    wake_at: Option<Tick>,
    is_over: bool,
}

impl Timers {
    pub(crate) fn start(engine: &Handle) -> Arc<Self> {
        let timers = Arc::new(Self { table: Mutex::default(), earlier: Notify::new() });
        engine.spawn(run(Running(timers.clone())));
        timers
    }

    /// Resolves at `at`, or when the engine ends: in a user's task it must not panic as a bare timer would. Cancel-safe.
    pub(crate) fn sleep_until(self: &Arc<Self>, at: Tick) -> Sleep {
        Sleep { timers: self.clone(), at, id: None }
    }

    /// Wakes what is due, and says when to look again.
    fn wake_due(&self) -> Tick {
        let mut due = Vec::new();
        let next = {
            let mut table = self.table();
            let now = Tick::now();
            while let Some(first) = table.queue.first_entry()
                && first.key().0 <= now
            {
                due.push(first.remove());
            }
            let next = table.queue.first_key_value().map_or(Tick::NEVER, |((at, _), _)| *at);
            table.wake_at = Some(next);
            next
        };
        // Not with the table locked: a waker may drop the timers of others.
        wake(due);
        next
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(all: impl IntoIterator<Item = Waker>) {
    for waker in all {
        // It is the code of others: one that panics must not keep the rest from being woken.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake())).is_err() {
            tracing::error!(target: "zklock", "a waker panicked");
        }
    }
}

/// The task; when it is dropped with its runtime, nobody is kept waiting.
struct Running(Arc<Timers>);

impl Drop for Running {
    fn drop(&mut self) {
        let all = {
            let mut table = self.0.table();
            table.is_over = true;
            std::mem::take(&mut table.queue)
        };
        wake(all.into_values());
    }
}

/// How long the task sleeps at most while there are timers: the clock of the runtime stops while the machine is
/// suspended, a [`Tick`] does not.
const NAP: Duration = Duration::from_secs(1);

async fn run(running: Running) {
    loop {
        let next = running.0.wake_due();
        let nap = if next == Tick::NEVER { Duration::MAX } else { NAP };
        tokio::select! {
            () = tokio::time::sleep(next.remaining().min(nap)) => {}
            () = running.0.earlier.notified() => {}
        }
    }
}

/// See [`Timers::sleep_until`].
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Sleep {
    timers: Arc<Timers>,
    at: Tick,
    /// Its entry in the queue, once it was polled.
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.at == Tick::NEVER {
            return Poll::Pending;
        }
        let timers = self.timers.clone();
        let mut table = timers.table();
        if table.is_over || self.at <= Tick::now() {
            return Poll::Ready(());
        }
        let id = *self.id.get_or_insert_with(|| {
            table.last += 1;
            table.last
        });
        let replaced = table.queue.insert((self.at, id), context.waker().clone());
        let is_earlier = table.wake_at.is_none_or(|at| self.at < at);
        if is_earlier {
            table.wake_at = Some(self.at);
        }
        drop(table);
        drop(replaced);
        if is_earlier {
            timers.earlier.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let removed = self.timers.table().queue.remove(&(self.at, id));
        drop(removed);
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("remaining", &self.at.remaining()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::engine::Engine;

    const LONG: Duration = Duration::from_mins(10);

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll(sleep: &mut Sleep) -> Poll<()> {
        Pin::new(sleep).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn an_earlier_timer_is_not_kept_by_a_later_one() {
        let engine = Engine::start().unwrap();
        let timers = engine.timers();
        let mut late = timers.sleep_until(Tick::now() + LONG);
        assert!(poll(&mut late).is_pending());
        timers.sleep_until(Tick::now() + Duration::from_millis(5)).await;
        assert!(poll(&mut late).is_pending());
        timers.sleep_until(Tick::now()).await;
    }

    #[tokio::test]
    async fn each_of_many_at_one_moment_is_woken() {
        let engine = Engine::start().unwrap();
        let at = Tick::now() + Duration::from_millis(20);
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..100 {
            all.spawn(engine.timers().sleep_until(at));
        }
        all.join_all().await;
        assert!(Tick::now() >= at);
    }

    #[tokio::test]
    async fn one_that_is_dropped_leaves_nothing_behind() {
        let engine = Engine::start().unwrap();
        let timers = engine.timers();
        let mut sleep = timers.sleep_until(Tick::now() + LONG);
        assert!(poll(&mut sleep).is_pending());
        assert!(poll(&mut sleep).is_pending());
        assert_eq!(timers.table().queue.len(), 1);
        drop(sleep);
        assert_eq!(timers.table().queue.len(), 0);
    }

    #[tokio::test]
    async fn all_resolve_when_the_engine_ends() {
        let engine = Engine::start().unwrap();
        let mut sleep = engine.timers().sleep_until(Tick::now() + LONG);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
        engine.stop_after(async {});
        engine.ended().await;
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(poll(&mut sleep).is_ready());
        assert!(poll(&mut engine.timers().sleep_until(Tick::now() + LONG)).is_ready());
    }
}
