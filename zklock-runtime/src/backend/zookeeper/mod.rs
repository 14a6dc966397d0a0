//! Locks on a ZooKeeper ensemble.
//!
//! One session for a `Locks`, shared by all its locks ([`session`], kept by [`supervisor`]), which speaks with the server on a
//! thread of its own ([`io`]). Each [`call`] starts on the thread
//! of its caller and has a task of its own only where it must do more than wait. A fair lock is a directory of contenders
//! ([`fair`], whose decision is [`queue`]), an unfair one a plain node ([`plain`], wanted by the tasks of a session in a queue
//! of their own, [`local`]). What was created ([`entry`]) is owned by a value ([`contender`]) that hands it to the
//! [`janitor`] when dropped; what is written travels together ([`group`]). One persistent
//! node at the root of the server is ours and stays, whatever the chroot: the id of the ensemble ([`ensemble::NODE`]).
//!
//! **Assumed**: all servers of an ensemble have the same limits for session timeouts (`minSessionTimeout`,
//! `maxSessionTimeout`, `tickTime`). The timeout is agreed upon anew with each connection, and zookeeper-client (0.11.2)
//! tells only what the first one agreed upon: a later server with a lower maximum would end a session while its locks
//! still count as held.

mod address;
mod answer;
mod attempt;
mod backoff;
mod bell;
mod call;
mod contender;
mod directories;
mod ensemble;
mod entry;
mod fair;
mod group;
mod inspect;
mod io;
mod janitor;
mod line;
mod local;
mod looks;
#[cfg(test)]
mod model;
mod nodes;
mod order;
mod outlet;
mod parents;
mod plain;
mod queue;
mod session;
mod supervisor;
#[cfg(test)]
mod tests;
mod witness;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::sync::{oneshot, watch};
use zookeeper_client as zk;

pub(crate) use self::{address::Address, local::Limit};
use self::{
    answer::Setback,
    backoff::Backoff,
    call::{Call, Home},
    io::Io,
    session::Session,
    supervisor::Current,
};
#[cfg(feature = "sqlx")]
use crate::token::Ensemble;
use crate::{
    backend::{Backend, BoxFuture, Deletes, QueueEntry, Request},
    clock::Tick,
    engine::{Engine, sleep_until},
    error::{Cause, Error},
    hold::Hold,
    path::LockPath,
};

/// How to connect.
pub(crate) struct Config {
    pub(crate) address: Address,
    /// What is asked for; the server may give another.
    pub(crate) session_timeout: Duration,
    /// Who we are, written into every node.
    pub(crate) identity: Arc<str>,
    /// Scheme and credentials, such as `digest` and `user:password`.
    pub(crate) auth: Vec<(String, Vec<u8>)>,
    pub(crate) acl: Acl,
    /// For how long an unfair lock stays with one process while others may be waiting for it.
    pub(crate) share: Limit,
}

/// Who may use the nodes that a `Locks` makes on a server.
///
/// All services that share a lock must be able to delete each other's directories, so they need the same choice, and
/// with [`Creator`](Self::Creator) the same credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acl {
    /// Everybody, which is ZooKeeper's own default.
    #[default]
    Open,
    /// Whoever has the credentials that were given with [`LocksBuilder::auth`](crate::LocksBuilder::auth).
    Creator,
}

/// Locks on one ensemble.
pub(crate) struct ZooKeeper {
    home: Arc<Home>,
    closing: watch::Sender<bool>,
}

impl ZooKeeper {
    /// Connects, trying again until `wait_until`. Cancel-safe: nothing is left behind but a session that times out.
    pub(crate) async fn connect(
        engine: Arc<Engine>,
        config: Config,
        wait_until: Tick,
    ) -> Result<Self, Error> {
        let config = Arc::new(config);
        let (closing, closed) = watch::channel(false);
        let started = Tick::now();
        let handle = engine.handle().clone();
        let opening = config.clone();
        let (tasks, current) = on_engine(&engine, move |gone| async move {
            let io = Io::start(&handle)
                .map_err(|error| Error::Config { reason: format!("cannot start a thread: {error}") })?;
            let mut last = None;
            let opened = tokio::select! {
                opened = open(&opening, &io, &mut last) => opened,
                () = sleep_until(&handle, wait_until) => Err(match last {
                    Some(error @ Error::Unavailable { .. }) => error,
                    _ => opening.unavailable(None),
                }),
                () = gone => Err(Error::Closed),
            };
            let first = opened.map_err(|error| after(started, error))?;
            let (current, receiver) = watch::channel(Current::Live(first.0.clone()));
            let tasks = io.tasks().clone();
            handle.spawn(supervisor::supervise(opening, first, io, current, closed));
            Ok((tasks, receiver))
        })
        .await?;
        Ok(Self { home: Arc::new(Home { engine, tasks, config, current }), closing })
    }
}

impl Backend for ZooKeeper {
    fn acquire(&self, request: Request) -> BoxFuture<Result<Arc<Hold>, Error>> {
        Box::pin(Call::acquire(self.home.clone(), request))
    }

