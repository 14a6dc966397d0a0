use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::builder::ZooKeeperBuilder;
use super::words;
use crate::error::Error;
use crate::port::Port;
use crate::server::{Folder, Process};

/// A ZooKeeper server of ours, alone or in an ensemble.
#[derive(Debug)]
pub(crate) struct Server {
    // Dropped in this order: what runs in the folder ends before the folder goes.
    process: Process,
    folder: Folder,
    port: Port,
}

impl Server {
    /// Starts a server; with `id`, as this member of the ensemble that `more` describes.
    pub(crate) fn spawn(
        settings: &ZooKeeperBuilder,
        port: Port,
        id: Option<usize>,
        more: &[String],
    ) -> Result<Self, Error> {
        let folder = Folder::create("zookeeper")?;
        let server = Self {
            process: Process::new(settings.launch(folder.path(), port.number(), more)?),
            folder,
            port,
        };
        server.create_data(id)?;
        server.process.start()?;
        Ok(server)
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Removes the data of a server that does not run, but for its place in an ensemble.
    pub(crate) fn wipe(&self) -> Result<(), Error> {
        let data = self.data();
        let id = fs::read_to_string(data.join("myid")).ok().and_then(|id| id.trim().parse().ok());
        fs::remove_dir_all(&data).map_err(Error::io(format!("removing {}", data.display())))?;
        self.create_data(id)
    }

    /// Waits until it answers, in whatever mode `srvr` gives.
    pub(crate) async fn serves(&self, deadline: Duration) -> Result<(), Error> {
        let start = Instant::now();
        let address = format!("127.0.0.1:{}", self.port());
        loop {
            if let Some(status) = self.process.ended() {
                return Err(self.failed(format!("it ended with {status}")));
            }
            // Whoever answers must be ours: the folder is named in the answer to `conf`.
            if let Ok(answer) = words::ask(&address, "conf").await
                && answer.contains(&*self.folder.path().to_string_lossy())
                && let Ok(answer) = words::ask(&address, "srvr").await
                && words::Mode::from_srvr(&answer).is_some()
            {
                if let Some(version) = words::too_old(&answer) {
                    return Err(self.failed(format!(
                        "version {version} is too old, 3.5.3 is the first with container nodes: set ZOOKEEPER_HOME \
                         to the folder of a newer release"
                    )));
                }
                return Ok(());
            }
            if start.elapsed() > deadline {
                return Err(self.failed(format!("it did not serve within {deadline:?}")));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn failed(&self, reason: String) -> Error {
        Error::Start { server: "ZooKeeper", reason, log: self.process.log_end() }
    }

    fn create_data(&self, id: Option<usize>) -> Result<(), Error> {
        let data = self.data();
        fs::create_dir(&data).map_err(Error::io(format!("creating {}", data.display())))?;
        if let Some(id) = id {
            fs::write(data.join("myid"), id.to_string()).map_err(Error::io("writing myid"))?;
        }
        Ok(())
    }
}
