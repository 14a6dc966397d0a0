use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use tokio::sync::Notify;

use super::{contender::OwnNode, nodes, outlet::Claim, queue, session::Node};

/// The contenders of this session in one directory, in the order of their sequences, so that a lock goes from one to
/// the next in memory.
///
/// Sequences of one directory are given out one by one: nobody can ever stand between two that follow each other, and
/// nobody comes before one that has been first. So when a holder of ours is done, the next sequence has the lock; if that
/// is ours too, it is granted here and now, and the delete of the node before it follows at leisure. Who stands behind
/// another session's contender watches that one on the server. The order among all processes is that of the nodes, as
/// it would be without this.
///
/// Every grant asks first whether the session is valid at that moment (`Session::grant`): then the
/// server has all our nodes, and no other process can have been served meanwhile.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<State>,
    /// Held by the one who lists the directory for all.
    pub(super) turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// All contenders up to this sequence are over.
    done: Option<i32>,
    /// The one of ours that holds.
    holder: Option<Holder>,
    waiting: BTreeMap<i32, Waiter>,
    /// Somebody is granting; whoever else sees a turn come leaves it to that one.
    is_advancing: bool,
    /// Contenders of other sessions were seen, or other children.
    has_others: bool,
    has_foreign: bool,
    surveys: Surveys,
}

struct Holder {
    sequence: i32,
    node: Arc<Node>,
}

struct Waiter {
    claim: Claim,
    own: OwnNode,
    before: Before,
    signal: Arc<Signal>,
    /// How many surveys had started when it came.
    since: u64,
}

/// Who is before a contender, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Unknown,
    /// It is not in the list.
    Missing,
    /// Its turn had come, but the session could not be relied on.
    Unconfirmed,
    /// One of ours.
    Ours(i32),
    Theirs(Theirs),
}

/// Another session's contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Theirs {
    pub(super) name: Arc<str>,
    /// Nobody is before it: when it goes, it is our turn.
    pub(super) is_first: bool,
    /// The one before it: when that goes, it may be first.
    pub(super) ahead: Option<Arc<str>>,
}

/// Numbers the listings of the directory.
#[derive(Clone, Copy, Debug, Default)]
struct Surveys {
    started: u64,
    finished: u64,
    finished_synced: u64,
}

/// Wakes the task of a waiter, and tells it of its end.
#[derive(Default)]
struct Signal {
    notify: Notify,
    state: AtomicU8,
}

const WAITS: u8 = 0;
const GRANTED: u8 = 1;
const GONE: u8 = 2;

impl Signal {
    fn ends(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.notify.notify_one();
    }
}

/// Whether sequences of a directory tell the order: not past the end of the server's counter, see [`queue::place`].
pub(super) fn is_in_order(sequence: i32) -> bool {
    (0..i32::MAX).contains(&sequence)
}

impl Line {
    /// Stands in the line with the contender `sequence`. `is_first`: nobody else was there when it came.
    pub(super) fn enter(self: &Arc<Self>, sequence: i32, is_first: bool, claim: Claim, own: OwnNode) -> Place {
        let signal = Arc::new(Signal::default());
        {
            let mut state = self.state();
            let previous = sequence.wrapping_sub(1);
            if is_first {
                state.done = Some(previous);
            }
            let before = Some(previous)
                .filter(|_| is_in_order(sequence))
                .and_then(|previous| state.ours(previous))
                .map_or(Before::Unknown, Before::Ours);
            let since = state.surveys.started;
            state.waiting.insert(sequence, Waiter { claim, own, before, signal: signal.clone(), since });
        }
        self.advance();
        Place { line: self.clone(), sequence, signal }
    }

    /// The holder `sequence` is done. `passes`: its node stood until now, as far as we know.
    pub(super) fn leave(self: &Arc<Self>, sequence: i32, passes: bool) {
        {
            let mut state = self.state();
            if !state.is_holder(sequence) {
                return;
            }
            state.holder = None;
            if passes {
                state.done = Some(state.done.map_or(sequence, |done| done.max(sequence)));
            } else {
                state.relink(sequence, Before::Unknown);
            }
        }
        self.advance();
    }

    /// Nobody but us is known to use the directory.
    pub(super) fn is_ours(&self) -> bool {
        let state = self.state();
        !state.has_others && !state.has_foreign
    }

