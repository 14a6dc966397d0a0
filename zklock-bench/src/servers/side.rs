use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use tokio::net::TcpStream;
use zklock_testkit::Postgres;

use crate::contestant::Contestant;

/// A server of a kind that the testkit does not start, or of the testkit's, for one contestant; killed when dropped.
pub(crate) struct SideServer {
    address: String,
    _running: Running,
}

enum Running {
    // In this order: what runs in the folder ends before the folder goes.
    Child { _process: Ending, _folder: TempDir },
    Postgres { _server: Box<Postgres> },
}

struct Ending(Child);

const DEADLINE: Duration = Duration::from_secs(30);

impl SideServer {
    /// What its contestant is told.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// With what it writes forced to the disk, as in the setup of the targets.
    pub(crate) async fn start(contestant: Contestant) -> anyhow::Result<Self> {
        match contestant {
            Contestant::PostgresAdvisory => {
                let postgres = Postgres::builder().fsync(true).start().await?;
                Ok(Self {
                    address: postgres.url(),
                    _running: Running::Postgres { _server: Box::new(postgres) },
                })
            }
            Contestant::Redis => {
                let port = free_port()?.to_string();
                let args = [
                    "--port",
                    &port,
                    "--bind",
                    "127.0.0.1",
                    "--appendonly",
                    "yes",
                    "--appendfsync",
                    "always",
                ];
                Self::spawn("redis-server", &args, "--dir", &port).await
            }
            Contestant::Etcd => {
                let (port, peers) = (free_port()?.to_string(), free_port()?);
                let (clients, peers) =
                    (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
                let cluster = format!("default={peers}");
                let args = [
                    "--listen-client-urls",
                    &clients,
                    "--advertise-client-urls",
                    &clients,
                    "--listen-peer-urls",
                    &peers,
                    "--initial-advertise-peer-urls",
                    &peers,
                    "--initial-cluster",
                    &cluster,
                ];
                Self::spawn("etcd", &args, "--data-dir", &port).await
            }
            other => bail!("{other} has no server of its own"),
        }
    }

    /// Whether its program is on this machine.
    pub(crate) fn is_installed(contestant: Contestant) -> bool {
        match contestant {
            Contestant::Redis => in_path("redis-server"),
            Contestant::Etcd => in_path("etcd"),
            // The tests need it too.
            _ => true,
        }
    }

    async fn spawn(program: &str, args: &[&str], folder_option: &str, port: &str) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("zklock-bench-").tempdir()?;
        let mut child = Command::new(program)
            .args(args)
            .arg(folder_option)
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Ending)
            .with_context(|| format!("starting {program}"))?;
        let address = format!("127.0.0.1:{port}");
        let begun = Instant::now();
        while TcpStream::connect(&address).await.is_err() {
            if let Some(status) = child.0.try_wait()? {
                bail!("{program} ended with {status}: run `{program} {}` to see why", args.join(" "));
            }
            if begun.elapsed() > DEADLINE {
                bail!("{program} took no connection within {DEADLINE:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { address, _running: Running::Child { _process: child, _folder: folder } })
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([Path::new("/usr/sbin").into()])
        .any(|folder| folder.join(program).is_file())
}
