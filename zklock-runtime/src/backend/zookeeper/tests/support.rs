use std::{
    ops::Deref,
    panic::Location,
    sync::Arc,
    task::{Wake, Waker},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use zklock_testkit::{Chroot, ZooKeeper as Server};

use super::super::{
    Acl, Address, Config, Limit, ZooKeeper,
    call::Call,
    group::Created,
    outlet::Answer,
    session::{Node, Session},
    supervisor::Current,
};
use crate::{
    backend::{Backend, Request},
    clock::Tick,
    engine::Engine,
    error::Error,
    hold::Hold,
    options::LockOptions,
    path::LockPath,
};

pub(super) const SESSION: Duration = Duration::from_secs(4);

/// For what comes at once if it comes.
pub(super) const SOON: Duration = Duration::from_secs(10);

/// A node of its own on the server that these tests share.
pub(super) async fn chroot(name: &str) -> (&'static Server, Chroot) {
    let server = Server::shared().await.unwrap();
    let chroot = server.chroot(name).await.unwrap();
    (server, chroot)
}

/// One process, so to speak.
pub(super) struct Peer {
    pub(super) locks: ZooKeeper,
    // Dropped last: it ends the thread.
    _engine: Arc<Engine>,
}

impl Peer {
    pub(super) async fn connect(url: &str, identity: &str) -> Self {
        Self::with(config(url, identity)).await.unwrap()
    }

    /// Keeps an unfair lock to itself for so long.
    pub(super) async fn sharing(url: &str, identity: &str, share: Limit) -> Self {
        Self::with(Config { share, ..config(url, identity) }).await.unwrap()
    }

    pub(super) async fn with(config: Config) -> Result<Self, Error> {
        Self::within(config, SOON).await
    }

    pub(super) async fn within(config: Config, wait: Duration) -> Result<Self, Error> {
        let engine = Arc::new(Engine::start().unwrap());
        let locks = ZooKeeper::connect(engine.clone(), config, Tick::now() + wait).await?;
        Ok(Self { locks, _engine: engine })
    }

    pub(super) async fn lock(&self, path: &str) -> Arc<Hold> {
        self.acquire(fair(path, SOON)).await.unwrap()
    }

    pub(super) async fn run_for(&self, path: &str) -> Arc<Hold> {
        self.acquire(plain(path, SOON)).await.unwrap()
    }

    /// What [`Backend::acquire`] returns, started.
    pub(super) fn start(&self, request: Request) -> tokio::task::JoinHandle<Result<Arc<Hold>, Error>> {
        tokio::spawn(self.acquire(request))
    }

    /// A call that nothing is done for yet.
    pub(super) fn call(&self, request: Request) -> (Arc<Call>, oneshot::Receiver<Answer>) {
        Call::new(self.home.clone(), request)
    }

    pub(super) fn session(&self) -> Option<Arc<Session>> {
        match &*self.home.current.borrow() {
            Current::Live(session) => Some(session.clone()),
            Current::None(_) | Current::Closed => None,
        }
    }
}

impl Deref for Peer {
    type Target = ZooKeeper;

    fn deref(&self) -> &ZooKeeper {
        &self.locks
    }
}

pub(super) fn config(url: &str, identity: &str) -> Config {
    Config {
        address: Address::parse(url).unwrap(),
        session_timeout: SESSION,
        identity: identity.into(),
        auth: Vec::new(),
        acl: Acl::Open,
        share: Limit::default(),
    }
}

pub(super) fn fair(path: &str, wait: Duration) -> Request {
    request(path, true, wait)
}

pub(super) fn plain(path: &str, wait: Duration) -> Request {
    request(path, false, wait)
}

pub(super) fn request(path: &str, fair: bool, wait: Duration) -> Request {
    let options = LockOptions { fair, timeout: None, wait: Some(wait), function: "tests::f" };
    Request { path: LockPath::new(path).unwrap(), options, wait_until: Tick::now() + wait, overseer: None }
}

/// Gives it back and waits until the server has heard.
pub(super) async fn release(hold: Arc<Hold>) {
    hold.release();
    within(SOON, hold.gone()).await;
}

/// A plain node that the server has never seen.
pub(super) fn made_up(path: &str) -> Arc<Node> {
    Node::plain(path.into(), Created { czxid: 1, place: 0 })
}

#[track_caller]
pub(super) fn within<T>(time: Duration, what: impl Future<Output = T>) -> impl Future<Output = T> {
    let asked_at = Location::caller();
    async move {
        let done = tokio::time::timeout(time, what).await;
        done.unwrap_or_else(|_| panic!("did not happen within {time:?}: {asked_at}"))
    }
}

/// What an executor of somebody else may come with.
pub(super) fn panicking() -> Waker {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as a waker may");
        }
    }
    Waker::from(Arc::new(Panics))
}

/// Looks until it is so.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < SOON, "not so in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The queue of a path, as an operator would count it.
pub(super) async fn count(server: &Server, chroot: &Chroot, path: &str) -> usize {
    server.children(&format!("{}{path}", chroot.path())).await.unwrap().len()
}

pub(super) async fn is_queued(server: &Server, chroot: &Chroot, path: &str, length: usize) {
    until(&format!("{length} in the queue of {path}"), async || count(server, chroot, path).await == length)
        .await;
}
