//! What is explored: who takes part, which faults may happen and how often, and what is broken on purpose.

/// One space of states.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    /// The process, and so the session, of each contender.
    pub(super) client_of: [u8; 3],
    /// How many of them take part.
    pub(super) contenders: usize,
    pub(super) faults: Faults,
    /// The next sequence of a directory that stands already; else there is none at first.
    pub(super) counter: Option<i32>,
    /// Neighbours of one process pass the lock on in memory.
    pub(super) hand_over: bool,
    pub(super) proof: Proof,
    pub(super) mutation: Option<Mutation>,
}

/// How often each fault may still happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Faults {
    /// A connection breaks: what was asked is done or not, and what was answered is not heard.
    pub(super) breaks: u8,
    /// No heartbeat is answered for so long that the client stops trusting in its session, and the server may end it.
    pub(super) lapses: u8,
    /// A caller goes away while its contender waits.
    pub(super) cancels: u8,
    /// The connection comes back with another session, and nobody says so.
    pub(super) changes: u8,
    /// A process ends without a word.
    pub(super) crashes: u8,
    /// A follower stops hearing of new transactions.
    pub(super) lags: u8,
}

/// How a client finds out, connected again, that its session is another one than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Proof {
    /// By a node that the session made when it was opened, as it is done.
    Identity,
    /// By the owner of any node that the new connection's session has, as it is done where no such node may be made.
    Owner,
    /// All nodes that it knows of, those of waiters included, must be this session's. It does not know of those whose
    /// creation was not answered, so that only what the connection's session has is adopted.
    EveryNode,
    /// By one of the nodes that it knows of, whichever; one that is gone tells nothing.
    SomeNode,
}

/// What is broken on purpose. Each must be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutation {
    /// The server may end a session that its client still believes in.
    NoMargin,
    /// A grant does not look at the clock.
    GrantWithoutValidity,
    /// A node found by its uuid is taken for ours, whichever session owns it.
    AdoptWithoutOwner,
    /// The same, but for the session that the first connection had, where that is not what the proof is about.
    AdoptForRecordedSession,
    /// After a node of ours was found that another session owns, the create is tried again under the same uuid.
    StrayKeepsUuid,
    /// What the server that we are on does not list was not made.
    NotThereWithoutSync,
    /// A create whose answer was lost is tried anew under another uuid, and not looked for.
    LostCreateForgotten,
    /// A create whose caller is gone is not undone.
    CancelledCreateForgotten,
    /// A delete is sent once.
    DeleteOnce,
    /// Sequences are compared as text.
    SequencesAsText,
    /// Names decide although the server's counter is at its end.
    NamesAtTheEnd,
    /// The node before ours is watched, and the answer, which says that it is gone already, not looked at.
    WatchUnread,
    /// A hold that is over passes the lock on, to whoever has the next sequence in whichever directory of this path.
    HandOverByRevoked,
    /// A hold that is over passes the lock on within its directory, and the next one takes it without looking at its
    /// own session.
    HandOverUnchecked,
    /// A waiter that withdraws passes on what it does not have.
    HandOverByWaiter,
    /// The neighbour of this process is before us whatever stands between.
    HandOverOverForeign,
}

impl Setup {
    /// Three processes with one contender each.
    pub(super) fn strangers(name: &'static str, faults: Faults) -> Self {
        Self {
            name,
            client_of: [0, 1, 2],
            contenders: 3,
            faults,
            counter: None,
            hand_over: false,
            proof: Proof::Identity,
            mutation: None,
        }
    }

    /// Two contenders in one process, and one in another.
    pub(super) fn neighbours(name: &'static str, faults: Faults) -> Self {
        Self { client_of: [0, 0, 1], ..Self::strangers(name, faults) }
    }

    /// With hand-over in memory.
    pub(super) fn handing_over(self) -> Self {
        Self { hand_over: true, ..self }
    }

    pub(super) fn of_two(self) -> Self {
        Self { contenders: 2, ..self }
    }

    pub(super) fn starting_at(self, counter: i32) -> Self {
        Self { counter: Some(counter), ..self }
    }

    pub(super) fn proving(self, proof: Proof) -> Self {
        Self { proof, ..self }
    }

    pub(super) fn broken(self, mutation: Mutation) -> Self {
        Self { mutation: Some(mutation), ..self }
    }

    pub(super) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(super) fn contenders_of(&self, client: usize) -> impl Iterator<Item = usize> + use<> {
        let client_of = self.client_of;
        (0..client_of.len()).filter(move |&who| usize::from(client_of[who]) == client)
    }
}
