use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use super::{
    directories::Presence,
    janitor::{self, Removal},
    session::{Node, Session},
};
use crate::hold::{Contender, Done};

/// A node of ours that stands in a queue, waiting or holding. When it is dropped, wherever that happens, the janitor
/// takes the node away.
pub(super) struct OwnNode {
    session: Arc<Session>,
    node: Arc<Node>,
    /// Until it is taken away.
    place: Option<Place>,
}

/// What kind of lock it stands for.
#[derive(Debug)]
pub(super) enum Place {
    Fair {
        presence: Presence,
        /// The transaction that created the directory, as far as it is known.
        directory: Option<i64>,
        /// Nobody else was there when it was last looked at.
        alone: bool,
    },
    Plain,
}

impl OwnNode {
    pub(super) fn new(session: Arc<Session>, path: String, czxid: i64, place: Place) -> Self {
        let node = Node::new(path, czxid);
        session.note(&node);
        Self { session, node, place: Some(place) }
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The node's own name.
    pub(super) fn name(&self) -> &str {
        self.node.path.rsplit('/').next().unwrap_or_default()
    }

    /// Notes who else is in the directory.
    pub(super) fn saw(&mut self, others: bool, foreign: bool) {
        if let Some(Place::Fair { presence, alone, .. }) = &mut self.place {
            *alone = !others;
            if foreign {
                presence.has_foreign();
            }
        }
    }

    /// The node is seen to be gone.
    pub(super) fn is_gone(&self) {
        self.node.gone.store(true, Ordering::Release);
    }

    fn take_away(&mut self, done: Option<Done>) {
        let Some(place) = self.place.take() else { return };
        self.session.forget(&self.node);
        let removal = match place {
            Place::Fair { presence, directory: Some(czxid), alone: true } => {
                let path = presence.path().clone();
                Removal::Fair { directory: presence.leave_last(czxid).then_some(path) }
            }
            Place::Fair { .. } => Removal::Fair { directory: None },
            Place::Plain => Removal::Plain,
        };
        janitor::take_away(&self.session, self.node.clone(), removal, done);
    }
}

impl Contender for OwnNode {
    fn release(mut self: Box<Self>, done: Done) {
        self.take_away(Some(done));
    }
}

impl Drop for OwnNode {
    fn drop(&mut self) {
        self.take_away(None);
    }
}

impl fmt::Debug for OwnNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnNode")
            .field("node", &self.node)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}
