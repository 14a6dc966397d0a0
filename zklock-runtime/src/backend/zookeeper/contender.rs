use std::{fmt, sync::Arc};

use super::{
    directories::Presence,
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
}

/// What kind of lock it stands for.
#[derive(Debug)]
pub(super) enum Place {
    Fair {
        presence: Presence,
        line: Arc<Line>,
        sequence: i32,
    },
    Plain {
        /// Those of this session who may have the same node next; `None` if nobody may.
        queue: Option<Arc<LocalQueue>>,
        /// How many holders had it before, one after the other.
        handover: u32,
    },
}

impl Place {
    /// Of a node that nobody had before.
    pub(super) fn plain(queue: Arc<LocalQueue>) -> Self {
        Self::Plain { queue: Some(queue), handover: 0 }
    }

    /// Of one that nobody is to have.
    pub(super) fn nobodys() -> Self {
        Self::Plain { queue: None, handover: 0 }
    }
}

impl OwnNode {
    pub(super) fn new(session: Arc<Session>, node: Arc<Node>, place: Place) -> Self {
        session.note(&node);
        Self { session, node, place: Some(place) }
    }

    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(super) fn handover(&self) -> u32 {
        match self.place {
            Some(Place::Plain { handover, .. }) => handover,
            Some(Place::Fair { .. }) | None => 0,
        }
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    fn take_away(&mut self, done: Option<Done>) {
        let Some(place) = self.place.take() else { return };
        let removal = match place {
            Place::Fair { presence, line, sequence } => {
                // First: the next one does not wait for the delete.
                line.leave(sequence, !self.node.is_gone());
                let made_in = line.made_in();
                let is_last = made_in.is_some_and(|czxid| line.is_ours() && presence.leave_last(czxid));
                Removal::Fair { directory: is_last.then(|| presence.path().clone()), made_in }
            }
            Place::Plain { queue: None, .. } => Removal::Plain { _going: None },
            Place::Plain { queue: Some(queue), handover } => {
                let place = Place::Plain { queue: Some(queue.clone()), handover: handover + 1 };
                let next =
                    Self { session: self.session.clone(), node: self.node.clone(), place: Some(place) };
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
