//! Sessions and connections: what the supervisor does, and what is done to it.

use zookeeper_client as zk;

use super::{
    super::{
        answer::{self, Kind},
        witness,
    },
    Action, State,
    client::Client,
    contender::{Birth, Phase, Turn},
    server::SessionId,
    setup::{Mutation, Proof, Setup},
};

impl State {
    pub(super) fn session_actions(&self, setup: &Setup, actions: &mut Vec<Action>) {
        for (index, client) in self.clients.iter().enumerate() {
            if client.crashed || setup.contenders_of(index).next().is_none() {
                continue;
            }
            if !self.server.is_alive(client.session) {
                actions.push(Action::Learn(index));
                continue;
            }
            if client.unproven {
                actions.push(Action::Prove(index));
            } else if !self.server.is_fresh(client.session) {
                actions.push(Action::Confirm(index));
            }
            // Faults of a client that has nothing to lose change nothing.
            if !self.is_engaged(setup, index) {
                continue;
            }
            if self.faults.breaks > 0 {
                actions.push(Action::Break { client: index, to_follower: false });
                if self.server.lagging.is_some() && !client.ahead && !client.at_follower {
                    actions.push(Action::Break { client: index, to_follower: true });
                }
            }
            if self.faults.changes > 0 {
                actions.push(Action::Change(index));
            }
            if self.faults.crashes > 0 {
                actions.push(Action::Crash(index));
            }
        }
        for session in 0..16 {
            let client = Client::of(session);
            if !self.server.is_alive(session) || setup.contenders_of(client).next().is_none() {
                continue;
            }
            let is_used = self.is_used(session);
            if self.server.is_fresh(session) {
                // An earlier session of a client had its last heartbeat earlier.
                let is_next = Client::earlier(session).all(|earlier| !self.server.is_fresh(earlier));
                if is_next && (!is_used || self.faults.lapses > 0 && self.is_engaged(setup, client)) {
                    actions.push(Action::Lapse(session));
                }
            }
            let has_lapsed = !self.server.is_fresh(session);
            let may_end = if is_used && setup.has(Mutation::NoMargin) {
                has_lapsed || self.faults.lapses > 0 && self.is_engaged(setup, client)
            } else {
                has_lapsed
            };
            if may_end {
                actions.push(Action::Expire(session));
            }
        }
    }

    /// Until when the session stands has not passed, by the client's clock.
    pub(super) fn is_valid(&self, client: usize) -> bool {
        self.server.is_fresh(self.clients[client].valid_by)
    }

    fn is_engaged(&self, setup: &Setup, client: usize) -> bool {
        self.jobs.iter().any(|job| usize::from(job.client) == client)
            || setup.contenders_of(client).any(|who| {
                self.contenders[who].has_started()
                    && !matches!(self.contenders[who].phase, Phase::Done | Phase::Ended(_))
            })
    }

    pub(super) fn lapse(&mut self, session: SessionId) {
        if self.is_used(session) {
            self.faults.lapses -= 1;
        }
        self.server.lapse(session);
    }

    pub(super) fn expire(&mut self, session: SessionId) {
        if self.is_used(session) && self.server.is_fresh(session) {
            // Only where there is no margin.
            self.faults.lapses -= 1;
        }
        self.server.expire(session);
    }

    pub(super) fn confirm(&mut self, client: usize) {
        let client = &mut self.clients[client];
        client.valid_by = client.session;
        self.server.confirm(client.session);
    }

    /// The connection breaks and is made again: what was answered is not heard, what was asked is asked again. The
    /// library sets its watches again, in the same step.
    pub(super) fn reconnect(&mut self, setup: &Setup, client: usize, to_follower: bool) {
        self.clients[client].at_follower = to_follower;
        for who in setup.contenders_of(client) {
            match self.contenders[who].phase {
                Phase::Birth { step: Birth::Ask { .. } | Birth::Made { .. }, cancelled } => {
                    self.lose_create(setup, who, cancelled);
                }
                Phase::Queue { own, turn: Turn::First | Turn::Behind { .. } | Turn::Missing } => {
                    self.contenders[who].phase = Phase::Queue { own, turn: Turn::Look { synced: false } };
                }
                _ => {}
            }
        }
        self.lose_deletes(setup, client);
    }

