//! An exhaustive model of the fair queue: every interleaving of three contenders, the server, and the faults that a
//! [`Setup`](setup::Setup) allows, is visited, and each state checked ([`check`]).
//!
//! What decides is the real thing: [`queue`](super::queue) finds the place in the queue from names as
//! [`nodes`](super::nodes) makes them, [`answer`](super::answer) sorts the errors. The steps around it are written
//! down here a second time, since the code that does I/O cannot be taken back to an earlier state: [`server`] is
//! ZooKeeper, [`client`] a process with its session, [`contender`] what a call is in the middle of, [`acquire`],
//! [`release`] and [`session`] the steps of `fair`, of `janitor` with the hand-over, and of `supervisor`.
//!
//! **Time** is what each client may conclude from its last heartbeat: a session is *fresh* until `valid_until`, and
//! the server ends only sessions that are not. That is what the margin of `valid_until` buys; without it
//! ([`Mutation::NoMargin`](setup::Mutation::NoMargin)) two hold.
//!
//! **Hand-over in memory** is explored twice. [`line`] runs the real [`Order`](super::order::Order), with all that it knows
//! and all steps that ask it. [`Setup::hand_over`](setup::Setup::hand_over) is the bare design together with everything
//! else that can happen here: a contender with the next sequence after one of the same process, in the same
//! directory by its czxid, waits for that one in memory; a hold that is still valid is passed on to it while the
//! delete travels; whoever leaves the queue otherwise sends it to the server. A waiter that was second in its
//! list is granted when the node before it goes, without another list.
//!
//! Of two of its conditions, that the hold is valid and that the directory is the same, either alone would do;
//! without both, and without the look of the one that is granted at its own session, order or tokens break.
//!
//! **A session that changes unsaid** is noticed for certain before its heartbeats count, since the proof is:
//! [`witness`](super::witness) has the rule. Asking for one node that is known, or for all of them, is not certain: the
//! tests have the ways in which that fails.
//!
//! **Left out**: more than one lock, rights, foreign children, several followers (the one there is jumps to the
//! present when it catches up), and requests that outlive their connection: the server takes none from a
//! connection once the session has moved to the next.

mod acquire;
mod check;
mod client;
mod contender;
mod decide;
mod fixed;
mod line;
mod release;
mod server;
mod session;
mod setup;
mod tests;

use self::{
    client::Client,
    contender::{Contender, Job, Phase, Turn},
    fixed::Fixed,
    server::{Directory, Nodes, Server, SessionId, Zxid},
    setup::{Faults, Setup},
};

/// Everything there is at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    server: Server,
    clients: [Client; 3],
    contenders: [Contender; 3],
    jobs: Fixed<Job, 4>,
    faults: Faults,
    /// The token of the last grant.
    granted: Zxid,
    /// A grant had a token that was not above the one before.
    regressed: bool,
}

/// One step of somebody. Numbers are contenders, clients, sessions or jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Start(usize),
    /// The server does what a contender asks for.
    Execute(usize),
    /// The same at the end of the server's counter, while another create is still being written.
    ExecutePastTheEnd(usize),
    /// The answer reaches the contender.
    Deliver(usize),
    Cancel(usize),
    Release(usize),
    /// The watch on a contender's own node reports that it is gone.
    OwnGone(usize),
    Delete(usize),
    /// The delete is done, and its answer lost with the connection.
    DeleteUnheard(usize),
    Break {
        client: usize,
        to_follower: bool,
    },
    Change(usize),
    Prove(usize),
    Confirm(usize),
    Lapse(SessionId),
    Expire(SessionId),
    /// A client is told that its session is over.
    Learn(usize),
    Crash(usize),
    Lag,
    CatchUp,
    Sweep,
}

impl State {
    fn new(setup: &Setup) -> Self {
        let mut server = Server::new();
        server.directory = setup.counter.map(|counter| Directory { made: 0, counter });
        let clients = [0, 1, 2].map(Client::new);
        for client in &clients {
            server.open(client.session);
        }
        let mut contenders = [Contender::new(); 3];
        for absent in &mut contenders[setup.contenders..] {
            absent.phase = Phase::Done;
        }
        Self {
            server,
            clients,
            contenders,
            jobs: Fixed::default(),
            faults: setup.faults,
            granted: 0,
            regressed: false,
        }
    }

    /// What can happen next.
    fn actions(&self, setup: &Setup) -> Vec<Action> {
        let mut actions = Vec::with_capacity(16);
        self.acquire_actions(setup, &mut actions);
        self.release_actions(&mut actions);
        self.session_actions(setup, &mut actions);
        let Server { directory, nodes, lagging, .. } = &self.server;
        if directory.is_some() && nodes.is_empty() {
            actions.push(Action::Sweep);
        }
        if lagging.is_some() {
            actions.push(Action::CatchUp);
        } else if self.faults.lags > 0 && self.faults.breaks > 0 {
            actions.push(Action::Lag);
        }
        actions
    }

