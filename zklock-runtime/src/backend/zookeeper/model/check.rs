//! Visits every state of a [`Setup`], breadth first, so that what is found is found by a shortest way.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt::{self, Write as _},
    hash::{BuildHasher, BuildHasherDefault, Hasher},
};

use super::{
    Action, State,
    contender::{Birth, Phase},
    setup::Setup,
};

/// What was explored.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) states: usize,
    pub(super) outcome: Result<(), Counterexample>,
}

/// A promise that is broken, and the way there.
pub(super) struct Counterexample {
    pub(super) broken: Promise,
    trace: Vec<(Action, State)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Promise {
    /// At most one contender believes that it holds.
    OneHolder,
    /// No node of a session that is in use is left without somebody who will take it away.
    NoOrphan,
    /// Nobody holds while a contender waits whose node is before its own.
    Order,
    /// Each grant's token is above the one before.
    RisingTokens,
    /// When faults stop, everybody is granted or has withdrawn, and nothing is left, whatever the order of steps.
    Progress,
}

/// Visits every state, up to the first that breaks a promise.
pub(super) fn explore(setup: &Setup) -> Report {
    let mut graph = Graph::default();
    graph.add(&State::new(setup), None);
    let mut index = 0;
    while let Some(state) = graph.states.get(index).copied() {
        if let Some(broken) = broken(&state, setup) {
            return graph.report(setup, Some((broken, index)));
        }
        for action in state.actions(setup) {
            let next = graph.add(&state.after(setup, action), Some((index, action)));
            if state.is_calm(action) {
                graph.calm.push((index, next));
            }
        }
        index += 1;
    }
    let stuck = graph.stuck().map(|index| (Promise::Progress, index));
    graph.report(setup, stuck)
}

/// What a single state can break.
fn broken(state: &State, setup: &Setup) -> Option<Promise> {
    let holders = (0..3).filter(|&who| {
        matches!(state.contenders[who].phase, Phase::Held(_)) && state.is_valid(setup.client_of[who].into())
    });
    if holders.clone().count() > 1 {
        return Some(Promise::OneHolder);
    }
    for holder in holders {
        let own = state.contenders[holder].own().expect("a holder has a node");
        let overtaken = state
            .server
            .nodes
            .iter()
            .any(|node| node.czxid < own.czxid && waits(state, node.name.who, node.czxid));
        if overtaken {
            return Some(Promise::Order);
        }
    }
    if state.regressed {
        return Some(Promise::RisingTokens);
    }
    let is_orphan = |name, owner| state.is_used(owner) && !is_cared_for(state, name);
    if state.server.nodes.iter().any(|node| is_orphan(node.name, node.owner)) {
        return Some(Promise::NoOrphan);
    }
    None
}

/// Whether somebody still wants to be granted on this node.
fn waits(state: &State, who: u8, czxid: u8) -> bool {
    match state.contenders[usize::from(who)].phase {
        Phase::Queue { own, .. } | Phase::Birth { step: Birth::Made { own, .. }, cancelled: false } => {
            own.czxid == czxid
        }
        _ => false,
    }
}

/// Whether a contender, the task that created it or the janitor knows of the node.
fn is_cared_for(state: &State, name: super::server::Name) -> bool {
    let contender = &state.contenders[usize::from(name.who)];
    let by_its_task = match contender.phase {
        Phase::Birth { step: Birth::Made { own, .. }, .. } | Phase::Queue { own, .. } | Phase::Held(own) => {
            own.name == name
        }
        Phase::Birth { .. } => contender.attempt == name.attempt,
        Phase::Idle | Phase::Ended(_) | Phase::Done => false,
    };
    by_its_task || state.jobs.iter().any(|job| job.name == name)
}

fn is_settled(state: &State) -> bool {
    state.contenders.iter().all(|contender| contender.phase == Phase::Done)
        && state.jobs.is_empty()
        && state.server.nodes.is_empty()
        && state.server.directory.is_none()
}

/// The states found so far, and how.
#[derive(Default)]
struct Graph {
    states: Vec<State>,
    /// Where each state is, by its hash, or the next free number after it.
    found: HashMap<u64, usize, BuildHasherDefault<Mix>>,
    from: Vec<Option<(usize, Action)>>,
    /// Steps that need no fault.
    calm: Vec<(usize, usize)>,
}

impl Graph {
    fn add(&mut self, state: &State, from: Option<(usize, Action)>) -> usize {
        let mut hash = BuildHasherDefault::<Mix>::default().hash_one(state);
        loop {
            match self.found.entry(hash) {
                Entry::Occupied(known) if self.states[*known.get()] == *state => return *known.get(),
                Entry::Occupied(_) => hash = hash.wrapping_add(1),
                Entry::Vacant(new) => {
                    self.states.push(*state);
                    self.from.push(from);
                    return *new.insert(self.states.len() - 1);
                }
            }
        }
    }

