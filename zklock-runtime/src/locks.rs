use std::{
    fmt,
    future::Future,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, futures::Notified};

use crate::{
    backend::{Backend, QueueEntry},
    builder::LocksBuilder,
    clock::Tick,
    context::{self, Frame},
    engine::Engine,
    error::Error,
    hold::Hold,
    lock::Lock,
    observe::{HeldLock, Snapshot, WaitingLock},
    path::LockPath,
    reaper::Reaper,
    waits::Waits,
};

/// A connection to the place where the locks live, and all that this process holds there.
///
/// Cheap to clone; all clones share one session, one reaper and threads of their own (one, and one more that speaks with
/// the servers of ZooKeeper), so that neither a blocked nor a finished runtime of yours costs a lock. When the last clone
/// and the last guard are dropped, the session is closed in the background; [`close`](Self::close) waits for it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use zklock_runtime as zklock;
/// use zklock::Locks;
///
/// let locks = Locks::memory(); // or Locks::connect("zk://10.0.0.1,10.0.0.2/shop").await?
/// if let Some(guard) = locks.mutex("/jobs/nightly").try_acquire().await? {
///     // nobody else runs it now
///     guard.release().await?;
/// }
/// locks.close().await;
/// # Ok::<_, zklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Locks(Arc<Inner>);

pub(crate) struct Inner {
    id: u64,
    backend: Arc<dyn Backend>,
    reaper: Arc<Reaper>,
    waits: Arc<Waits>,
    engine: Arc<Engine>,
    defaults: Defaults,
    closed: AtomicBool,
    closing: Notify,
    #[cfg(feature = "sqlx")]
    databases: crate::transaction::Databases,
}

/// What an annotation or a builder leaves open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) timeout: Option<Duration>,
    pub(crate) wait: Option<Duration>,
}

/// The `Locks` of the process.
static INSTALLED: RwLock<Option<Locks>> = RwLock::new(None);

impl Locks {
    /// Locks of this process alone, for tests, a laptop or a single instance: the same semantics with no server.
    ///
    /// Every call makes a world of its own.
    ///
    /// # Panics
    ///
    /// If the system cannot start a thread.
    pub fn memory() -> Self {
        #[expect(clippy::expect_used, reason = "as std::thread::spawn does, and documented")]
        Self::builder("memory:").memory().expect("the system can start a thread")
    }

    /// Connects with the defaults of [`builder`](Self::builder).
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// How to connect to `url`: `zk://host:port,host:port/chroot` (port 2181 where none is given) with the `zookeeper`
    /// feature, or `memory:`.
    pub fn builder(url: &str) -> LocksBuilder {
        LocksBuilder::new(url)
    }

    pub(crate) fn assemble(
        backend: Arc<dyn Backend>,
        engine: Arc<Engine>,
        defaults: Defaults,
        grace: Duration,
        #[cfg(feature = "sqlx")] databases: crate::transaction::Databases,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let reaper = Reaper::start(engine.handle(), grace);
        backend.overseen_by(reaper.clone());
        Self(Arc::new(Inner {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            reaper,
            waits: Waits::new(backend.clone()),
            backend,
            engine,
            defaults,
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            #[cfg(feature = "sqlx")]
            databases,
        }))
    }

    /// Makes this the `Locks` of the process: what `#[zk_lock]` uses where it names no `locks = ..` and no
    /// [`scope`](Self::scope) is around.
    ///
    /// # Panics
    ///
    /// If another one is installed already and not closed.
    pub fn install(&self) {
        let mut installed = INSTALLED.write().unwrap_or_else(PoisonError::into_inner);
        let other =
            installed.as_ref().is_some_and(|other| !Arc::ptr_eq(&other.0, &self.0) && !other.is_closed());
        assert!(!other, "another `Locks` is installed already: close it first, or use `Locks::scope`");
        *installed = Some(self.clone());
    }

