use std::io;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use tokio::runtime::{Builder, Handle};

/// The runtime that all proxies of this process run on, on a thread of its own: it goes on while the
/// test's runtime is blocked, and when it is gone.
pub(crate) fn runtime() -> io::Result<Handle> {
    static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);

    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*runtime {
        return Ok(runtime.clone());
    }
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("zklock-testkit-proxy".into()).spawn(move || {
        match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let _ = sender.send(Ok(runtime.handle().clone()));
                runtime.block_on(std::future::pending::<()>());
            }
            Err(error) => {
                let _ = sender.send(Err(error));
            }
        }
    })?;
    let started = receiver.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
    Ok(runtime.insert(started).clone())
}
