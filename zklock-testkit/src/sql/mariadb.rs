use std::env;
use std::path::{Path, PathBuf};

use tokio::sync::OnceCell;

use super::client;
use super::postgres::with_database;
use super::server::{Server, port_was_taken};
use crate::error::Error;
use crate::port::Port;
use crate::random::random;
use crate::server::{Folder, Launch, Process, find_program};

/// Names a server that runs already, by its URL.
const GIVEN: &str = "ZKLOCK_TEST_MARIADB";

const MISSING: Error = Error::NotInstalled {
    what: "MariaDB",
    how: "`apt-get install mariadb-server`, or set MARIADB_BIN to the folder that holds `mariadbd`, \
          `mariadb-install-db` and `mariadb`, or set ZKLOCK_TEST_MARIADB=mysql://.. to use a server that \
          runs already",
};

/// A MariaDB server for tests: a child process on a free port of 127.0.0.1, with its data in a
/// temporary folder, killed and removed when this is dropped or when the test process ends, however
/// it ends.
///
/// Its programs are looked for in `MARIADB_BIN`, then in `PATH` and `/usr/sbin`. A server that runs
/// already can be given by `ZKLOCK_TEST_MARIADB=mysql://..`; to pause or kill it is
/// [`Error::NotOurs`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), zklock_testkit::Error> {
/// use zklock_testkit::MariaDb;
///
/// let mariadb = MariaDb::start().await?;
/// let url = mariadb.create_database("shop").await?;
/// assert!(url.starts_with("mysql://root@127.0.0.1:"));
/// assert_eq!(mariadb.sql(&url, "SELECT 6 * 7").await?, "42");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MariaDb {
    url: String,
    client: PathBuf,
    // None for a server that was given.
    server: Option<Server>,
}

/// Settings of a MariaDB server; see [`MariaDb::builder`].
///
/// They do not apply to a server that is given by `ZKLOCK_TEST_MARIADB`.
#[derive(Debug, Clone)]
#[must_use = "it does nothing until started"]
pub struct MariaDbBuilder {
    fsync: bool,
    max_connections: u32,
    options: Vec<String>,
}

