use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::ZooKeeper;
use super::install::Install;
use crate::error::Error;
use crate::server::Launch;

/// Settings of a ZooKeeper server; see [`ZooKeeper::builder`].
///
/// They do not apply to a server that is given by `ZKLOCK_TEST_ZOOKEEPER`.
#[derive(Debug, Clone)]
#[must_use = "it does nothing until started"]
pub struct ZooKeeperBuilder {
    tick_time: Duration,
    min_session_timeout: Option<Duration>,
    max_session_timeout: Duration,
    fsync: bool,
    config: Vec<String>,
    java: Vec<String>,
}

impl Default for ZooKeeperBuilder {
    fn default() -> Self {
        Self {
            tick_time: Duration::from_millis(500),
            min_session_timeout: None,
            max_session_timeout: Duration::from_mins(1),
            fsync: false,
            config: Vec::new(),
            java: Vec::new(),
        }
    }
}

impl ZooKeeperBuilder {
    /// The server's unit of time, in whole milliseconds; default 500 ms (ZooKeeper's own is 2 s or
    /// 3 s). Sessions are expired in steps of a tick, so a short one makes for quick tests.
    pub fn tick_time(mut self, tick: Duration) -> Self {
        self.tick_time = tick;
        self
    }

    /// The shortest session timeout that a client may have; default two ticks.
    pub fn min_session_timeout(mut self, timeout: Duration) -> Self {
        self.min_session_timeout = Some(timeout);
        self
    }

    /// The longest session timeout that a client may have; default 60 s.
    pub fn max_session_timeout(mut self, timeout: Duration) -> Self {
        self.max_session_timeout = timeout;
        self
    }

    /// Whether each transaction is forced to the disk before it is answered; default no, which is
    /// about twice as fast. Data survives [`ZooKeeper::kill`] either way, since the machine goes on.
    pub fn fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// The longest request or answer, in bytes (`jute.maxbuffer`); default ZooKeeper's own, 1 MiB.
    pub fn jute_max_buffer(self, bytes: u32) -> Self {
        self.java_option(format!("-Djute.maxbuffer={bytes}"))
    }

    /// How many connections one address may have (`maxClientCnxns`); default 0, which is no limit.
    pub fn max_client_connections(self, connections: u32) -> Self {
        self.config_line(format!("maxClientCnxns={connections}"))
    }

    /// Whether nodes with a time to live are possible (`extendedTypesEnabled`); default no, as in
    /// ZooKeeper.
    pub fn extended_types(self, enabled: bool) -> Self {
        self.java_option(format!("-Dzookeeper.extendedTypesEnabled={enabled}"))
    }

    /// Any line of `zoo.cfg`; of two lines with the same name the later one counts.
    pub fn config_line(mut self, line: impl Into<String>) -> Self {
        self.config.push(line.into());
        self
    }

    /// Any option of the Java machine, a system property for instance
    /// (`-Dznode.container.checkIntervalMs=1000`); of two the later one counts.
    pub fn java_option(mut self, option: impl Into<String>) -> Self {
        self.java.push(option.into());
        self
    }

    /// Starts the server and waits until it serves.
    pub async fn start(self) -> Result<ZooKeeper, Error> {
        ZooKeeper::start_with(&self).await
    }

    /// Writes `zoo.cfg` into the folder and says how to run the server on it.
    pub(crate) fn launch(&self, folder: &Path, port: u16, more: &[String]) -> Result<Launch, Error> {
        let install = Install::find()?;
        let config = folder.join("zoo.cfg");
        fs::write(&config, self.config(folder, port, more)).map_err(Error::io("writing zoo.cfg"))?;
        Ok(Launch::new(install.java, folder)
            .args([
                // Start fast and stay small: there may be a dozen of these on two cores.
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Xshare:auto",
                "-XX:-UsePerfData",
                "-Djava.net.preferIPv4Stack=true",
                "-Djava.io.tmpdir=.",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
                "-Dorg.slf4j.simpleLogger.showDateTime=true",
                "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
                "-Dzookeeper.jmx.log4j.disable=true",
                // The log file is filled up to this size, in KiB, before anything is written.
                "-Dzookeeper.preAllocSize=256",
            ])
            .arg(format!("-Dzookeeper.forceSync={}", if self.fsync { "yes" } else { "no" }))
            .args(&self.java)
            .arg("-cp")
            .arg(install.class_path)
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(config))
    }

    fn config(&self, folder: &Path, port: u16, more: &[String]) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{name}={value}");
        };
        line("dataDir", &folder.join("data").display());
        line("clientPort", &port);
        line("clientPortAddress", &"127.0.0.1");
        line("tickTime", &self.tick_time.as_millis());
        line("minSessionTimeout", &self.min_session_timeout.unwrap_or(self.tick_time * 2).as_millis());
        line("maxSessionTimeout", &self.max_session_timeout.as_millis());
        line("maxClientCnxns", &0);
        line("admin.enableServer", &false);
        line("4lw.commands.whitelist", &"*");
        for line in self.config.iter().chain(more) {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}