    #[cfg(feature = "sqlx")]
    fn ensemble(&self, wait_until: Tick) -> BoxFuture<Result<Ensemble, Error>> {
        let home = self.home.clone();
        Box::pin(async move {
            tokio::select! {
                session = live(&home.current, None) => Ok(session?.home.ensemble),
                () = home.engine.sleep_until(wait_until) => Err(home.config.unavailable(None)),
            }
        })
    }

    #[cfg(feature = "sqlx")]
    fn fence_key(&self, path: &LockPath) -> String {
        format!("{}{path}", self.home.config.address.chroot())
    }

    fn deletes(&self) -> Deletes {
        match &*self.home.current.borrow() {
            Current::Live(session) => session.janitor.deletes(),
            Current::None(_) | Current::Closed => Deletes::default(),
        }
    }

    fn inspect(&self, path: &LockPath) -> BoxFuture<Result<Vec<QueueEntry>, Error>> {
        let (home, path) = (self.home.clone(), path.clone());
        Box::pin(async move {
            let Home { config, current, .. } = &*home;
            let (config, current) = (config.clone(), current.clone());
            on_engine(&home.engine, move |gone| async move {
                let read = async {
                    let mut last = None;
                    loop {
                        let session = live(&current, last.as_ref()).await?;
                        match inspect::queue_of(&session, &path).await {
                            Ok(queue) => return Ok(queue),
                            Err(Setback::Failed(error)) => return Err(error),
                            Err(Setback::SessionOver) => last = Some(session),
                        }
                    }
                };
                tokio::select! {
                    queue = read => queue,
                    () = tokio::time::sleep(config.session_timeout) => {
                        Err(Error::Unavailable {
                            servers: config.address.servers(), waited: config.session_timeout, source: None,
                        })
                    }
                    () = gone => Err(Error::Closed),
                }
            })
            .await
        })
    }

    fn close(&self) -> BoxFuture<()> {
        self.closing.send_replace(true);
        let mut current = self.home.current.clone();
        Box::pin(async move {
            // The supervisor closes the session within a bound, and then lets go of the other end.
            while current.changed().await.is_ok() {}
        })
    }
}

/// Without a `close` before it, the session is closed in the background.
impl Drop for ZooKeeper {
    fn drop(&mut self) {
        self.closing.send_replace(true);
    }
}

/// The session to use, another one than `last`.
async fn live(
    current: &watch::Receiver<Current>,
    last: Option<&Arc<Session>>,
) -> Result<Arc<Session>, Error> {
    let mut current = current.clone();
    loop {
        match &*current.borrow_and_update() {
            Current::Live(session) if last.is_none_or(|last| !Arc::ptr_eq(last, session)) => {
                return Ok(session.clone());
            }
            // Waiting does not help against a wrong password.
            Current::None(Some(error @ (Error::Refused { .. } | Error::Config { .. }))) => {
                return Err(error.clone());
            }
            Current::Live(_) | Current::None(_) => {}
            Current::Closed => return Err(Error::Closed),
        }
        if current.changed().await.is_err() {
            return Err(Error::Closed);
        }
    }
}

/// The first session, `last` being what the last try failed with.
async fn open(
    config: &Arc<Config>,
    io: &Io,
    last: &mut Option<Error>,
) -> Result<(Arc<Session>, zk::StateWatcher), Error> {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
    loop {
        match Session::open(config, io.tasks()).await {
            Err(error @ Error::Unavailable { .. }) => *last = Some(error),
            opened => return opened,
        }
        backoff.pause().await;
    }
}

/// Runs a task on the engine's thread, for a caller that may be polled anywhere. The task is told when the caller
/// is gone.
async fn on_engine<T, F>(engine: &Engine, task: impl FnOnce(Gone) -> F) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let (here, gone) = oneshot::channel::<()>();
    let task = task(Box::pin(async move {
        // Nothing is ever sent: this resolves when the other end is dropped.
        let _ = gone.await;
    }));
    engine.handle().spawn(async move {
        // If nobody takes the answer it is dropped here, and a hold with it, which gives it back.
        let _ = answer.send(task.await);
    });
    let answer = answered.await;
    drop(here);
    // Without an answer the engine has stopped.
    answer.unwrap_or(Err(Error::Closed))
}

type Gone = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn after(started: Tick, error: Error) -> Error {
    match error {
        Error::Unavailable { servers, source, .. } => {
            Error::Unavailable { servers, waited: started.elapsed(), source }
        }
        error => error,
    }
}

impl Config {
    fn unavailable(&self, error: Option<zk::Error>) -> Error {
        Error::Unavailable {
            servers: self.address.servers(),
            waited: Duration::ZERO,
            source: error.map(Cause::new),
        }
    }
}

impl Acl {
    fn acls(&self) -> zk::Acls<'_> {
        match self {
            Self::Open => zk::Acls::anyone_all(),
            Self::Creator => zk::Acls::creator_all(),
        }
    }
}

/// Without the credentials.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("address", &self.address)
            .field("session_timeout", &self.session_timeout)
            .field("identity", &self.identity)
            .field("acl", &self.acl)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeper").field("config", &self.home.config).finish_non_exhaustive()
    }
}
