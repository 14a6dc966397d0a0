use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    sync::{Arc, Weak},
    thread,
};

use async_executor::Executor;
use tokio::{runtime::Handle, sync::oneshot};

/// The thread that speaks with the servers.
///
/// The client library runs on whatever executor it is given, and waits for its sockets on the thread that runs it, if that
/// knows how to wait for them; else on one more. With an executor of our own, an answer wakes one thread and that wakes
/// the caller; on a runtime of tokio, it would be two.
pub(super) struct Io {
    tasks: Tasks,
    /// Dropped to end the thread.
    stop: oneshot::Sender<()>,
    /// Its other end is dropped when the thread is about to end.
    running: oneshot::Receiver<()>,
}

/// Gives tasks to the thread. Does not keep it: each task may have one of these.
#[derive(Clone)]
pub(super) struct Tasks {
    executor: Weak<Executor<'static>>,
    /// The runtime whose timers they use.
    engine: Handle,
}

impl Io {
    pub(super) fn start(engine: &Handle) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (alive, running) = oneshot::channel();
        let executor = Arc::new(Executor::new());
        let tasks = Tasks { executor: Arc::downgrade(&executor), engine: engine.clone() };
        let spawner = tasks.clone();
        thread::Builder::new().name("zklock-io".into()).spawn(move || {
            // What the library spawns, it spawns from here.
            let _scope = spawns_core::enter(&spawner);
            // Until nobody can send any more; what is not done by then is dropped with the executor. A task that panics does
            // not come up through here.
            let _ = async_io::block_on(executor.run(stopped));
            drop(executor);
            drop(alive);
        })?;
        Ok(Self { tasks, stop, running })
    }

    /// Resolves when the thread has let go of everything.
    pub(super) async fn end(self) {
        let Self { stop, running, .. } = self;
        drop(stop);
        // Nothing is ever sent.
        let _ = running.await;
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.tasks
    }
}

impl Tasks {
    /// Drops it where the thread has ended.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(executor) = self.executor.upgrade() {
            executor.spawn(self.with_timers(task)).detach();
        }
    }

    /// Nothing, where the thread has ended or `task` panics. Cancel-safe: dropping it drops `task`.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, is_done) = oneshot::channel();
        // To wait for the task itself would be to panic with it.
        let _task = self.executor.upgrade()?.spawn(self.with_timers(async move {
            let _ = done.send(task.await);
        }));
        is_done.await.ok()
    }

    fn with_timers<T, F: Future<Output = T>>(&self, task: F) -> impl Future<Output = T> + use<T, F> {
        let engine = self.engine.clone();
        let mut task = Box::pin(task);
        poll_fn(move |context| {
            let _here = engine.enter();
            task.as_mut().poll(context)
        })
    }
}

/// For the library.
impl spawns_core::Spawn for Tasks {
    fn spawn(&self, task: spawns_core::Task) {
        if let Some(executor) = self.executor.upgrade() {
            executor.spawn(Box::into_pin(task.future)).detach();
        }
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("is_over", &(self.executor.strong_count() == 0)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_takes_nobody_with_it() {
        let io = Io::start(&Handle::current()).unwrap();
        let (go, gone) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        io.tasks().spawn(async move {
            gone.await.unwrap();
            done.send(()).unwrap();
        });
        assert_eq!(io.tasks().run(async { panic!("a library that panics") }).await, None::<()>);
        assert_eq!(io.tasks().run(async { 1 }).await, Some(1));
        go.send(()).unwrap();
        is_done.await.unwrap();
    }

    #[tokio::test]
    async fn its_tasks_end_with_it_and_none_keeps_it() {
        let io = Io::start(&Handle::current()).unwrap();
        let tasks = io.tasks().clone();
        let (alive, is_dropped) = oneshot::channel::<()>();
        let (started, is_started) = oneshot::channel();
        let kept = tasks.clone();
        tasks.spawn(async move {
            started.send(()).unwrap();
            pending::<()>().await;
            drop((alive, kept));
        });
        is_started.await.unwrap();
        io.end().await;
        assert!(is_dropped.await.is_err());
        // Once the executor is gone; a task that gets in before is dropped with it.
        assert_eq!(tasks.run(pending::<()>()).await, None);
        let (alive, is_dropped) = oneshot::channel::<()>();
        tasks.spawn(async move {
            pending::<()>().await;
            drop(alive);
        });
        assert!(is_dropped.await.is_err());
    }

    #[tokio::test]
    async fn who_no_longer_waits_stops_the_task() {
        let io = Io::start(&Handle::current()).unwrap();
        let (alive, is_dropped) = oneshot::channel::<()>();
        let (started, is_started) = oneshot::channel();
        let mut task = Box::pin(io.tasks().run(async move {
            started.send(()).unwrap();
            pending::<()>().await;
            drop(alive);
        }));
        tokio::select! {
            _ = &mut task => unreachable!(),
            started = is_started => started.unwrap(),
        }
        drop(task);
        assert!(is_dropped.await.is_err());
    }
}
