//! The steps of a call of `acquire`, as `fair` does them.

use zookeeper_client as zk;

use super::{
    super::{
        answer::{self, Kind},
        witness,
    },
    Action, State,
    contender::{Birth, Own, Phase, Turn},
    decide::{Decision, decide},
    server::{Name, Node, Part},
    setup::{Mutation, Proof, Setup},
};

impl State {
    pub(super) fn acquire_actions(&self, setup: &Setup, actions: &mut Vec<Action>) {
        for (who, contender) in self.contenders.iter().enumerate() {
            let client = usize::from(setup.client_of[who]);
            let is_alive = self.server.is_alive(self.clients[client].session);
            match contender.phase {
                Phase::Idle if is_alive && self.may_start(setup, who) => actions.push(Action::Start(who)),
                Phase::Birth { step, .. } => match step {
                    Birth::Ask { .. } if is_alive => {
                        actions.push(Action::Execute(who));
                        if self.server.may_pass_the_end() {
                            actions.push(Action::ExecutePastTheEnd(who));
                        }
                    }
                    Birth::Find if is_alive => actions.push(Action::Execute(who)),
                    Birth::Ask { .. } | Birth::Find => {}
                    Birth::Made { .. } => actions.push(Action::Deliver(who)),
                },
                Phase::Queue { own, turn } => match turn {
                    Turn::Look { .. } | Turn::Transactions | Turn::Watch { .. } if is_alive => {
                        actions.push(Action::Execute(who));
                    }
                    Turn::First | Turn::Next | Turn::Behind { .. } | Turn::Missing => {
                        actions.push(Action::Deliver(who));
                    }
                    Turn::Unconfirmed if self.is_valid(client) => actions.push(Action::Deliver(who)),
                    Turn::Waits { .. } | Turn::Memory { .. } if is_alive && !self.shows(client, own) => {
                        actions.push(Action::OwnGone(who));
                    }
                    _ => {}
                },
                Phase::Held(own) if is_alive && !self.shows(client, own) => {
                    actions.push(Action::OwnGone(who));
                }
                _ => {}
            }
            let waits =
                matches!(contender.phase, Phase::Birth { cancelled: false, .. } | Phase::Queue { .. });
            if waits && self.faults.cancels > 0 {
                actions.push(Action::Cancel(who));
            }
        }
    }

    /// Contenders that have done nothing are alike, so that of those of a process, and of processes that are alike,
    /// the first starts first.
    fn may_start(&self, setup: &Setup, who: usize) -> bool {
        let are_strangers = setup.client_of == [0, 1, 2];
        (0..who)
            .filter(|&other| are_strangers || setup.client_of[other] == setup.client_of[who])
            .all(|other| self.contenders[other].has_started())
            || self.contenders[who].attempt > 0
    }

    pub(super) fn start(&mut self, setup: &Setup, who: usize) {
        let found = !self.clients[usize::from(setup.client_of[who])].directory_exists;
        self.contenders[who].phase = Phase::Birth { step: Birth::Ask { found }, cancelled: false };
    }

    /// The server does what `who` has asked for.
    pub(super) fn execute(&mut self, setup: &Setup, who: usize, past_the_end: bool) {
        let client = usize::from(setup.client_of[who]);
        match self.contenders[who].phase {
            Phase::Birth { step: Birth::Ask { found }, cancelled } => {
                self.create(setup, who, found, cancelled, past_the_end);
            }
            Phase::Birth { step: Birth::Find, cancelled } => self.find(setup, who, cancelled),
            Phase::Queue { own, turn } => {
                let (own, turn) = match turn {
                    Turn::Look { synced } => self.look(setup, client, own, synced),
                    Turn::Transactions => (own, self.ask_transactions(client, own)),
                    Turn::Watch { before, next } => (own, self.watch(setup, client, before, next)),
                    turn => unreachable!("{turn:?} asks for nothing"),
                };
                self.contenders[who].phase = Phase::Queue { own, turn };
            }
            phase => unreachable!("{phase:?} asks for nothing"),
        }
    }