impl MariaDbBuilder {
    /// Whether each commit is forced to the disk before it is answered; default no.
    pub fn fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// How many connections there may be at a time; default 200.
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections;
        self
    }

    /// Any option of `mariadbd`: `"--general-log=ON"`.
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Starts the server and waits until it takes connections.
    pub async fn start(self) -> Result<MariaDb, Error> {
        let bin: Vec<_> = env::var_os("MARIADB_BIN").map(PathBuf::from).into_iter().collect();
        let client = find_program(&["mariadb", "mysql"], &bin).ok_or(MISSING)?;
        if let Some(url) = env::var(GIVEN).ok().filter(|url| !url.is_empty()) {
            let given = MariaDb { url, client, server: None };
            given.sql(&given.url, "SELECT 1").await?;
            return Ok(given);
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (settings, bin) = (self.clone(), bin.clone());
            let prepared = tokio::task::spawn_blocking(move || settings.prepare(&bin)).await;
            let server = prepared.map_err(|error| Error::io("preparing MariaDB")(error.into()))??;
            match server.start().await {
                Ok(()) => {
                    let url = format!("mysql://root@127.0.0.1:{}/mysql", server.port());
                    return Ok(MariaDb { url, client, server: Some(server) });
                }
                Err(error) if attempts < 5 && port_was_taken(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the data folder.
    fn prepare(&self, bin: &[PathBuf]) -> Result<Server, Error> {
        let install = find_program(&["mariadb-install-db"], bin).ok_or(MISSING)?;
        let mariadbd = find_program(&["mariadbd"], bin).ok_or(MISSING)?;
        let folder = Folder::create("mariadb")?;
        let data = folder.path().join("data");
        let install = Launch::new(install, folder.path())
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .arg("--skip-name-resolve")
            .args(as_root())
            .arg(option("--datadir=", &data))
            .arg(option("--tmpdir=", folder.path()));
        let (status, log) = install.output().map_err(Error::io("running mariadb-install-db"))?;
        if !status.success() {
            let reason = format!("{} ended with {status}", install.program().display());
            return Err(Error::Start { server: "MariaDB", reason, log });
        }
        let port = Port::claim()?;
        let launch = self.launch(&mariadbd, folder.path(), &data, port.number());
        Ok(Server::new("MariaDB", Process::new(launch), folder, port, "ready for connections"))
    }

    fn launch(&self, mariadbd: &Path, folder: &Path, data: &Path, port: u16) -> Launch {
        let flush = u8::from(self.fsync);
        Launch::new(mariadbd, folder)
            .arg("--no-defaults")
            .args(as_root())
            .arg(option("--datadir=", data))
            .arg(option("--tmpdir=", folder))
            .arg(format!("--port={port}"))
            .arg(format!("--max-connections={}", self.max_connections))
            .arg(format!("--innodb-flush-log-at-trx-commit={flush}"))
            .args([
                "--bind-address=127.0.0.1",
                // Beside the data: a whole path could be too long for a socket.
                "--socket=server.sock",
                "--pid-file=server.pid",
                "--skip-name-resolve",
                "--skip-ssl",
                "--skip-log-bin",
                "--innodb-buffer-pool-size=64M",
                "--innodb-log-file-size=16M",
            ])
            .args(&self.options)
    }
}

impl MariaDb {
    /// Starts a server with the default settings, and waits until it takes connections: about a
    /// second, most of it for making the data folder.
    ///
    /// # Errors
    ///
    /// [`Error::NotInstalled`] with the command that installs what is missing; [`Error::Start`] with
    /// the server's log.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the server, if it runs yet.
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// For a server with other settings.
    pub fn builder() -> MariaDbBuilder {
        MariaDbBuilder { fsync: false, max_connections: 200, options: Vec::new() }
    }

    /// The server that all tests of this process share: started by the first that asks, ended with
    /// the process. Give each test its own database with [`create_database`](Self::create_database).
    ///
    /// A test that pauses or kills a server starts its own.
    pub async fn shared() -> Result<&'static Self, Error> {
        // Statics are not dropped: the watchdog ends the server. Each test has its own runtime, and
        // the server depends on none.
        static SHARED: OnceCell<MariaDb> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    /// For sqlx, its `mysql` database as root without a password:
    /// `mysql://root@127.0.0.1:23456/mysql`.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The port that it listens on, if the server is ours.
    pub fn port(&self) -> Option<u16> {
        self.server.as_ref().map(Server::port)
    }

    /// The server's process number, while it runs and is ours.
    pub fn process_id(&self) -> Option<u32> {
        self.server.as_ref().and_then(|server| server.process().id())
    }

    /// Makes a database of its own for one test, `<name>_<random>`, and gives its URL.
    pub async fn create_database(&self, name: &str) -> Result<String, Error> {
        let name = format!("{name}_{:016x}", random());
        self.sql(&self.url, &format!("CREATE DATABASE `{name}`")).await?;
        Ok(with_database(&self.url, &name))
    }

    /// Runs one statement through the `mariadb` client, independent of the code under test, and gives
    /// what it printed: a line for each row, the columns separated by tabs.
    pub async fn sql(&self, url: &str, sql: &str) -> Result<String, Error> {
        let mut args = vec!["--no-defaults".into(), "--batch".into(), "--skip-column-names".into()];
        args.extend(client_options(url)?);
        args.push("--execute".into());
        client::ask(&self.client, args, sql).await
    }

    /// Stops the server in its tracks (SIGSTOP): connections stay open, nothing is answered.
    pub fn pause(&self) -> Result<(), Error> {
        self.ours()?.process().pause()
    }

    /// Lets a paused server go on (SIGCONT).
    pub fn resume(&self) -> Result<(), Error> {
        self.ours()?.process().resume()
    }

    /// Ends the server with no chance to tidy up (SIGKILL) and returns once it is gone.
    pub fn kill(&self) -> Result<(), Error> {
        self.ours()?.process().kill()
    }

    /// Kills the server if it runs, starts it again on the same port and the same data, and waits
    /// until it takes connections.
    pub async fn restart(&self) -> Result<(), Error> {
        self.ours()?.restart().await
    }

    fn ours(&self) -> Result<&Server, Error> {
        self.server.as_ref().ok_or(Error::NotOurs { server: "MariaDB", variable: GIVEN })
    }
}

/// MariaDB runs as root only if told so.
fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

fn option(name: &str, value: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(name);
    option.push(value);
    option
}

/// What the client wants in the place of a URL.
fn client_options(url: &str) -> Result<Vec<String>, Error> {
    let wrong = || Error::Answer {
        asked: format!("the address '{url}'"),
        answer: "it should read mysql://user:password@host:port/database".into(),
    };
    let rest = url.strip_prefix("mysql://").or_else(|| url.strip_prefix("mariadb://")).ok_or_else(wrong)?;
    let rest = rest.split('?').next().unwrap_or_default();
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (account, server) = authority.rsplit_once('@').ok_or_else(wrong)?;
    let (user, password) = account.split_once(':').unwrap_or((account, ""));
    let (host, port) = server.rsplit_once(':').unwrap_or((server, "3306"));
    let mut options = vec![
        format!("--user={user}"),
        format!("--host={host}"),
        format!("--port={port}"),
        "--protocol=tcp".into(),
        format!("--database={database}"),
    ];
    if !password.is_empty() {
        options.push(format!("--password={password}"));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_url_apart() {
        let options = client_options("mysql://root:secret@db:3307/shop?ssl-mode=disabled").unwrap();
        let wanted = ["--user=root", "--host=db", "--port=3307", "--protocol=tcp", "--database=shop"];
        assert_eq!(options[..5], wanted);
        assert_eq!(options[5], "--password=secret");
        assert!(client_options("postgres://root@db/shop").is_err());
    }
}
