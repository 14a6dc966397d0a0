mod builder;
mod chroot;
mod counter;
mod expire;
mod install;
mod node;
mod server;
mod wire;
mod words;

use std::env;
use std::time::Duration;

use tokio::sync::OnceCell;

pub use self::builder::ZooKeeperBuilder;
pub use self::chroot::Chroot;
pub use self::expire::expire_session;
pub use self::node::Node;
pub(crate) use self::server::Server;
use self::wire::Session;
pub use self::words::Mode;
use crate::error::Error;
use crate::port::Port;
use crate::random::random;
use crate::server::Process;

/// Names a server that runs already, as `host:port`.
const GIVEN: &str = "ZKLOCK_TEST_ZOOKEEPER";

/// How long a server may take; on a busy machine Java alone may need seconds.
const START_DEADLINE: Duration = Duration::from_mins(1);

/// A ZooKeeper server for tests: a child process on a free port of 127.0.0.1, with its data in a
/// temporary folder, killed and removed when this is dropped or when the test process ends, however
/// it ends.
///
/// It is Debian's or Ubuntu's (`apt-get install zookeeper`), or the unpacked release that
/// `ZOOKEEPER_HOME` points at, or a server that runs already, given by
/// `ZKLOCK_TEST_ZOOKEEPER=host:port`; such a one is only used: to pause, kill or wipe it is
/// [`Error::NotOurs`].
///
/// No method needs the runtime that started the server, so it can be handed from one to another.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), zklock_testkit::Error> {
/// use zklock_testkit::ZooKeeper;
///
/// let zookeeper = ZooKeeper::start().await?;
/// assert!(zookeeper.url().starts_with("zk://127.0.0.1:"));
///
/// zookeeper.kill()?;
/// zookeeper.restart().await?; // the same port, the same data
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ZooKeeper {
    address: String,
    // None for a server that was given.
    server: Option<Server>,
}

impl ZooKeeper {
    /// Starts a server with the default settings, and waits until it serves: well under a second on
    /// an idle machine.
    ///
    /// # Errors
    ///
    /// [`Error::NotInstalled`] with the command that installs what is missing; [`Error::Start`] with
    /// the server's log.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the server.
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// For a server with other settings.
    pub fn builder() -> ZooKeeperBuilder {
        ZooKeeperBuilder::default()
    }

