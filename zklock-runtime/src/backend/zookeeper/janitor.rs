use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;
use tracing::{debug, error};
use zookeeper_client as zk;

use super::{
    answer::{Kind, Setback, kind},
    backoff::Backoff,
    group::{self, Failure, Step, Write, Written},
    local::Going,
    session::{Node, Session},
};
use crate::{backend::Deletes, hold::Done};

/// Counts the deletes that must happen: each is tried until the node is gone or its session is over.
#[derive(Debug, Default)]
pub(super) struct Janitor {
    pending: AtomicUsize,
    retries: AtomicU64,
    refusals: AtomicU64,
}

impl Janitor {
    pub(super) fn deletes(&self) -> Deletes {
        Deletes {
            pending: self.pending.load(Ordering::Acquire),
            retried: self.retries.load(Ordering::Relaxed),
            refused: self.refusals.load(Ordering::Relaxed),
        }
    }
}

/// What goes with the node, and what must be looked at first.
#[derive(Debug)]
pub(super) enum Removal {
    /// A node that nobody else can have by its name, in the directory that was made in this transaction; with it, if it is
    /// left empty.
    Fair { directory: Option<Arc<str>>, made_in: Option<i64> },
    /// A node whose name is the next holder's too. Who waits for its end is told by the drop.
    Plain { _going: Option<Going> },
}

/// Starts to take a node of `session` away and sees it through. `done` is dropped when it is gone, or when the
/// server refuses, since then only the end of the session will free it.
pub(super) fn take_away(session: &Arc<Session>, node: Arc<Node>, removal: Removal, done: Option<Done>) {
    if node.is_gone() {
        return;
    }
    if done.is_none() {
        debug!(target: "zklock", node = &*node.path(), "taking away a node that nobody wants any more");
    }
    session.janitor.pending.fetch_add(1, Ordering::AcqRel);
    Job { session: session.clone(), node, removal, is_certain: true, done }.start();
}

struct Job {
    session: Arc<Session>,
    node: Arc<Node>,
    removal: Removal,
    /// No delete of this node has been sent whose answer was lost.
    is_certain: bool,
    done: Option<Done>,
}

/// What came of one try.
enum Outcome {
    /// The node is gone, or its session is over.
    Done,
    /// Try again at once, in another way.
    Otherwise,
    Refused(zk::Error),
    /// The server was too busy.
    NotDone,
    Unknown,
}

impl Job {
    /// The first try, for which no task is needed: most of them do it.
    fn start(mut self) {
        let (write, is_risky) = self.write();
        let session = self.session.clone();
        group::write(&session, write, is_risky, move |answer| match self.judge(answer) {
            Outcome::Done => {}
            outcome => {
                self.session.tasks.clone().spawn(self.see_through(outcome));
            }
        });
    }

    async fn see_through(mut self, mut outcome: Outcome) {
        // A refusal does not go away soon.
        let mut backoff =
            Backoff::new(Duration::from_millis(20), self.session.timeout.min(Duration::from_secs(5)));
        let mut complained = false;
        loop {
            match outcome {
                Outcome::Done => return,
                Outcome::Otherwise => {}
                Outcome::Refused(reason) => {
                    self.session.janitor.refusals.fetch_add(1, Ordering::Relaxed);
                    if !complained {
                        complained = true;
                        error!(
                            target: "zklock", node = &*self.node.path(), %reason,
                            "a node of ours cannot be deleted, so its lock stays taken for all other processes until the \
                             session ends; grant the right DELETE on the node above it"
                        );
                    }
                    self.done = None;
                    self.pause(&mut backoff).await;
                }
                Outcome::NotDone => self.pause(&mut backoff).await,
                Outcome::Unknown => {
                    debug!(target: "zklock", node = &*self.node.path(), "the answer to a delete was lost");
                    self.pause(&mut backoff).await;
                }
            }
            outcome = self.attempt().await;
        }
    }

    async fn pause(&self, backoff: &mut Backoff) {
        backoff.pause().await;
        self.session.janitor.retries.fetch_add(1, Ordering::Relaxed);
    }

    async fn attempt(&mut self) -> Outcome {
        let is_gone = self.node.is_gone()
            || (matches!(self.removal, Removal::Plain { .. })
                && !self.is_certain
                && !self.is_ours().await.unwrap_or(false));
        if is_gone {
            return Outcome::Done;
        }
        let (write, is_risky) = self.write();
        let (sender, answered) = oneshot::channel();
        group::write(&self.session, write, is_risky, move |answer| {
            let _ = sender.send(answer);
        });
        // Without an answer the engine has stopped.
        answered.await.map_or(Outcome::Done, |answer| self.judge(answer))
    }

    /// What is to be asked for, and whether it may well fail.
    fn write(&self) -> (Write, bool) {
        let path = self.node.path();
        match &self.removal {
            Removal::Fair { directory: Some(directory), .. } => {
                (Write::DeleteLast { path, directory: directory.clone() }, true)
            }
            // What may be gone already would spoil the request of others.
            Removal::Fair { directory: None, made_in } => {
                (Write::Delete { path, made_in: *made_in }, !self.is_certain)
            }
            Removal::Plain { .. } => (Write::Delete { path, made_in: None }, !self.is_certain),
        }
    }

    fn judge(&mut self, answer: Result<Written, Failure>) -> Outcome {
        let directory = match &mut self.removal {
            Removal::Fair { directory, .. } => directory.take(),
            Removal::Plain { .. } => None,
        };
        let Err(Failure { step, error, .. }) = answer else { return Outcome::Done };
        match kind(&error) {
            Kind::SessionOver => Outcome::Done,
            // Not empty any more, or not ours to delete: the server sweeps it.
            Kind::Refusal if step == Step::Directory => {
                if let Some(directory) = directory {
                    self.session.directories.is_shared(&directory);
                }
                Outcome::Otherwise
            }
            Kind::Refusal if error == zk::Error::NoNode => Outcome::Done,
            Kind::Refusal if error == zk::Error::Throttled => Outcome::NotDone,
            Kind::Refusal => Outcome::Refused(error),
            Kind::Unknown => {
                self.is_certain = false;
                Outcome::Unknown
            }
        }
    }

    /// Whether the node is still the one that we created. A blind second delete would take the next holder's, if
    /// the first one was done and only its answer lost.
    async fn is_ours(&self) -> Result<bool, Setback> {
        let path = &*self.node.path();
        let stat = self
            .session
            .ask(|client| async move {
                // The server that we are on now may not have heard of the first delete yet.
                client.sync(path).await?;
                client.check_stat(path).await
            })
            .await?;
        // By the transaction that made it, not by its owner: what is taken away may be another session's.
        Ok(matches!(stat, Ok(Some(stat)) if stat.czxid == self.node.czxid))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.session.janitor.pending.fetch_sub(1, Ordering::AcqRel);
    }
}