    /// Runs `future` with this as its default `Locks`, whatever is installed: so tests run side by side.
    ///
    /// Tasks that `future` spawns do not inherit it. Cancel-safe: dropping it drops `future`.
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        Frame::scope(self.clone()).run(future)
    }

    /// A lock on `path` that one holder at a time can have.
    ///
    /// A path that cannot name a lock is reported by `acquire`, as [`Error::InvalidPath`].
    pub fn mutex(&self, path: impl TryInto<LockPath, Error: Into<Error>>) -> Lock {
        Lock::new(self.clone(), path.try_into().map_err(Into::into))
    }

    /// What this process holds and waits for, at this moment.
    pub fn snapshot(&self) -> Snapshot {
        let held = self.0.reaper.holds().iter().map(|hold| HeldLock::of(hold)).collect();
        let waiting = self.0.waits.waiting().into_iter().map(|waiting| WaitingLock {
            path: waiting.path,
            function: waiting.function,
            waited: waiting.since.elapsed(),
        });
        Snapshot { held, waiting: waiting.collect(), deletes: self.0.backend.deletes() }
    }

    /// The queue of `path` as the server sees it: the holder first, then who waits, from all processes.
    ///
    /// Errors: [`Error::InvalidPath`], [`Error::Unavailable`], [`Error::Refused`], [`Error::Backend`]. Cancel-safe.
    pub async fn inspect(
        &self,
        path: impl TryInto<LockPath, Error: Into<Error>>,
    ) -> Result<Vec<QueueEntry>, Error> {
        let path = path.try_into().map_err(Into::into)?;
        self.0.backend.inspect(&path).await
    }

    /// Ends all of it: bodies are stopped and rolled back, locks released, waiting calls get [`Error::Closed`], the
    /// session is closed, so that other processes take over at once instead of after the session timeout. Call it
    /// before your process exits.
    ///
    /// A body that does not yield is given the grace time. Not undone by dropping the future; a second call returns
    /// when everything is let go.
    pub async fn close(&self) {
        let inner = &self.0;
        inner.closed.store(true, Ordering::Release);
        inner.closing.notify_waiters();
        inner.reaper.close();
        inner.reaper.empty().await;
        let backend = inner.backend.clone();
        inner.engine.stop_after(async move { backend.close().await });
        inner.engine.ended().await;
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// The `Locks` that an annotation uses which names none.
    pub(crate) fn default_of_call() -> Result<Self, Error> {
        if let Some(locks) = context::scoped_locks() {
            return Ok(locks);
        }
        INSTALLED.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Error::NotInstalled {
            what: "no `Locks` is installed: call `locks.install()` once at start, name one with \
                   `#[zk_lock(locks = ..)]`, or run inside `locks.scope(..)`",
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn defaults(&self) -> Defaults {
        self.0.defaults
    }

    pub(crate) fn grace(&self) -> Duration {
        self.0.reaper.grace()
    }

    pub(crate) fn reaper(&self) -> &Arc<Reaper> {
        &self.0.reaper
    }

    pub(crate) fn waits(&self) -> &Arc<Waits> {
        &self.0.waits
    }

    /// Resolves when `close` is called from now on.
    pub(crate) fn closing(&self) -> Notified<'_> {
        self.0.closing.notified()
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    #[cfg(feature = "sqlx")]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    #[cfg(feature = "sqlx")]
    pub(crate) fn databases(&self) -> &crate::transaction::Databases {
        &self.0.databases
    }

    /// Waits until the contender of a hold that ended is gone, as far as the server answers: the reaper has seen to it
    /// by twice the grace time, and a server that is away must not keep the caller from its answer.
    pub(crate) async fn let_go_of(&self, hold: &Hold) {
        tokio::select! {
            () = hold.gone() => {}
            () = self.0.engine.sleep_until(Tick::now() + self.grace().saturating_mul(2)) => {}
        }
    }
}

/// Without a `close` the session is ended in the background.
impl Drop for Inner {
    fn drop(&mut self) {
        let backend = self.backend.clone();
        self.engine.stop_after(async move { backend.close().await });
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("backend", &self.0.backend)
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