    /// The server that all tests of this process share: started by the first that asks, ended with
    /// the process. Give each test a node of its own with [`chroot`](Self::chroot).
    ///
    /// A test that pauses, kills or wipes a server starts its own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), zklock_testkit::Error> {
    /// let chroot = zklock_testkit::ZooKeeper::shared().await?.chroot("orders").await?;
    /// println!("{}", chroot.url()); // zk://127.0.0.1:23456/orders-1f3a...
    /// # Ok(())
    /// # }
    /// ```
    pub async fn shared() -> Result<&'static Self, Error> {
        // Statics are not dropped: the watchdog ends the server. Each test has its own runtime, and
        // the server depends on none.
        static SHARED: OnceCell<ZooKeeper> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    async fn start_with(settings: &ZooKeeperBuilder) -> Result<Self, Error> {
        if let Some(address) = env::var(GIVEN).ok().filter(|address| !address.is_empty()) {
            let given = Self { address, server: None };
            given.mode().await?;
            return Ok(given);
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let server = Server::spawn(settings, Port::claim()?, None, &[])?;
            match server.serves(START_DEADLINE).await {
                Ok(()) => {
                    let address = format!("127.0.0.1:{}", server.port());
                    return Ok(Self { address, server: Some(server) });
                }
                // A process that knows nothing of our claims was quicker.
                Err(Error::Start { log, .. }) if attempts < 5 && log.contains("Address already in use") => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A member of an ensemble.
    pub(crate) fn member(server: Server) -> Self {
        Self { address: format!("127.0.0.1:{}", server.port()), server: Some(server) }
    }

    /// For ZooKeeper clients: `127.0.0.1:23456`.
    pub fn connect_string(&self) -> &str {
        &self.address
    }

    /// For `zklock`: `zk://127.0.0.1:23456`.
    pub fn url(&self) -> String {
        format!("zk://{}", self.address)
    }

    /// The port that clients connect to.
    ///
    /// # Panics
    ///
    /// If `ZKLOCK_TEST_ZOOKEEPER` was given without a port.
    pub fn port(&self) -> u16 {
        let port = self.address.rsplit(':').next().and_then(|port| port.parse().ok());
        port.unwrap_or_else(|| panic!("{GIVEN} must be host:port, not '{}'", self.address))
    }

    /// The server's process number, while it runs and is ours.
    pub fn process_id(&self) -> Option<u32> {
        self.server.as_ref().and_then(|server| server.process().id())
    }

    /// Makes a node of its own for one test, `/<name>-<random>`.
    pub async fn chroot(&self, name: &str) -> Result<Chroot, Error> {
        let path = format!("/{name}-{:016x}", random());
        self.create_node(&path, b"").await?;
        Ok(Chroot::new(&self.address, path))
    }

    /// Stops the server in its tracks (SIGSTOP): connections stay open, nothing is answered.
    pub fn pause(&self) -> Result<(), Error> {
        self.process()?.pause()
    }

    /// Lets a paused server go on (SIGCONT).
    pub fn resume(&self) -> Result<(), Error> {
        self.process()?.resume()
    }

    /// Ends the server with no chance to tidy up (SIGKILL) and returns once it is gone.
    pub fn kill(&self) -> Result<(), Error> {
        self.process()?.kill()
    }

    /// Kills the server if it runs, starts it again on the same port and the same data, and waits
    /// until it serves. Sessions live on if their clients come back in time.
    ///
    /// A member of an ensemble serves only with a majority: bring back the others first, with
    /// [`start_again`](Self::start_again).
    pub async fn restart(&self) -> Result<(), Error> {
        self.kill()?;
        self.start_again()?;
        self.wait_until_serving().await
    }

    /// Starts a killed server again, without waiting until it serves.
    pub fn start_again(&self) -> Result<(), Error> {
        self.process()?.start()
    }

    /// Waits until the server serves clients, at most a minute.
    pub async fn wait_until_serving(&self) -> Result<(), Error> {
        self.server()?.serves(START_DEADLINE).await
    }

    /// What an operator may do in despair: kills the server, removes all its data, starts it again on
    /// the same port. All sessions are over, and transaction numbers start from the beginning.
    pub async fn wipe(&self) -> Result<(), Error> {
        self.kill()?;
        self.server()?.wipe()?;
        self.restart().await
    }

    /// Removes the data of a server that does not run.
    pub(crate) fn wipe_data(&self) -> Result<(), Error> {
        self.server()?.wipe()
    }

    /// The server's answer to one of its four-letter words: `srvr`, `stat`, `mntr`, `cons`, `dump`,
    /// `wchp`.
    pub async fn word(&self, word: &str) -> Result<String, Error> {
        let asked = words::ask(&self.address, word).await;
        asked.map_err(Error::io(format!("asking ZooKeeper at {} for `{word}`", self.address)))
    }

    /// The part that the server plays.
    ///
    /// # Errors
    ///
    /// [`Error::Answer`] while it serves nobody: it is starting, or cut off from its majority.
    pub async fn mode(&self) -> Result<Mode, Error> {
        let answer = self.word("srvr").await?;
        Mode::from_srvr(&answer)
            .ok_or_else(|| Error::Answer { asked: format!("`srvr` at {}", self.address), answer })
    }

    /// One of the numbers of `mntr`, by its name there: `zk_packets_received` counts requests,
    /// `zk_num_alive_connections`, `zk_ephemerals_count`, `zk_znode_count` and `zk_watch_count` what
    /// there is.
    pub async fn metric(&self, name: &str) -> Result<u64, Error> {
        let answer = self.word("mntr").await?;
        answer
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .find(|(found, _)| *found == name)
            // Some have a fraction, which nobody asks for.
            .and_then(|(_, value)| value.trim().split('.').next()?.parse().ok())
            .ok_or_else(|| Error::Answer { asked: format!("`mntr` for {name} at {}", self.address), answer })
    }

    /// The names of a node's children, sorted; none if there is no such node.
    pub async fn children(&self, path: &str) -> Result<Vec<String>, Error> {
        self.ask(async |session| session.children(path).await).await
    }

    /// A node as it is on the server, if it is there.
    pub async fn node(&self, path: &str) -> Result<Option<Node>, Error> {
        self.ask(async |session| session.node(path).await).await
    }

    /// Creates a persistent node; its parent must be there.
    pub async fn create_node(&self, path: &str, data: &[u8]) -> Result<(), Error> {
        self.ask(async |session| session.create(path, data).await).await
    }

    /// Deletes a node, whosever it is, as an operator might; false if it was not there.
    pub async fn delete_node(&self, path: &str) -> Result<bool, Error> {
        self.ask(async |session| session.delete(path).await).await
    }

    /// Deletes a node, but only while `other` is there, in one transaction; false if either was not there. So a waiter can
    /// be taken out of a queue, and surely not a holder: the one before it has not gone.
    pub async fn delete_node_while(&self, path: &str, other: &str) -> Result<bool, Error> {
        self.ask(async |session| session.delete_while(path, other).await).await
    }

    /// Uses a short session that has nothing to do with the code under test.
    async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&mut Session) -> std::io::Result<T>,
    ) -> Result<T, Error> {
        let asked = async {
            let mut session = Session::open(&self.address).await?;
            let answer = question(&mut session).await;
            session.close().await?;
            answer
        };
        asked.await.map_err(Error::io(format!("asking ZooKeeper at {}", self.address)))
    }

    fn process(&self) -> Result<&Process, Error> {
        self.server().map(Server::process)
    }

    fn server(&self) -> Result<&Server, Error> {
        self.server.as_ref().ok_or(Error::NotOurs { server: "ZooKeeper", variable: GIVEN })
    }
}
