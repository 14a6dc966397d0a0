use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::{Pool, pool::PoolOptions};
use tokio::sync::watch;
use uuid::Uuid;

use super::bench::Bench;
use crate::{
    clock::Tick,
    engine::Engine,
    error::Error,
    hold::{Contender, Done, Grant, Hold, Validity},
    options::LockOptions,
    path::LockPath,
    token::{Ensemble, FencingToken},
    transaction::{Fence, Origin, Tx, TxSpec, database::Options},
};

pub(super) const FENCED: TxSpec = TxSpec { isolation: None, unfenced: false, requires_new: false };
pub(super) const UNFENCED: TxSpec = TxSpec { isolation: None, unfenced: true, requires_new: false };

/// No case waits longer for anything.
pub(super) const LONG: Duration = Duration::from_secs(20);

/// What a `Locks` would have, over a database of its own.
pub(super) struct Lab<DB: Bench> {
    pub(super) options: Options<DB>,
    /// Of one connection: what is left on it, the next borrower finds.
    pub(super) pool: Pool<DB>,
    /// For looks from outside.
    pub(super) beside: Pool<DB>,
    pub(super) engine: Arc<Engine>,
    pub(super) fence: Arc<Fence>,
    tokens: AtomicU64,
}

impl<DB: Bench> Lab<DB> {
    pub(super) async fn new() -> Self {
        Self::on(DB::create().await)
    }

    pub(super) fn on(options: Options<DB>) -> Self {
        Self {
            pool: PoolOptions::new().max_connections(1).connect_lazy_with(options.clone()),
            beside: PoolOptions::new().max_connections(8).connect_lazy_with(options.clone()),
            options,
            engine: Arc::new(Engine::start().unwrap()),
            fence: Arc::new(Fence::new(true)),
            tokens: AtomicU64::new(1),
        }
    }

    /// A grant of `path`, newer than all before, for ten seconds.
    pub(super) fn hold(&self, path: &str) -> (Arc<Hold>, Released) {
        self.hold_for(path, Some(Duration::from_secs(10)))
    }

    pub(super) fn hold_for(&self, path: &str, timeout: Option<Duration>) -> (Arc<Hold>, Released) {
        // What is too long for a path is below a chroot.
        let below = if path.len() > 400 { path.rfind('/').unwrap() } else { 0 };
        let (chroot, path) = path.split_at(below);
        self.granted(path, timeout, Ensemble::MEMORY, Validity::until(Tick::NEVER, chroot))
    }

    pub(super) fn granted(
        &self,
        path: &str,
        timeout: Option<Duration>,
        ensemble: Ensemble,
        validity: Arc<Validity>,
    ) -> (Arc<Hold>, Released) {
        let token = FencingToken::new(ensemble, self.tokens.fetch_add(1, Ordering::Relaxed), 0, 0);
        let options = LockOptions { fair: true, timeout, wait: None, function: "tests::body" };
        let grant =
            Grant { path: LockPath::new(path).unwrap(), options, token, attempt: Uuid::new_v4(), validity };
        let (contender, released) = watch::channel(false);
        (Hold::new(grant, Box::new(Recorder(contender))), Released(released))
    }

    pub(super) async fn begin(&self, hold: &Arc<Hold>) -> Result<Tx<'static, DB>, Error> {
        self.begin_as(hold, FENCED).await
    }

    pub(super) async fn begin_as(&self, hold: &Arc<Hold>, spec: TxSpec) -> Result<Tx<'static, DB>, Error> {
        self.begin_on(&self.pool, hold, spec).await
    }

    pub(super) async fn begin_on(
        &self,
        pool: &Pool<DB>,
        hold: &Arc<Hold>,
        spec: TxSpec,
    ) -> Result<Tx<'static, DB>, Error> {
        let begin = Tx::begin(Origin::Pool(pool.clone()), hold, spec, &self.engine, &self.fence, GRACE);
        soon(begin).await
    }

    /// All ids but that of the shared row, by a connection beside.
    pub(super) async fn ids(&self) -> Vec<i64> {
        let mut connection = self.beside.acquire().await.unwrap();
        let mut ids = DB::ids(&mut connection).await.unwrap();
        ids.retain(|&id| id != super::bench::SHARED);
        ids
    }

    /// Whether nobody has the shared row locked at this very moment.
    pub(super) async fn is_free(&self) -> bool {
        let mut connection = self.beside.acquire().await.unwrap();
        connection.close_on_drop();
        DB::is_free(&mut connection).await.is_ok()
    }

    /// Whether somebody waits for a fence row that somebody else's transaction has.
    pub(super) async fn waits_for_the_fence(&self) -> bool {
        let mut connection = self.beside.acquire().await.unwrap();
        DB::waits_for_the_fence(&mut connection).await.unwrap()
    }

    /// The pool's one connection is there, in no transaction and with its settings.
    pub(super) async fn assert_clean(&self, id: i64) {
        let mut connection = soon(self.pool.acquire()).await.unwrap();
        DB::insert(&mut connection, id).await.unwrap();
        assert!(self.ids().await.contains(&id), "the write is in a transaction that somebody left open");
        let mut fresh = self.beside.acquire().await.unwrap();
        fresh.close_on_drop();
        assert_eq!(DB::settings(&mut connection).await.unwrap(), DB::settings(&mut fresh).await.unwrap());
    }
}

pub(super) const GRACE: Duration = Duration::from_secs(1);

/// The body of a call: works on the connection of a transaction.
pub(super) fn connection<'t, DB: Bench>(tx: &'t mut Tx<'_, DB>) -> &'t mut DB::Connection {
    tx.connection().unwrap()
}

/// Takes the contender away at once and says so.
struct Recorder(watch::Sender<bool>);

impl Contender for Recorder {
    fn release(self: Box<Self>, done: Done) {
        self.0.send_replace(true);
        drop(done);
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

/// Whether a lock was given back.
pub(super) struct Released(watch::Receiver<bool>);

impl Released {
    pub(super) fn is_released(&self) -> bool {
        *self.0.borrow()
    }

    pub(super) async fn released(&mut self) {
        soon(self.0.wait_for(|&released| released)).await.unwrap();
    }
}

/// Waits, but not for ever.
pub(super) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LONG, future).await.expect("it takes too long")
}

/// Waits until a condition comes true.
pub(super) async fn until<F: Future<Output = bool>>(condition: impl Fn() -> F) {
    soon(async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
