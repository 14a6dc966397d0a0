use std::{fmt, sync::Arc};

use super::{
    directories::Presence,
    group::Created,
    janitor::{self, Removal},
    line::Line,
    local::{Going, LocalQueue},
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
    /// How many holders had it before, one after the other.
    handover: u32,
}

/// What kind of lock it stands for.
#[derive(Debug)]
pub(super) enum Place {
    Fair {
        presence: Presence,
        /// The transaction that created the directory, as far as it is known.
        directory: Option<i64>,
        line: Arc<Line>,
        sequence: i32,
    },
    /// With those of this session who may have the same node next; `None` if nobody may.
    Plain(Option<Arc<LocalQueue>>),
}

impl OwnNode {
    pub(super) fn new(session: Arc<Session>, path: &str, created: Created, place: Place) -> Self {
        let node = Node::new(path, created);
        session.note(&node);
        Self { session, node, place: Some(place), handover: 0 }
    }

    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(super) fn handover(&self) -> u32 {
        self.handover
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    fn take_away(&mut self, done: Option<Done>) {
        let Some(place) = self.place.take() else { return };
        let removal = match place {
            Place::Fair { presence, directory, line, sequence } => {
                // First: the next one does not wait for the delete.
                line.leave(sequence, !self.node.is_gone());
                let is_last = directory.is_some_and(|czxid| line.is_ours() && presence.leave_last(czxid));
                Removal::Fair { directory: is_last.then(|| presence.path().clone()), made_in: directory }
            }
            Place::Plain(None) => Removal::Plain { _going: None },
            Place::Plain(Some(queue)) => {
                let next = Self {
                    session: self.session.clone(),
                    node: self.node.clone(),
                    place: Some(Place::Plain(Some(queue.clone()))),
                    handover: self.handover + 1,
                };
                queue.leave(next, done);
                return;
            }
        };
        self.delete(removal, done);
    }

    /// Has a plain node deleted that is passed on to nobody.
    pub(super) fn give_up(mut self, going: Option<Going>, done: Option<Done>) {
        self.place = None;
        self.delete(Removal::Plain { _going: going }, done);
    }

    fn delete(&self, removal: Removal, done: Option<Done>) {
        self.session.forget(&self.node);
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
