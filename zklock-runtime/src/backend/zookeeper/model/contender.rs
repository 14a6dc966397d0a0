//! What a call of `acquire`, its hold, the task that creates for it and the janitor can be in the middle of.

use super::server::{Name, Zxid};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Contender {
    /// Tells the uuids of one caller apart.
    pub(super) attempt: u8,
    pub(super) phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Phase {
    /// About to draw a uuid.
    Idle,
    /// The task that creates; its caller may be gone.
    Birth {
        step: Birth,
        cancelled: bool,
    },
    Queue {
        own: Own,
        turn: Turn,
    },
    /// Granted, and not released: whether it is held is for the clock to say.
    Held(Own),
    /// Lost with its session or its node, the body still being stopped.
    Ended(Own),
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Birth {
    /// Sent, and not done yet; together with the directory, or in one that is believed to stand.
    Ask { found: bool },
    /// Done, the answer on its way: whether anybody else is there.
    Made { own: Own, alone: bool },
    /// The answer was lost: `sync`, list, look at the owner.
    Find,
}

/// A waiting contender's next step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Turn {
    /// Lists, after a `sync` if it was not in the list before.
    Look { synced: bool },
    /// Asks which transactions made the nodes.
    Transactions,
    /// The answer on its way: we are the first.
    First,
    /// The answer on its way: somebody is before us, and maybe nobody before that one.
    Behind { before: Name, next: bool },
    /// The answer on its way: our node is not there.
    Missing,
    /// Asks for the node before ours, to be told of its end.
    Watch { before: Name, next: bool },
    /// The watch is set; not `armed` if the node was gone already and nobody looked.
    Waits { before: Name, next: bool, armed: bool },
    /// The event on its way: the only one before us is gone.
    Next,
    /// The one before us is of this process.
    Memory { before: Name },
    /// Our turn, but the session has not been confirmed lately.
    Unconfirmed,
}

/// A node of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Own {
    pub(super) name: Name,
    pub(super) czxid: Zxid,
    /// The transaction that made its directory.
    pub(super) directory: Zxid,
    /// Nobody else was there when it was last looked at.
    pub(super) alone: bool,
}

/// A delete that must happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Job {
    pub(super) client: u8,
    pub(super) name: Name,
    /// Take the directory too, if it is left empty.
    pub(super) with_directory: bool,
}

impl Contender {
    pub(super) fn new() -> Self {
        Self { attempt: 0, phase: Phase::Idle }
    }

    pub(super) fn has_started(&self) -> bool {
        self.phase != Phase::Idle || self.attempt > 0
    }

    /// Its node, as far as the answer to its creation was heard, while its session lives.
    pub(super) fn own(&self) -> Option<Own> {
        match self.phase {
            Phase::Queue { own, .. } | Phase::Held(own) => Some(own),
            Phase::Idle | Phase::Birth { .. } | Phase::Ended(_) | Phase::Done => None,
        }
    }

    /// Starts anew, under another uuid.
    pub(super) fn restart(&mut self) {
        *self = Self { attempt: self.attempt + 1, phase: Phase::Idle };
    }

    pub(super) fn each_zxid(&mut self, f: &mut impl FnMut(&mut Zxid)) {
        match &mut self.phase {
            Phase::Birth { step: Birth::Made { own, .. }, .. }
            | Phase::Queue { own, .. }
            | Phase::Held(own)
            | Phase::Ended(own) => {
                f(&mut own.czxid);
                f(&mut own.directory);
            }
            Phase::Idle | Phase::Birth { .. } | Phase::Done => {}
        }
    }
}
