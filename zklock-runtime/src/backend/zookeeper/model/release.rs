//! How a contender leaves: the hand-over in memory, and the deletes that the janitor sees through.

use zookeeper_client as zk;

use super::{
    super::answer::{self, Kind},
    Action, State,
    client::Client,
    contender::{Job, Own, Phase, Turn},
    server::Name,
    setup::{Mutation, Setup},
};

impl State {
    pub(super) fn release_actions(&self, actions: &mut Vec<Action>) {
        for (who, contender) in self.contenders.iter().enumerate() {
            if matches!(contender.phase, Phase::Held(_) | Phase::Ended(_)) {
                actions.push(Action::Release(who));
            }
        }
        for (index, job) in self.jobs.iter().enumerate() {
            if self.server.is_alive(self.clients[usize::from(job.client)].session) {
                actions.push(Action::Delete(index));
                if self.faults.breaks > 0 {
                    actions.push(Action::DeleteUnheard(index));
                }
            }
        }
    }

    /// The holder gives the lock back, or notices at last that it is lost.
    pub(super) fn release(&mut self, setup: &Setup, who: usize) {
        let client = usize::from(setup.client_of[who]);
        match self.contenders[who].phase {
            Phase::Held(own) => {
                let passes_on = self.is_valid(client) || setup.has(Mutation::HandOverUnchecked);
                match self.neighbour_behind(setup, own.name) {
                    // Both are of one session, so that the look at the one is a look at the other.
                    Some((next, its)) if passes_on => {
                        self.take_away(setup, who, own);
                        self.hold(next, its);
                    }
                    Some((next, its)) if setup.has(Mutation::HandOverByRevoked) => {
                        self.take_away(setup, who, own);
                        self.grant(setup, next, its);
                    }
                    _ => self.withdraw(setup, who, own),
                }
            }
            // Its session or its node is gone, so that there is nothing to delete.
            Phase::Ended(own) => {
                let next = self.neighbour_behind(setup, own.name);
                self.leave(who);
                if let Some((next, its)) = next
                    && setup.has(Mutation::HandOverByRevoked)
                {
                    self.grant(setup, next, its);
                }
                self.forget_neighbour(setup, who);
            }
            phase => unreachable!("{phase:?} holds nothing"),
        }
    }

    /// Leaves the queue without passing anything on.
    pub(super) fn withdraw(&mut self, setup: &Setup, who: usize, own: Own) {
        let next = self.neighbour_behind(setup, own.name);
        self.take_away(setup, who, own);
        if let Some((next, its)) = next
            && setup.has(Mutation::HandOverByWaiter)
        {
            self.grant(setup, next, its);
        }
        self.forget_neighbour(setup, who);
    }

    /// The hold is over, by the session or the node. How long its body takes to stop matters to neighbours only.
    pub(super) fn lose(&mut self, setup: &Setup, who: usize, own: Own) {
        self.contenders[who].phase = if setup.hand_over { Phase::Ended(own) } else { Phase::Done };
    }

    /// Hands the node to the janitor.
    pub(super) fn take_away(&mut self, setup: &Setup, who: usize, own: Own) {
        let index = usize::from(setup.client_of[who]);
        self.leave(who);
        let is_last = !setup.contenders_of(index).any(|other| self.is_present(other));
        let client = &mut self.clients[index];
        let with_directory = own.alone && is_last && client.directory_made == Some(own.directory);
        if with_directory {
            client.directory_is_missing();
        }
        self.jobs.push(Job { client: setup.client_of[who], name: own.name, with_directory });
    }

    /// The same for a node that turns out not to be ours.
    pub(super) fn take_away_stray(&mut self, client: usize, own: Own) {
        let client = u8::try_from(client).expect("there are three");
        self.jobs.push(Job { client, name: own.name, with_directory: false });
    }

    pub(super) fn leave(&mut self, who: usize) {
        self.contenders[who].phase = Phase::Done;
    }

    /// Counted by its session as a contender in the directory.
    pub(super) fn is_present(&self, who: usize) -> bool {
        matches!(self.contenders[who].phase, Phase::Birth { .. } | Phase::Queue { .. } | Phase::Held(_))
    }

