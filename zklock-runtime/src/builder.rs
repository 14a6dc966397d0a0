use std::{fmt, process, sync::Arc, time::Duration};

#[cfg(feature = "zookeeper")]
use crate::{
    backend::zookeeper::{Acl, Address, Config, Limit, ZooKeeper},
    clock::Tick,
};
use crate::{
    backend::{Backend, memory::Memory},
    engine::Engine,
    error::Error,
    locks::{Defaults, Locks},
};

/// How to connect: made by [`Locks::builder`], done by [`connect`](Self::connect).
#[must_use = "nothing happens until `connect` is awaited"]
pub struct LocksBuilder {
    url: String,
    identity: String,
    defaults: Defaults,
    grace: Duration,
    #[cfg(feature = "zookeeper")]
    server: Server,
    #[cfg(feature = "sqlx")]
    databases: crate::transaction::Databases,
}

impl LocksBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            identity: default_identity(),
            defaults: Defaults { timeout: Some(Duration::from_secs(5)), wait: Some(Duration::from_secs(30)) },
            grace: Duration::from_secs(1),
            #[cfg(feature = "zookeeper")]
            server: Server::default(),
            #[cfg(feature = "sqlx")]
            databases: crate::transaction::Databases::default(),
        }
    }

    /// How long a lock may be held where the annotation gives no `timeout`; `None` for no limit. Default: 5 s.
    pub fn default_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.defaults.timeout = timeout.into();
        self
    }

    /// How long it may take to get a lock where the annotation gives no `wait`; `None` for no limit. Default: 30 s.
    pub fn default_wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.defaults.wait = wait.into();
        self
    }

    /// How long a body that was stopped has to yield and to be rolled back, before its transaction is ended from
    /// outside and the lock released all the same. Default: 1 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Who we are, shown to operators and to those who wait for us. Default: `host:pid`.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = identity.into();
        self
    }

    /// The pool that a bare `transactional` takes its connections from; one for each type of database.
    #[cfg(feature = "sqlx")]
    pub fn pool<DB: crate::transaction::Database>(mut self, pool: sqlx::Pool<DB>) -> Self {
        self.databases.add(pool);
        self
    }

    /// Whether the table `zklock_fence` is created where it is missing; else the first transaction is refused with
    /// the SQL to run. Default: true.
    #[cfg(feature = "sqlx")]
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.databases.migrate(migrate);
        self
    }

    /// How long the server waits for a process that it does not hear of before it passes its locks on; it may
    /// choose another value within its own limits, and deadlines use that one. Default: 10 s.
    #[cfg(feature = "zookeeper")]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.server.session_timeout = timeout;
        self
    }

    /// How long [`connect`](Self::connect) may take. Default: 10 s.
    #[cfg(feature = "zookeeper")]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.server.connect_timeout = timeout;
        self
    }

    /// Credentials, such as `("digest", "user:password")`. May be called more than once.
    #[cfg(feature = "zookeeper")]
    pub fn auth(mut self, scheme: impl Into<String>, credentials: impl Into<Vec<u8>>) -> Self {
        self.server.auth.push((scheme.into(), credentials.into()));
        self
    }

    /// Who may use the nodes that we make. Default: everybody.
    #[cfg(feature = "zookeeper")]
    pub fn acl(mut self, acl: Acl) -> Self {
        self.server.acl = acl;
        self
    }

    /// Connects.
    ///
    /// Errors: [`Error::Config`] for an address that cannot work, [`Error::Unavailable`] when no server answered,
    /// [`Error::Refused`]. Cancel-safe: a dropped call leaves nothing behind.
    pub async fn connect(self) -> Result<Locks, Error> {
        if self.url == "memory:" {
            return self.memory();
        }
        #[cfg(feature = "zookeeper")]
        if self.url.starts_with("zk://") {
            return self.zookeeper().await;
        }
        Err(Error::Config {
            reason: format!(
                "{:?} is not an address of locks; write {}",
                self.url,
                if cfg!(feature = "zookeeper") {
                    "\"zk://host:port,host:port/chroot\" or \"memory:\""
                } else {
                    "\"memory:\", or turn on the feature `zookeeper` for \"zk://host:port,host:port/chroot\""
                }
            ),
        })
    }

    pub(crate) fn memory(self) -> Result<Locks, Error> {
        let engine = start_engine()?;
        let memory = Memory::new(self.identity.as_str().into(), engine.timers().clone());
        Ok(self.assemble(Arc::new(memory), engine))
    }

    #[cfg(feature = "zookeeper")]
    async fn zookeeper(mut self) -> Result<Locks, Error> {
        let server = std::mem::take(&mut self.server);
        if server.session_timeout < SHORTEST_SESSION {
            return Err(Error::Config {
                reason: format!(
                    "a session timeout of {:?} is shorter than {SHORTEST_SESSION:?}: a pause of the process would cost \
                     its locks",
                    server.session_timeout
                ),
            });
        }
        let config = Config {
            address: Address::parse(&self.url)?,
            session_timeout: server.session_timeout,
            identity: self.identity.as_str().into(),
            auth: server.auth,
            acl: server.acl,
            share: Limit::default(),
        };
        let engine = start_engine()?;
        let within = Tick::now() + server.connect_timeout;
        let connected = ZooKeeper::connect(engine.clone(), config, within).await;
        match connected {
            Ok(zookeeper) => Ok(self.assemble(Arc::new(zookeeper), engine)),
            Err(error) => {
                engine.stop_after(async {});
                Err(error)
            }
        }
    }

    fn assemble(self, backend: Arc<dyn Backend>, engine: Arc<Engine>) -> Locks {
        Locks::assemble(
            backend,
            engine,
            self.defaults,
            self.grace,
            #[cfg(feature = "sqlx")]
            self.databases,
        )
    }
}

/// Servers with the usual tick do not give less anyway.
#[cfg(feature = "zookeeper")]
const SHORTEST_SESSION: Duration = Duration::from_secs(1);

/// What only a server needs to know.
#[cfg(feature = "zookeeper")]
struct Server {
    session_timeout: Duration,
    connect_timeout: Duration,
    auth: Vec<(String, Vec<u8>)>,
    acl: Acl,
}

#[cfg(feature = "zookeeper")]
impl Default for Server {
    fn default() -> Self {
        let (session_timeout, connect_timeout) = (Duration::from_secs(10), Duration::from_secs(10));
        Self { session_timeout, connect_timeout, auth: Vec::new(), acl: Acl::default() }
    }
}

fn start_engine() -> Result<Arc<Engine>, Error> {
    let engine = Engine::start()
        .map_err(|error| Error::Config { reason: format!("cannot start a thread: {error}") })?;
    Ok(Arc::new(engine))
}

fn default_identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .or_else(|| std::env::var("COMPUTERNAME").ok());
    let host = host.as_deref().map_or("unknown", str::trim);
    format!("{host}:{}", process::id())
}

impl fmt::Debug for LocksBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocksBuilder")
            .field("url", &self.url)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}