    fn create(&mut self, setup: &Setup, who: usize, found: bool, cancelled: bool, past_the_end: bool) {
        let client = usize::from(setup.client_of[who]);
        let attempt = self.contenders[who].attempt;
        let id = (u8::try_from(who).expect("there are three"), attempt);
        let created = self.server.create(id, self.clients[client].session, found, past_the_end);
        match created {
            Ok(node) => {
                let own = self.own(node);
                let alone = self.server.nodes.len() == 1;
                let own = Own { alone, ..own };
                self.contenders[who].phase = Phase::Birth { step: Birth::Made { own, alone }, cancelled };
            }
            Err((part, error)) => {
                debug_assert_eq!(answer::kind(&error), Kind::Refusal);
                match part {
                    Part::Directory => self.clients[client].directory_exists = true,
                    Part::Contender => self.clients[client].directory_is_missing(),
                }
                self.create_again(setup, who, cancelled);
            }
        }
    }

    /// Nothing was made.
    fn create_again(&mut self, setup: &Setup, who: usize, cancelled: bool) {
        if cancelled { self.leave(who) } else { self.start(setup, who) }
    }

    /// The connection broke while `who` was waiting for what came of its create.
    pub(super) fn lose_create(&mut self, setup: &Setup, who: usize, cancelled: bool) {
        match answer::kind(&zk::Error::ConnectionLoss) {
            Kind::Unknown if setup.has(Mutation::LostCreateForgotten) => {
                if cancelled {
                    self.leave(who);
                } else {
                    self.contenders[who].restart();
                }
            }
            Kind::Unknown => self.contenders[who].phase = Phase::Birth { step: Birth::Find, cancelled },
            // An error for the caller.
            Kind::Refusal | Kind::SessionOver => self.leave(who),
        }
    }

    /// Looks for the node whose creation was not answered.
    fn find(&mut self, setup: &Setup, who: usize, cancelled: bool) {
        let client = usize::from(setup.client_of[who]);
        if self.clients[client].at_follower && !setup.has(Mutation::NotThereWithoutSync) {
            self.catch_up();
        }
        let attempt = self.contenders[who].attempt;
        let found = self
            .view(client)
            .iter()
            .find(|node| usize::from(node.name.who) == who && node.name.attempt == attempt)
            .copied();
        self.note_read(client);
        let Some(node) = found else { return self.create_again(setup, who, cancelled) };
        let own = self.own(node);
        let is_ours = match (setup.mutation, setup.proof) {
            (Some(Mutation::AdoptWithoutOwner), _) => true,
            (Some(Mutation::AdoptForRecordedSession), _) => node.owner == self.clients[client].recorded,
            (_, Proof::EveryNode) => node.owner == self.clients[client].session,
            // By the id that was recorded at first: whether the connection still has it is for the proof to say.
            _ => witness::proves(self.clients[client].recorded.into(), Some(node.owner.into())),
        };
        if is_ours {
            self.born(setup, who, own, false, cancelled);
        } else {
            self.take_away_stray(client, own);
            if cancelled || setup.has(Mutation::StrayKeepsUuid) {
                self.create_again(setup, who, cancelled);
            } else {
                // Another uuid: under the old one the stray would be found again, and its delete could hit the next.
                self.contenders[who].restart();
            }
        }
    }

    fn own(&self, node: Node) -> Own {
        let directory = self.server.directory.map_or(0, |directory| directory.made);
        Own { name: node.name, czxid: node.czxid, directory, alone: false }
    }

    /// The answer reaches `who`.
    pub(super) fn deliver(&mut self, setup: &Setup, who: usize) {
        let client = usize::from(setup.client_of[who]);
        match self.contenders[who].phase {
            Phase::Birth { step: Birth::Made { own, alone }, cancelled } => {
                if self
                    .server
                    .lagging
                    .is_some_and(|lagging| !lagging.iter().any(|node| node.name == own.name))
                {
                    self.hear_write(client);
                }
                self.born(setup, who, own, alone, cancelled);
            }
            Phase::Queue { own, turn: Turn::First | Turn::Next } => self.grant(setup, who, own),
            Phase::Queue { own, turn: Turn::Unconfirmed } => {
                self.contenders[who].phase = Phase::Queue { own, turn: Turn::Look { synced: false } };
            }
            Phase::Queue { own, turn: Turn::Behind { before, next } } => {
                let is_local = setup.hand_over && self.is_in_memory(setup, client, before);
                let turn = if is_local { Turn::Memory { before } } else { Turn::Watch { before, next } };
                self.contenders[who].phase = Phase::Queue { own, turn };
            }
            Phase::Queue { turn: Turn::Missing, .. } => self.own_gone(setup, who),
            phase => unreachable!("{phase:?} waits for no answer"),
        }
    }