    /// Some node of ours stands in the directory, and whatever is asked of the server now is done before its delete: the
    /// directory is still the same, and sequences go on.
    pub(super) fn is_occupied(&self) -> bool {
        let state = self.state();
        let holder = state.holder.as_ref().map(|holder| &holder.node);
        holder.into_iter().chain(state.waiting.values().map(|waiter| waiter.own.node())).any(|node| !node.is_gone())
    }

    /// Grants to whose turn it is. Iterative: a caller that is gone gives its grant back in here.
    fn advance(self: &Arc<Self>) {
        let mut state = self.state();
        if state.is_advancing {
            return;
        }
        state.is_advancing = true;
        while let Some((sequence, waiter)) = state.next() {
            let Waiter { claim, own, signal, since, .. } = waiter;
            if own.node().is_gone() {
                // Seen to be gone: whoever is behind it does not have it before them.
                state.done = Some(sequence);
                drop(state);
                signal.ends(GONE);
                drop((claim, own));
                state = self.state();
                continue;
            }
            state.holder = Some(Holder { sequence, node: own.node().clone() });
            drop(state);
            let granted = claim.grant(own);
            state = self.state();
            match granted {
                Ok(()) => signal.ends(GRANTED),
                Err((claim, own)) => {
                    state.holder = None;
                    // Known anew when it has looked again.
                    state.done = None;
                    signal.notify.notify_one();
                    let before = Before::Unconfirmed;
                    state.waiting.insert(sequence, Waiter { claim, own, before, signal, since });
                }
            }
        }
        state.is_advancing = false;
    }

    /// Which survey, at the earliest, says something about whoever asks now.
    pub(super) fn next_survey(&self) -> u64 {
        self.state().surveys.started + 1
    }

    /// Whether that one, or a later one, is done.
    pub(super) fn is_surveyed(&self, number: u64, synced: bool) -> bool {
        let surveys = self.state().surveys;
        number <= if synced { surveys.finished_synced } else { surveys.finished }
    }

    /// A listing is about to be asked for.
    pub(super) fn start_survey(&self) -> u64 {
        let surveys = &mut self.state().surveys;
        surveys.started += 1;
        surveys.started
    }

    /// The listing `number` has come.
    pub(super) fn finish_survey(self: &Arc<Self>, number: u64, synced: bool, children: &[String]) {
        {
            let mut state = self.state();
            state.surveys.finished = number;
            if synced {
                state.surveys.finished_synced = number;
            }
            state.place_all(number, children);
        }
        self.advance();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes out whose turn it is.
    fn next(&mut self) -> Option<(i32, Waiter)> {
        if self.holder.is_some() {
            return None;
        }
        let done = self.done?;
        let next = done.wrapping_add(1);
        if let Some(waiter) = self.waiting.remove(&next) {
            return Some((next, waiter));
        }
        let (&next, waiter) = self.waiting.range(next..).next()?;
        if waiter.before != Before::Ours(done) {
            return None;
        }
        self.waiting.remove(&next).map(|waiter| (next, waiter))
    }

    /// The one behind `sequence`, if it is ours, has somebody else before it now.
    fn relink(&mut self, sequence: i32, before: Before) {
        let behind = self.waiting.range_mut(sequence..).find(|(_, waiter)| waiter.before == Before::Ours(sequence));
        if let Some((_, waiter)) = behind {
            waiter.before = before;
            waiter.signal.notify.notify_one();
        }
    }

    /// Finds the places of all ours in a listing.
    fn place_all(&mut self, number: u64, children: &[String]) {
        self.has_foreign |= queue::has_foreign(children);
        let names = queue::in_order(children);
        let mut listed = 0;
        let mut found: Vec<(i32, Before)> = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let Some(sequence) = nodes::sequence(name) else { continue };
            let is_ours = self.waiting.get(&sequence).is_some_and(|waiter| waiter.own.node().name() == *name);
            listed += usize::from(is_ours || self.is_holder(sequence));
            if !is_ours {
                continue;
            }
            let ahead = |distance: usize| names.get(index.checked_sub(distance)?).copied();
            let before = match ahead(1) {
                None => {
                    self.done = Some(sequence.wrapping_sub(1));
                    Before::Ours(sequence.wrapping_sub(1))
                }
                Some(name) => {
                    let theirs = || Before::Theirs(Theirs {
                        name: (*name).into(),
                        is_first: index == 1,
                        ahead: ahead(2).map(Into::into),
                    });
                    nodes::sequence(name).and_then(|previous| self.ours(previous)).map_or_else(theirs, Before::Ours)
                }
            };
            found.push((sequence, before));
        }
        self.has_others |= listed < names.len();
        let mut found = found.into_iter().peekable();
        for (sequence, waiter) in &mut self.waiting {
            while found.next_if(|(earlier, _)| earlier < sequence).is_some() {}
            let before = match found.next_if(|(same, _)| same == sequence) {
                Some((_, before)) => before,
                // It came later than the listing was asked for.
                None if waiter.since >= number => continue,
                None => Before::Missing,
            };
            if waiter.before != before {
                waiter.before = before;
                waiter.signal.notify.notify_one();
            }
        }
    }