    /// Whether it goes on by itself, with no fault and no change of mind.
    fn is_calm(&self, action: Action) -> bool {
        match action {
            Action::Cancel(_)
            | Action::DeleteUnheard(_)
            | Action::Break { .. }
            | Action::Change(_)
            | Action::Crash(_)
            | Action::Lag => false,
            // Nobody beats for a session that was left behind.
            Action::Lapse(session) | Action::Expire(session) => !self.is_used(session),
            _ => true,
        }
    }

    fn after(&self, setup: &Setup, action: Action) -> Self {
        let mut next = *self;
        match action {
            Action::Start(who) => next.start(setup, who),
            Action::Execute(who) => next.execute(setup, who, false),
            Action::ExecutePastTheEnd(who) => next.execute(setup, who, true),
            Action::Deliver(who) => next.deliver(setup, who),
            Action::OwnGone(who) => next.own_gone(setup, who),
            Action::Cancel(who) => next.cancel(setup, who),
            Action::Release(who) => next.release(setup, who),
            Action::Delete(job) => next.delete(job),
            Action::DeleteUnheard(job) => next.delete_unheard(setup, job),
            Action::Break { client, to_follower } => {
                next.faults.breaks -= 1;
                next.reconnect(setup, client, to_follower);
            }
            Action::Change(client) => next.change(setup, client),
            Action::Prove(client) => next.prove(setup, client),
            Action::Confirm(client) => next.confirm(client),
            Action::Lapse(session) => next.lapse(session),
            Action::Expire(session) => next.expire(session),
            Action::Learn(client) => next.start_over(setup, client),
            Action::Crash(client) => next.crash(setup, client),
            Action::Lag => {
                next.faults.lags -= 1;
                next.server.lagging = Some(next.server.nodes);
            }
            Action::CatchUp => next.catch_up(),
            Action::Sweep => next.server.sweep(),
        }
        next.fire_watches(setup);
        next.normalize(setup);
        next
    }

    /// The children as a client's server shows them.
    fn view(&self, client: usize) -> &Nodes {
        match &self.server.lagging {
            Some(lagging) if self.clients[client].at_follower => lagging,
            _ => &self.server.nodes,
        }
    }

    /// The follower hears of everything, by itself or for a `sync`.
    fn catch_up(&mut self) {
        self.server.lagging = None;
        for client in &mut self.clients {
            client.ahead = false;
        }
    }

    /// A node was read and is watched from that moment on, on whichever server its client is: so that the event
    /// comes when that server does not show it any more.
    fn fire_watches(&mut self, setup: &Setup) {
        for who in 0..self.contenders.len() {
            if let Phase::Queue { own, turn: Turn::Waits { before, next, armed: true } } =
                self.contenders[who].phase
                && !self.view(setup.client_of[who].into()).iter().any(|node| node.name == before)
            {
                let turn = if next && setup.hand_over { Turn::Next } else { Turn::Look { synced: false } };
                self.contenders[who].phase = Phase::Queue { own, turn };
            }
        }
    }

    /// Makes states the same that differ in nothing that matters: transactions are numbered from 1 in their order,
    /// and what no future step looks at is set to one value.
    fn normalize(&mut self, setup: &Setup) {
        for client in 0..self.clients.len() {
            if !setup.contenders_of(client).any(|who| self.is_present(who)) {
                // Nobody of ours is left to take the directory away.
                self.clients[client].directory_made = None;
            }
            if self.is_finished(setup, client) {
                self.close(client);
            }
        }
        if self.server.lagging.is_some()
            && self.faults.breaks == 0
            && !self.clients.iter().any(|c| c.at_follower)
        {
            self.catch_up();
        }
        if self.server.lagging.is_none() && self.faults.lags == 0 {
            for client in &mut self.clients {
                client.at_follower = false;
            }
        }
        let mut seen = 0_u128;
        self.each_zxid(&mut |zxid| seen |= 1 << *zxid);
        self.each_zxid(&mut |zxid| {
            let before = seen & ((1 << *zxid) - 1) & !1;
            if *zxid > 0 {
                *zxid = Zxid::try_from(before.count_ones()).expect("there are 128 bits") + 1;
            }
        });
        let highest = u8::try_from((seen & !1).count_ones()).expect("there are 128 bits");
        self.server.zxid = highest;
    }

    /// Whether nobody of a process wants anything any more, and its session has no node left.
    fn is_finished(&self, setup: &Setup, client: usize) -> bool {
        let Client { session, crashed, .. } = self.clients[client];
        setup.contenders_of(client).all(|who| self.contenders[who].phase == Phase::Done)
            && (crashed || !self.server.nodes.iter().any(|node| node.owner == session))
            && !self.jobs.iter().any(|job| usize::from(job.client) == client)
    }

    fn each_zxid(&mut self, f: &mut impl FnMut(&mut Zxid)) {
        self.server.each_zxid(f);
        for client in &mut self.clients {
            if let Some(made) = &mut client.directory_made {
                f(made);
            }
        }
        for contender in &mut self.contenders {
            contender.each_zxid(f);
        }
        f(&mut self.granted);
    }
}