    /// The connection comes back with another session.
    pub(super) fn change(&mut self, setup: &Setup, client: usize) {
        self.faults.changes -= 1;
        self.clients[client].session += 1;
        self.clients[client].unproven = true;
        self.server.open(self.clients[client].session);
        self.reconnect(setup, client, false);
    }

    /// Finds out whether the session is the one that made our nodes.
    pub(super) fn prove(&mut self, setup: &Setup, client: usize) {
        let session = self.clients[client].session;
        let has_changed = match setup.proof {
            Proof::Identity | Proof::Owner => {
                let Client { recorded, .. } = self.clients[client];
                let has_witness = setup.proof == Proof::Identity && session == recorded;
                let any = self.server.nodes.iter().map(|node| node.owner).find(|&owner| owner == session);
                let owner = if has_witness { Some(recorded) } else { any };
                !witness::proves(recorded.into(), owner.map(i64::from))
            }
            Proof::EveryNode => !setup.contenders_of(client).all(|who| self.is_nothing_or_of(who, session)),
            Proof::SomeNode => {
                // Which one is asked for is chance, so that it is the one that tells nothing.
                let owners: Vec<_> =
                    setup.contenders_of(client).filter_map(|who| self.owner_of(who)).collect();
                !owners.is_empty() && !owners.contains(&session)
            }
        };
        if has_changed {
            self.start_over(setup, client);
        } else {
            self.clients[client].unproven = false;
            self.confirm(client);
        }
    }

    fn is_nothing_or_of(&self, who: usize, session: SessionId) -> bool {
        self.contenders[who].own().is_none() || self.owner_of(who) == Some(session)
    }

    /// The session that has a contender's node.
    fn owner_of(&self, who: usize) -> Option<SessionId> {
        let name = self.contenders[who].own()?.name;
        self.server.nodes.iter().find(|node| node.name == name).map(|node| node.owner)
    }

    /// The session is over: all holds end, and everything that still asks starts anew on the next one.
    pub(super) fn start_over(&mut self, setup: &Setup, client: usize) {
        if answer::kind(&zk::Error::SessionExpired) != Kind::SessionOver {
            return;
        }
        let before = self.clients[client];
        self.clients[client] = before.anew();
        self.server.open(self.clients[client].session);
        // The library closes the session that its connection is in. Nobody believes in the one before any more, so
        // that the server may end it whenever it likes.
        if before.session != before.recorded {
            self.server.expire(before.session);
        }
        self.server.lapse(before.session);
        self.server.lapse(before.recorded);
        self.forget_deletes(client);
        for who in setup.contenders_of(client) {
            match self.contenders[who].phase {
                Phase::Birth { cancelled: true, .. } => self.leave(who),
                Phase::Birth { .. } | Phase::Queue { .. } => self.contenders[who].restart(),
                Phase::Held(own) => self.lose(setup, who, own),
                Phase::Idle | Phase::Ended(_) | Phase::Done => {}
            }
        }
    }

    /// Nothing depends any more on the session of a process that has finished; what it left behind goes when it
    /// times out.
    pub(super) fn close(&mut self, client: usize) {
        let session = self.clients[client].session;
        self.clients[client] =
            Client { crashed: true, ..Client::new(u8::try_from(client).expect("there are three")) };
        for session in 0..=session {
            if Client::of(session) == client && !self.server.nodes.iter().any(|node| node.owner == session) {
                self.server.expire(session);
                self.server.lapse(session);
            }
        }
    }

    pub(super) fn crash(&mut self, setup: &Setup, client: usize) {
        self.faults.crashes -= 1;
        self.clients[client].crashed = true;
        self.server.lapse(self.clients[client].session);
        self.forget_deletes(client);
        for who in setup.contenders_of(client) {
            self.leave(who);
        }
    }
}
