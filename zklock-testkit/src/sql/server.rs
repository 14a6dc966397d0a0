use std::time::{Duration, Instant};

use crate::error::Error;
use crate::port::Port;
use crate::server::{Folder, Process};

/// How long a database may take to come up; usually it is a fraction of a second.
const START_DEADLINE: Duration = Duration::from_mins(1);

/// A database server of ours.
#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    // Dropped in this order: what runs in the folder ends before the folder goes.
    process: Process,
    _folder: Folder,
    port: Port,
    /// What it says, counted in its log, each time that it has come up.
    ready: &'static str,
}

impl Server {
    pub(crate) fn new(
        name: &'static str,
        process: Process,
        folder: Folder,
        port: Port,
        ready: &'static str,
    ) -> Self {
        Self { name, process, _folder: folder, port, ready }
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// Starts it if it does not run, and waits until it says that it is ready.
    ///
    /// It is asked by its log and not by connecting: another server might answer on the port.
    pub(crate) async fn start(&self) -> Result<(), Error> {
        let came_up_before = self.came_up();
        self.process.start()?;
        let start = Instant::now();
        while self.came_up() == came_up_before {
            if let Some(status) = self.process.ended() {
                return Err(self.failed(format!("it ended with {status}")));
            }
            if start.elapsed() > START_DEADLINE {
                return Err(self.failed(format!("it was not ready within {START_DEADLINE:?}")));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    pub(crate) async fn restart(&self) -> Result<(), Error> {
        self.process.kill()?;
        self.start().await
    }

    fn came_up(&self) -> usize {
        self.process.log().matches(self.ready).count()
    }

    fn failed(&self, reason: String) -> Error {
        Error::Start { server: self.name, reason, log: self.process.log_end() }
    }
}

/// Whether another process was quicker to take the port.
pub(crate) fn port_was_taken(error: &Error) -> bool {
    matches!(error, Error::Start { log, .. } if log.contains("Address already in use"))
}
