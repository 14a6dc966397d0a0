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
    group::{self, Failure, Step, Write},
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
    /// A node that nobody else can have by its name; with the directory, if it is left empty.
    Fair { directory: Option<Arc<str>> },
    /// A node whose name is the next holder's too.
    Plain,
}

/// Starts to take a node of `session` away and sees it through. `done` is dropped when it is gone, or when the
/// server refuses, since then only the end of the session will free it.
pub(super) fn take_away(session: &Arc<Session>, node: Arc<Node>, removal: Removal, done: Option<Done>) {
    if node.is_gone() {
        return;
    }
    if done.is_none() {
        debug!(target: "zklock", node = &*node.path, "taking away a node that nobody wants any more");
    }
    session.janitor.pending.fetch_add(1, Ordering::AcqRel);
    let session = session.clone();
    session.handle.clone().spawn(async move {
        let job = Job { session: &session, node: &node, removal, is_certain: true, done };
        job.run().await;
        session.janitor.pending.fetch_sub(1, Ordering::AcqRel);
    });
}

struct Job<'a> {
    session: &'a Arc<Session>,
    node: &'a Node,
    removal: Removal,
    /// No delete of this node has been sent whose answer was lost.
    is_certain: bool,
    done: Option<Done>,
}

/// What came of one try.
enum Outcome {
    Gone,
    /// Try again at once, in another way.
    Otherwise,
    Refused(zk::Error),
    Unknown,
}

impl Job<'_> {
    async fn run(mut self) {
        // A refusal does not go away soon.
        let mut backoff =
            Backoff::new(Duration::from_millis(20), self.session.timeout.min(Duration::from_secs(5)));
        let mut complained = false;
        loop {
            match self.attempt().await {
                Ok(Outcome::Gone) | Err(Setback::SessionOver | Setback::Failed(_)) => return,
                Ok(Outcome::Otherwise) => continue,
                Ok(Outcome::Refused(reason)) => {
                    self.session.janitor.refusals.fetch_add(1, Ordering::Relaxed);
                    if !complained {
                        complained = true;
                        error!(
                            target: "zklock", node = &*self.node.path, %reason,
                            "a node of ours cannot be deleted, so its lock stays taken until the session ends; grant \
                             the right DELETE on the node above it"
                        );
                    }
                    self.done = None;
                }
                Ok(Outcome::Unknown) => {
                    debug!(target: "zklock", node = &*self.node.path, "the answer to a delete was lost");
                }
            }
            backoff.pause().await;
            self.session.janitor.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn attempt(&mut self) -> Result<Outcome, Setback> {
        if self.node.is_gone()
            || (matches!(self.removal, Removal::Plain) && !self.is_certain && !self.is_ours().await?)
        {
            return Ok(Outcome::Gone);
        }
        let path = self.node.path.clone();
        let (write, is_risky) = match &self.removal {
            Removal::Fair { directory: Some(directory) } => {
                (Write::DeleteLast { path, directory: directory.clone() }, true)
            }
            // What may be gone already would spoil the request of others.
            Removal::Fair { directory: None } | Removal::Plain => (Write::Delete { path }, !self.is_certain),
        };
        let (sender, answered) = oneshot::channel();
        group::write(self.session, write, is_risky, move |answer| {
            let _ = sender.send(answer);
        });
        // Without an answer the engine has stopped.
        let answer = answered.await.map_err(|_| Setback::SessionOver)?;
        let had_directory = match &mut self.removal {
            Removal::Fair { directory } => directory.take(),
            Removal::Plain => None,
        };
        match answer {
            Ok(_) | Err(Failure { step: Step::Node, error: zk::Error::NoNode, .. }) => Ok(Outcome::Gone),
            // Not empty any more, or not ours to delete: the server sweeps it.
            Err(Failure { step: Step::Directory, error, .. }) if kind(&error) == Kind::Refusal => {
                if let Some(directory) = had_directory {
                    self.session.directories.is_shared(&directory);
                }
                Ok(Outcome::Otherwise)
            }
            Err(Failure { error, .. }) => match kind(&error) {
                Kind::SessionOver => Err(Setback::SessionOver),
                Kind::Refusal => Ok(Outcome::Refused(error)),
                Kind::Unknown => {
                    self.is_certain = false;
                    Ok(Outcome::Unknown)
                }
            },
        }
    }

    /// Whether the node is still the one that we created. A blind second delete would take the next holder's, if
    /// the first one was done and only its answer lost.
    async fn is_ours(&self) -> Result<bool, Setback> {
        let path = &*self.node.path;
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