    /// A state from which some way without faults does not end well: it ends too early, or goes round in circles.
    ///
    /// Taken away from the end: first the states that are settled, then those all of whose calm steps lead to what
    /// is taken away already. What remains is stuck.
    fn stuck(&self) -> Option<usize> {
        let mut ways = vec![0_u32; self.states.len()];
        let mut back = vec![Vec::new(); self.states.len()];
        for &(from, to) in &self.calm {
            ways[from] += 1;
            back[to].push(from);
        }
        let is_end = |index: &usize| ways[*index] == 0 && is_settled(&self.states[*index]);
        let mut ends: Vec<usize> = (0..self.states.len()).filter(is_end).collect();
        let mut remaining = self.states.len();
        let mut is_good = vec![false; self.states.len()];
        while let Some(end) = ends.pop() {
            remaining -= 1;
            is_good[end] = true;
            for &from in &back[end] {
                ways[from] -= 1;
                if ways[from] == 0 {
                    ends.push(from);
                }
            }
        }
        if remaining == 0 {
            return None;
        }
        // The end of such a way tells more than its beginning.
        let is_stuck = |&index: &usize| !is_good[index];
        (0..self.states.len())
            .filter(is_stuck)
            .find(|&index| ways[index] == 0)
            .or_else(|| (0..self.states.len()).find(is_stuck))
    }

    fn report(&self, setup: &Setup, broken: Option<(Promise, usize)>) -> Report {
        let outcome = match broken {
            None => Ok(()),
            Some((broken, index)) => Err(Counterexample { broken, trace: self.trace(index) }),
        };
        println!(
            "{}{}: {} states, {}",
            setup.name,
            setup.mutation.map(|mutation| format!(", {mutation:?}")).unwrap_or_default(),
            self.states.len(),
            outcome.as_ref().map_or_else(
                |found| format!("{:?} broken in {} steps", found.broken, found.trace.len()),
                |()| "all promises kept".into()
            )
        );
        Report { states: self.states.len(), outcome }
    }

    fn trace(&self, mut index: usize) -> Vec<(Action, State)> {
        let mut trace = Vec::new();
        while let Some((from, action)) = self.from[index] {
            trace.push((action, self.states[index]));
            index = from;
        }
        trace.reverse();
        trace
    }
}

impl fmt::Debug for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{:?} is broken:\n", self.broken);
        for (number, (action, state)) in self.trace.iter().enumerate() {
            let _ = writeln!(text, "{:3} {action:?}", number + 1);
            for contender in &state.contenders {
                let _ = writeln!(text, "        {contender:?}");
            }
            let _ = writeln!(text, "        {:?} jobs {:?}", state.server, state.jobs);
        }
        f.write_str(&text)
    }
}

/// A quick hash: states come from nobody who would make them collide.
#[derive(Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    fn write_u16(&mut self, n: u16) {
        self.write_u64(n.into());
    }

    fn write_i32(&mut self, n: i32) {
        self.write_u64(u64::from(n.cast_unsigned()));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}