    fn is_holder(&self, sequence: i32) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.sequence == sequence)
    }

    /// The one of ours that whoever is behind `sequence` waits for.
    fn ours(&self, sequence: i32) -> Option<i32> {
        if let Some(done) = self.done.filter(|done| is_in_order(sequence) && sequence <= *done) {
            return Some(done);
        }
        (self.is_holder(sequence) || self.waiting.contains_key(&sequence)).then_some(sequence)
    }
}

/// A contender's place in its line; dropping it withdraws, if it has not been granted.
pub(super) struct Place {
    line: Arc<Line>,
    sequence: i32,
    signal: Arc<Signal>,
}

/// How a wait went on.
pub(super) enum Standing {
    Granted,
    /// The node is gone.
    Gone,
    Behind(Before),
}

impl Place {
    pub(super) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    pub(super) fn standing(&self) -> Standing {
        match self.signal.state.load(Ordering::Acquire) {
            WAITS => self.line.state().waiting.get(&self.sequence).map_or(
                // Being granted at this moment: it is told when that is done.
                Standing::Behind(Before::Ours(self.sequence.wrapping_sub(1))),
                |waiter| Standing::Behind(waiter.before.clone()),
            ),
            GRANTED => Standing::Granted,
            _ => Standing::Gone,
        }
    }

    /// Resolves when the standing may be another one. Cancel-safe.
    pub(super) async fn changed(&self) {
        self.signal.notify.notified().await;
    }

    /// Nobody is before it any more.
    pub(super) fn is_first(&self) {
        {
            let mut state = self.line.state();
            if !state.waiting.contains_key(&self.sequence) {
                return;
            }
            state.done = Some(self.sequence.wrapping_sub(1));
        }
        self.line.advance();
    }

    /// What was known is known no more.
    pub(super) fn is_unknown(&self) {
        self.is(Before::Unknown);
    }

    pub(super) fn is_behind(&self, theirs: Theirs) {
        self.is(Before::Theirs(theirs));
    }

    fn is(&self, before: Before) {
        if let Some(waiter) = self.line.state().waiting.get_mut(&self.sequence) {
            waiter.before = before;
        }
    }

    /// Its node is seen to be gone. False: it was granted before that.
    pub(super) fn is_gone(&self) -> bool {
        let Some(waiter) = self.withdraw() else { return self.signal.state.load(Ordering::Acquire) == GONE };
        waiter.own.is_gone();
        true
    }

    fn withdraw(&self) -> Option<Waiter> {
        let mut state = self.line.state();
        let waiter = state.waiting.remove(&self.sequence)?;
        if state.done == Some(self.sequence.wrapping_sub(1)) && is_in_order(self.sequence) {
            state.done = Some(self.sequence);
        } else {
            let before = match &waiter.before {
                before @ (Before::Ours(_) | Before::Theirs(_)) => before.clone(),
                Before::Unknown | Before::Missing | Before::Unconfirmed => Before::Unknown,
            };
            state.relink(self.sequence, before);
        }
        drop(state);
        self.line.advance();
        Some(waiter)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.withdraw());
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Line")
            .field("done", &state.done)
            .field("holder", &state.holder.as_ref().map(|holder| holder.sequence))
            .field("waiting", &state.waiting.len())
            .finish_non_exhaustive()
    }
}
