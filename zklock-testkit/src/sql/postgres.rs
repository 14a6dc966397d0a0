use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::OnceCell;

use super::client;
use super::server::{Server, port_was_taken};
use crate::error::Error;
use crate::port::Port;
use crate::random::random;
use crate::server::{Account, Folder, Launch, Process, find_program};

/// Names a server that runs already, by its URL.
const GIVEN: &str = "ZKLOCK_TEST_POSTGRES";

const MISSING: Error = Error::NotInstalled {
    what: "PostgreSQL",
    how: "`apt-get install postgresql`, or set PGBIN to the folder that holds `initdb`, `postgres` and \
          `psql`, or set ZKLOCK_TEST_POSTGRES=postgres://.. to use a server that runs already",
};

/// A PostgreSQL server for tests: a child process on a free port of 127.0.0.1, with its data in a
/// temporary folder, killed and removed when this is dropped or when the test process ends, however
/// it ends.
///
/// Its programs are looked for in `PGBIN`, then in `/usr/lib/postgresql/*/bin` (the newest), then in
/// `PATH`. PostgreSQL refuses to run as root: then it runs as `postgres` or `nobody`. A server that
/// runs already can be given by `ZKLOCK_TEST_POSTGRES=postgres://..`; to pause or kill it is
/// [`Error::NotOurs`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), zklock_testkit::Error> {
/// use zklock_testkit::Postgres;
///
/// let postgres = Postgres::start().await?;
/// let url = postgres.create_database("shop").await?;
/// assert!(url.starts_with("postgres://postgres@127.0.0.1:"));
/// assert_eq!(postgres.sql(&url, "SELECT 6 * 7").await?, "42");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Postgres {
    url: String,
    psql: PathBuf,
    // None for a server that was given.
    server: Option<Server>,
}

/// How a PostgreSQL server is shut down, as `pg_ctl stop -m` calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Transactions are rolled back, and all is written down.
    Fast,
    /// At once: the next start recovers from the log.
    Immediate,
}

/// Settings of a PostgreSQL server; see [`Postgres::builder`].
///
/// They do not apply to a server that is given by `ZKLOCK_TEST_POSTGRES`.
#[derive(Debug, Clone)]
#[must_use = "it does nothing until started"]
pub struct PostgresBuilder {
    fsync: bool,
    max_connections: u32,
    settings: Vec<String>,
}

impl PostgresBuilder {
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