    /// Its node is there, and its answer heard.
    fn born(&mut self, setup: &Setup, who: usize, own: Own, alone: bool, cancelled: bool) {
        let client = &mut self.clients[usize::from(setup.client_of[who])];
        client.directory_exists = true;
        if own.directory == own.czxid {
            client.directory_made = Some(own.directory);
        }
        if cancelled {
            if setup.has(Mutation::CancelledCreateForgotten) {
                self.leave(who);
            } else {
                self.take_away(setup, who, own);
            }
        } else if alone {
            self.grant(setup, who, own);
        } else {
            let turn = match self.neighbour_before(setup, who, own) {
                Some(before) => Turn::Memory { before },
                None => Turn::Look { synced: false },
            };
            self.contenders[who].phase = Phase::Queue { own, turn };
        }
    }

    /// Our turn, if the session stands at this very moment.
    pub(super) fn grant(&mut self, setup: &Setup, who: usize, own: Own) {
        let is_valid = self.is_valid(setup.client_of[who].into());
        if is_valid || setup.has(Mutation::GrantWithoutValidity) {
            self.hold(who, own);
        } else {
            self.contenders[who].phase = Phase::Queue { own, turn: Turn::Unconfirmed };
        }
    }

    pub(super) fn hold(&mut self, who: usize, own: Own) {
        self.regressed |= own.czxid <= self.granted;
        self.granted = own.czxid;
        self.contenders[who].phase = Phase::Held(own);
    }

    /// Lists the queue.
    fn look(&mut self, setup: &Setup, client: usize, mut own: Own, synced: bool) -> (Own, Turn) {
        if synced && self.clients[client].at_follower {
            self.catch_up();
        }
        self.note_read(client);
        let nodes = *self.view(client);
        own.alone = nodes.len() <= 1;
        let turn = match decide(setup.mutation, &nodes, own.name, false) {
            Decision::First => Turn::First,
            Decision::Unclear => Turn::Transactions,
            Decision::Behind { before, next } => Turn::Behind { before, next },
            Decision::Missing if synced => Turn::Missing,
            Decision::Missing => Turn::Look { synced: true },
        };
        (own, turn)
    }

    fn ask_transactions(&mut self, client: usize, own: Own) -> Turn {
        self.note_read(client);
        match decide(None, self.view(client), own.name, true) {
            Decision::First => Turn::First,
            Decision::Behind { before, next } => Turn::Behind { before, next },
            Decision::Missing | Decision::Unclear => Turn::Look { synced: true },
        }
    }

    /// Reads the node before ours and watches it in one step.
    fn watch(&mut self, setup: &Setup, client: usize, before: Name, next: bool) -> Turn {
        self.note_read(client);
        let is_there = self.view(client).iter().any(|node| node.name == before);
        if is_there || setup.has(Mutation::WatchUnread) {
            Turn::Waits { before, next, armed: is_there }
        } else if next && setup.hand_over {
            Turn::Next
        } else {
            Turn::Look { synced: false }
        }
    }

    /// Its node is gone, or what stands in its place is another one.
    pub(super) fn own_gone(&mut self, setup: &Setup, who: usize) {
        match self.contenders[who].phase {
            Phase::Held(own) => self.lose(setup, who, own),
            _ => self.contenders[who].restart(),
        }
        self.forget_neighbour(setup, who);
    }

    /// The caller goes away.
    pub(super) fn cancel(&mut self, setup: &Setup, who: usize) {
        self.faults.cancels -= 1;
        match self.contenders[who].phase {
            Phase::Birth { step, .. } => self.contenders[who].phase = Phase::Birth { step, cancelled: true },
            Phase::Queue { own, .. } => self.withdraw(setup, who, own),
            phase => unreachable!("{phase:?} does not wait"),
        }
    }

    fn shows(&self, client: usize, own: Own) -> bool {
        self.view(client).iter().any(|node| node.name == own.name && node.czxid == own.czxid)
    }

    /// A server answers to a write when it has done it itself, and all that was before.
    pub(super) fn hear_write(&mut self, client: usize) {
        if self.clients[client].at_follower {
            self.catch_up();
        } else {
            self.clients[client].ahead = self.server.lagging.is_some();
        }
    }

    /// Who has read from the leader what a lagging follower does not know is not taken by that one any more.
    fn note_read(&mut self, client: usize) {
        if !self.clients[client].at_follower
            && self.server.lagging.is_some_and(|lagging| lagging != self.server.nodes)
        {
            self.clients[client].ahead = true;
        }
    }
}
