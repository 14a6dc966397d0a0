use std::{fmt, process, sync::Arc, time::Duration};

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
    #[cfg(feature = "sqlx")]
    databases: crate::transaction::Databases,
}

impl LocksBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            identity: default_identity(),
            defaults: Defaults {
                timeout: Some(Duration::from_secs(5)),
                wait: Some(Duration::from_secs(30)),
            },
            grace: Duration::from_secs(1),
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

    /// Connects.
    ///
    /// Errors: [`Error::Config`] for an address that cannot work, [`Error::Unavailable`] when no server answered,
    /// [`Error::Refused`]. Cancel-safe: a dropped call leaves nothing behind.
    pub async fn connect(self) -> Result<Locks, Error> {
        if self.url == "memory:" {
            return self.memory();
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
        let memory = Memory::new(self.identity.as_str().into(), engine.handle().clone());
        Ok(self.assemble(Arc::new(memory), engine))
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

fn start_engine() -> Result<Arc<Engine>, Error> {
    let engine =
        Engine::start().map_err(|error| Error::Config { reason: format!("cannot start a thread: {error}") })?;
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
        f.debug_struct("LocksBuilder").field("url", &self.url).field("identity", &self.identity).finish_non_exhaustive()
    }
}
