use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use uuid::Uuid;
use zookeeper_client as zk;

use super::{
    answer::Setback,
    call::Call,
    nodes::Tag,
    session::{Node, Session},
};
use crate::{clock::Tick, error::Error, path::LockPath};

/// One try to get a lock, on one session.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) call: &'a Arc<Call>,
}

/// What is being waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// The server.
    Asking,
    /// Those before us.
    Queueing,
    /// The server, to sweep away a directory that stands where a plain node should.
    BeforeDirectory,
}

/// The stage, for whoever must say why there was not enough time.
#[derive(Debug)]
pub(super) struct Progress {
    stage: AtomicU8,
    since: AtomicU64,
}

impl Progress {
    /// Of a call that starts now, by asking.
    pub(super) fn start() -> Self {
        Self { stage: AtomicU8::new(Stage::Asking as u8), since: AtomicU64::new(Tick::now().as_nanos()) }
    }

    pub(super) fn is(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
        self.since.store(Tick::now().as_nanos(), Ordering::Relaxed);
    }

    /// For how long this has been waited for.
    pub(super) fn lasts(&self) -> Duration {
        Tick::from_nanos(self.since.load(Ordering::Relaxed)).elapsed()
    }

    pub(super) fn stage(&self) -> Stage {
        [Stage::Queueing, Stage::BeforeDirectory]
            .into_iter()
            .find(|&stage| stage as u8 == self.stage.load(Ordering::Relaxed))
            .unwrap_or(Stage::Asking)
    }
}

impl Attempt<'_> {
    pub(super) fn path(&self) -> &LockPath {
        &self.call.request.path
    }

    /// The node of the lock, below the chroot.
    pub(super) fn node(&self) -> &Arc<str> {
        self.path().shared()
    }

    /// The same as seen from the root, for messages and the fence.
    pub(super) fn full(&self, node: &str) -> String {
        format!("{}{node}", self.session.config.address.chroot())
    }

    pub(super) fn tag(&self, uuid: Uuid) -> Vec<u8> {
        Tag::new(&self.session.config.identity, &self.call.request.options, uuid).to_bytes()
    }

    /// What is being waited for now.
    pub(super) fn is(&self, stage: Stage) {
        self.call.progress.is(stage);
    }

    /// Others are before us: an error if waiting was not asked for.
    pub(super) fn must_wait(&self, holder: Option<String>) -> Result<(), Setback> {
        if !self.call.tries_once() {
            return Ok(());
        }
        Err(Error::Busy { path: self.path().clone(), waited: self.call.started.elapsed(), holder }.into())
    }

    /// Resolves when the node is gone while the session lives. Watches it only when it has been there for a second,
    /// since most locks are held more briefly.
    pub(super) async fn gone(&self, node: &Node, since: Tick) {
        tokio::time::sleep((since + Duration::from_secs(1)).remaining()).await;
        if node_gone(self.session, node).await.is_err() {
            // Whoever waits besides hears of the end of the session by itself.
            std::future::pending::<()>().await;
        }
    }
}

/// Resolves when the node is gone, or another one in its place.
pub(super) async fn node_gone(session: &Session, node: &Node) -> Result<(), Setback> {
    loop {
        // Each lock that is held for long is watched, and ten thousand that were taken together ask together: so only some at
        // a time, and in a box, which does not outlive the question, since it is four times as large as what lasts.
        let turn = session.looks.at_a_node().await;
        let asked = Box::pin(watch(session, node)).await?;
        drop(turn);
        let event = match asked {
            Ok(Some(watcher)) => watcher.changed().await.event_type,
            Ok(None) => break,
            // Looking needs no right, so nothing is refused; if it is, this is no proof that the node is gone.
            Err(_) => std::future::pending().await,
        };
        match event {
            zk::EventType::NodeDeleted => break,
            zk::EventType::Session => return Err(Setback::SessionOver),
            _ => {}
        }
    }
    node.is_seen_gone();
    Ok(())
}

/// Watches the node; `None` if it is gone already, or another one in its place.
async fn watch(
    session: &Session,
    node: &Node,
) -> Result<Result<Option<zk::OneshotWatcher>, zk::Error>, Setback> {
    let path = &*node.path();
    let asked = session.ask(|client| async move { client.check_and_watch_stat(path).await }).await?;
    Ok(asked.map(|(stat, watcher)| stat.filter(|stat| stat.czxid == node.czxid).map(|_| watcher)))
}