    /// Any setting, as in `postgresql.conf`: `("log_statement", "all")`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push(format!("{name}={value}"));
        self
    }

    /// Starts the server and waits until it takes connections.
    pub async fn start(self) -> Result<Postgres, Error> {
        if let Some(url) = env::var(GIVEN).ok().filter(|url| !url.is_empty()) {
            let psql = find_program(&["psql"], &bin_folders()).ok_or(MISSING)?;
            let given = Postgres { url: url.trim_end_matches('/').to_owned(), psql, server: None };
            given.sql(&given.url, "SELECT 1").await?;
            return Ok(given);
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let settings = self.clone();
            let prepared = tokio::task::spawn_blocking(move || settings.prepare()).await;
            let (server, bin) =
                prepared.map_err(|error| Error::io("preparing PostgreSQL")(error.into()))??;
            match server.start().await {
                Ok(()) => {
                    let url = format!("postgres://postgres@127.0.0.1:{}", server.port());
                    return Ok(Postgres { url, psql: bin.join("psql"), server: Some(server) });
                }
                Err(error) if attempts < 5 && port_was_taken(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the data folder.
    fn prepare(&self) -> Result<(Server, PathBuf), Error> {
        let initdb = find_program(&["initdb"], &bin_folders()).ok_or(MISSING)?;
        // Debian's PATH leads to wrappers; what belongs together lies together.
        let bin =
            initdb.canonicalize().ok().and_then(|file| Some(file.parent()?.to_owned())).ok_or(MISSING)?;
        let account = Account::unprivileged("postgres")?;
        let folder = Folder::create("postgres")?;
        if let Some(account) = &account {
            account.own(folder.path())?;
        }
        let data = folder.path().join("data");
        let initdb = Launch::new(initdb, folder.path())
            .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .arg("--no-instructions")
            .arg("--pgdata")
            .arg(&data)
            .account(account.as_ref());
        let (status, log) = initdb.output().map_err(Error::io("running initdb"))?;
        if !status.success() {
            let reason = format!("{} ended with {status}", initdb.program().display());
            return Err(Error::Start { server: "PostgreSQL", reason, log });
        }
        let port = Port::claim()?;
        let launch = self.launch(&bin, folder.path(), &data, port.number()).account(account.as_ref());
        let ready = "database system is ready to accept connections";
        Ok((Server::new("PostgreSQL", Process::new(launch), folder, port, ready), bin))
    }

    fn launch(&self, bin: &Path, folder: &Path, data: &Path, port: u16) -> Launch {
        let mut settings = vec![
            "listen_addresses=127.0.0.1".into(),
            // No socket file: its path could be too long, and the port is enough.
            "unix_socket_directories=".into(),
            format!("port={port}"),
            format!("max_connections={}", self.max_connections),
            "shared_buffers=32MB".into(),
            "log_line_prefix=%m [%p] ".into(),
            "log_timezone=UTC".into(),
        ];
        if !self.fsync {
            settings.extend(["fsync=off", "full_page_writes=off"].map(String::from));
        }
        settings.extend_from_slice(&self.settings);
        let launch = Launch::new(bin.join("postgres"), folder).arg("-D").arg(data);
        settings.into_iter().fold(launch, |launch, setting| launch.arg("-c").arg(setting))
    }
}

impl Postgres {
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
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder { fsync: false, max_connections: 200, settings: Vec::new() }
    }

    /// The server that all tests of this process share: started by the first that asks, ended with
    /// the process. Give each test its own database with [`create_database`](Self::create_database).
    ///
    /// A test that pauses or kills a server starts its own.
    pub async fn shared() -> Result<&'static Self, Error> {
        // Statics are not dropped: the watchdog ends the server. Each test has its own runtime, and
        // the server depends on none.
        static SHARED: OnceCell<Postgres> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    /// For sqlx, its `postgres` database as superuser without a password:
    /// `postgres://postgres@127.0.0.1:23456/postgres`.
    pub fn url(&self) -> String {
        if self.server.is_some() { self.url_of("postgres") } else { self.url.clone() }
    }

    /// The port that it listens on, if the server is ours.
    pub fn port(&self) -> Option<u16> {
        self.server.as_ref().map(Server::port)
    }

    /// The process number of the postmaster, while it runs and is ours.
    pub fn process_id(&self) -> Option<u32> {
        self.server.as_ref().and_then(|server| server.process().id())
    }

    /// Makes a database of its own for one test, `<name>_<random>`, and gives its URL.
    pub async fn create_database(&self, name: &str) -> Result<String, Error> {
        let name = format!("{name}_{:016x}", random());
        self.sql(&self.url(), &format!("CREATE DATABASE \"{name}\"")).await?;
        Ok(self.url_of(&name))
    }

    /// Runs one statement through `psql`, independent of the code under test, and gives what it
    /// printed: a line for each row, the columns separated by `|`.
    pub async fn sql(&self, url: &str, sql: &str) -> Result<String, Error> {
        let args = ["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1", "-d", url, "-c"];
        client::ask(&self.psql, args, sql).await
    }

    /// Stops the server with all its children in their tracks (SIGSTOP): connections stay open,
    /// nothing is answered.
    pub fn pause(&self) -> Result<(), Error> {
        self.ours()?.process().pause()
    }

    /// Lets a paused server go on (SIGCONT).
    pub fn resume(&self) -> Result<(), Error> {
        self.ours()?.process().resume()
    }

    /// Ends the server and its children with no chance to tidy up (SIGKILL), and returns once they
    /// are gone.
    pub fn kill(&self) -> Result<(), Error> {
        self.ours()?.process().kill()
    }

    /// Kills the server if it runs, starts it again on the same port and the same data, and waits
    /// until it takes connections.
    pub async fn restart(&self) -> Result<(), Error> {
        self.ours()?.restart().await
    }

    /// Shuts the server down as an operator does, and starts it again on the same port and the same data; returns when
    /// it takes connections.
    pub async fn restart_after(&self, shutdown: Shutdown) -> Result<(), Error> {
        const DEADLINE: Duration = Duration::from_mins(1);

        let server = self.ours()?;
        let signal = match shutdown {
            Shutdown::Fast => Signal::INT,
            Shutdown::Immediate => Signal::QUIT,
        };
        server.process().end(signal, DEADLINE).await?;
        server.start().await
    }

    fn ours(&self) -> Result<&Server, Error> {
        self.server.as_ref().ok_or(Error::NotOurs { server: "PostgreSQL", variable: GIVEN })
    }

    fn url_of(&self, database: &str) -> String {
        with_database(&self.url, database)
    }
}

/// Puts a database's name into a URL that may have one already, and options.
pub(super) fn with_database(url: &str, database: &str) -> String {
    let (url, options) = url.split_once('?').map_or((url, None), |(url, options)| (url, Some(options)));
    let authority = url.find("://").map_or(0, |scheme| scheme + 3);
    let end = url[authority..].find('/').map_or(url.len(), |slash| authority + slash);
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    format!("{}/{database}{options}", &url[..end])
}

/// Where to look before PATH, which on Debian leads to wrappers for clients only.
fn bin_folders() -> Vec<PathBuf> {
    let mut folders: Vec<_> = env::var_os("PGBIN").map(PathBuf::from).into_iter().collect();
    let mut versions: Vec<(u32, PathBuf)> = Path::new("/usr/lib/postgresql")
        .read_dir()
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    folders.extend(versions.into_iter().rev().map(|(_, bin)| bin));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_a_database_into_a_url() {
        assert_eq!(with_database("postgres://u@h:1", "d"), "postgres://u@h:1/d");
        assert_eq!(with_database("postgres://u@h:1/x", "d"), "postgres://u@h:1/d");
        assert_eq!(
            with_database("mysql://u:p@h/x?ssl-mode=disabled", "d"),
            "mysql://u:p@h/d?ssl-mode=disabled"
        );
    }
}