    /// The janitor's request is done, and its answer heard.
    pub(super) fn delete(&mut self, index: usize) {
        let Some(mut job) = self.jobs.remove(index) else { return };
        self.hear_write(job.client.into());
        match self.server.delete(job.name, job.with_directory) {
            Ok(()) | Err((_, zk::Error::NoNode)) => {}
            Err((_, error)) => {
                debug_assert_eq!(answer::kind(&error), Kind::Refusal);
                job.with_directory = false;
                self.jobs.push(job);
            }
        }
    }

    /// The janitor's request is done, and its answer lost.
    pub(super) fn delete_unheard(&mut self, setup: &Setup, index: usize) {
        self.faults.breaks -= 1;
        let Some(mut job) = self.jobs.remove(index) else { return };
        // Whatever came of it is not heard.
        let _ = self.server.delete(job.name, job.with_directory);
        job.with_directory = false;
        self.jobs.push(job);
        self.reconnect(setup, job.client.into(), false);
    }

    /// The contender right before a new one, if it is of the same process and in the same directory. Numbers are
    /// given one after the other, up to the end of the counter, so that nobody is between.
    pub(super) fn neighbour_before(&self, setup: &Setup, who: usize, own: Own) -> Option<Name> {
        if !setup.hand_over || own.name.sequence == i32::MAX || own.name.sequence < 0 {
            return None;
        }
        let client = usize::from(setup.client_of[who]);
        let mut before = setup.contenders_of(client).filter(|&other| other != who).filter_map(|other| {
            let its = match self.contenders[other].phase {
                Phase::Queue { own, .. } | Phase::Held(own) => own,
                Phase::Ended(own) if setup.has(Mutation::HandOverByRevoked) => own,
                _ => return None,
            };
            let is_same = its.directory == own.directory || setup.has(Mutation::HandOverByRevoked);
            let is_next = its.name.sequence.checked_add(1) == Some(own.name.sequence)
                || setup.has(Mutation::HandOverOverForeign) && its.name.sequence < own.name.sequence;
            (is_same && is_next).then_some(its.name)
        });
        before.next()
    }

    /// Who of the same process waits in memory for `before`.
    fn neighbour_behind(&self, setup: &Setup, before: Name) -> Option<(usize, Own)> {
        let client = usize::from(setup.client_of[usize::from(before.who)]);
        setup.contenders_of(client).find_map(|who| match self.contenders[who].phase {
            Phase::Queue { own, turn: Turn::Memory { before: its } } if its == before => Some((who, own)),
            _ => None,
        })
    }

    /// Whether `name` is that of a contender of this process which has not left the queue.
    pub(super) fn is_in_memory(&self, setup: &Setup, client: usize, name: Name) -> bool {
        setup.contenders_of(client).any(|who| self.contenders[who].own().is_some_and(|own| own.name == name))
    }

    /// Who waited for a contender of this process that is not there any more asks the server.
    pub(super) fn forget_neighbour(&mut self, setup: &Setup, who: usize) {
        let client = usize::from(setup.client_of[who]);
        for behind in setup.contenders_of(client) {
            if let Phase::Queue { own, turn: Turn::Memory { before } } = self.contenders[behind].phase
                && !self.is_in_memory(setup, client, before)
                && !(setup.has(Mutation::HandOverByRevoked) && self.is_ended(before))
            {
                self.contenders[behind].phase = Phase::Queue { own, turn: Turn::Look { synced: false } };
            }
        }
    }

    fn is_ended(&self, name: Name) -> bool {
        matches!(self.contenders[usize::from(name.who)].phase, Phase::Ended(own) if own.name == name)
    }

    /// All deletes of a client whose answers were on their way are sent again.
    pub(super) fn lose_deletes(&mut self, setup: &Setup, client: usize) {
        if setup.has(Mutation::DeleteOnce) {
            self.forget_deletes(client);
        }
    }

    /// They end with their session.
    pub(super) fn forget_deletes(&mut self, client: usize) {
        self.jobs.retain(|job| usize::from(job.client) != client);
    }

    /// Whether a session has a client that still works with it.
    pub(super) fn is_used(&self, session: u8) -> bool {
        let client = &self.clients[Client::of(session)];
        client.session == session && !client.crashed
    }
}
