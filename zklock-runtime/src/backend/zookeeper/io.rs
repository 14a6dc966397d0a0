use std::{fmt, future::Future, io, sync::Arc, thread};

use async_executor::{Executor, Task};
use spawns_core::Spawn;
use tokio::sync::oneshot;

/// The thread that speaks with the servers.
///
/// The client library waits for its sockets on a thread of its own unless whoever runs it does so: then an answer would
/// come by way of two threads more than it must.
pub(super) struct Io {
    executor: Arc<Executor<'static>>,
    /// Dropped to end the thread.
    _stop: oneshot::Sender<()>,
}

struct Spawner(Arc<Executor<'static>>);

impl Spawn for Spawner {
    fn spawn(&self, task: spawns_core::Task) {
        self.0.spawn(Box::into_pin(task.future)).detach();
    }
}

impl Io {
    pub(super) fn start() -> io::Result<Arc<Self>> {
        let (stop, stopped) = oneshot::channel::<()>();
        let executor = Arc::new(Executor::new());
        let spawner = Spawner(executor.clone());
        thread::Builder::new().name("zklock-io".into()).spawn(move || {
            let _scope = spawns_core::enter(&spawner);
            let _ = async_io::block_on(spawner.0.run(stopped));
        })?;
        Ok(Arc::new(Self { executor, _stop: stop }))
    }

    pub(super) fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Task<T> {
        self.executor.spawn(task)
    }
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io").finish_non_exhaustive()
    }
}
