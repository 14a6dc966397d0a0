use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use super::{
    bell::Bell,
    contender::OwnNode,
    order::{Before, Order, Theirs, Waits},
    outlet::{Claim, unless_it_panics},
    session::Node,
};

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
pub(super) struct Line<C = Claimant> {
    /// The transaction that made the directory, where known.
    made_in: Option<i64>,
    state: Mutex<State<C>>,
}

struct State<C> {
    order: Order<Entrant<C>>,
    /// The node of the one that holds.
    held: Option<Arc<Node>>,
    /// Somebody is granting; whoever else sees a turn come leaves it to that one.
    is_advancing: bool,
    /// Made by the first who lists: most lines are of one contender, which never does.
    turn: Option<Arc<tokio::sync::Mutex<()>>>,
}

/// A contender that waits.
struct Entrant<C> {
    candidate: C,
    signal: Arc<Signal>,
}

/// Who can be granted the lock.
pub(super) trait Candidate: Sized {
    fn node(&self) -> &Arc<Node>;

    /// Gives it the lock, unless its session cannot be relied on at this moment.
    fn grant(self) -> Result<(), Self>;
}

/// What waits for the turn of its node.
pub(super) struct Claimant {
    pub(super) claim: Claim,
    pub(super) own: OwnNode,
}

impl Candidate for Claimant {
    fn node(&self) -> &Arc<Node> {
        self.own.node()
    }

    fn grant(self) -> Result<(), Self> {
        self.claim.grant(self.own).map_err(|(claim, own)| Self { claim, own })
    }
}

impl<C: Candidate> Waits for Entrant<C> {
    fn is_named(&self, name: &str) -> bool {
        self.candidate.node().is_named(name)
    }

    fn stir(&mut self) {
        self.signal.bell.ring();
    }
}

/// Tells a waiter of its end, and of what happens before that.
#[derive(Default)]
struct Signal {
    bell: Arc<Bell>,
    state: AtomicU8,
}

const WAITS: u8 = 0;
const GRANTED: u8 = 1;
const GONE: u8 = 2;
/// Nobody waits for it any more. Set under the lock of the line.
const LEFT: u8 = 3;

impl Signal {
    fn is_granted(&self) {
        self.state.store(GRANTED, Ordering::Release);
        self.bell.is_over();
    }

    fn is_gone(&self) {
        self.state.store(GONE, Ordering::Release);
        self.bell.ring();
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }
}

impl<C> Line<C> {
    /// In the directory that was made in this transaction.
    pub(super) fn of(made_in: Option<i64>) -> Self {
        let state = State { order: Order::default(), held: None, is_advancing: false, turn: None };
        Self { made_in, state: Mutex::new(state) }
    }

    /// The transaction that made the directory, where known.
    pub(super) fn made_in(&self) -> Option<i64> {
        self.made_in
    }
}

impl<C: Candidate> Line<C> {
    /// Takes the sequence in, to enter, if it comes after all that are known. If not, its answer was late, or the directory
    /// was made anew since.
    pub(super) fn takes(&self, sequence: i32) -> bool {
        self.state().order.takes(sequence)
    }

    /// Stands in the line with the contender `sequence`. `is_first`: nobody else was there when it came.
    pub(super) fn enter(self: &Arc<Self>, sequence: i32, is_first: bool, candidate: C) -> Place<C> {
        let signal = Arc::new(Signal::default());
        let entrant = Entrant { candidate, signal: signal.clone() };
        self.change(|order| order.enter(sequence, is_first, entrant));
        Place { line: self.clone(), sequence, signal }
    }

    /// The holder `sequence` is done. `passes`: its node stood until now, as far as we know.
    pub(super) fn leave(self: &Arc<Self>, sequence: i32, passes: bool) {
        {
            let mut state = self.state();
            state.order.leave(sequence, passes);
            if !state.order.has_holder() {
                state.held = None;
            }
        }
        self.advance();
    }

    /// Nobody but us is known to use the directory.
    pub(super) fn is_ours(&self) -> bool {
        self.state().order.is_only_ours()
    }

    /// Some node of ours stands in the directory, and whatever is asked of the server now is done before its delete: the
    /// directory is still the same, and sequences go on.
    pub(super) fn is_occupied(&self) -> bool {
        let state = self.state();
        let waiting = state.order.waiting().map(|entrant| entrant.candidate.node());
        state.held.iter().chain(waiting).any(|node| !node.is_gone())
    }

    /// Grants to whose turn it is. Iterative: a caller that is gone gives its grant back in here.
    fn advance(self: &Arc<Self>) {
        let mut state = self.state();
        if state.is_advancing {
            return;
        }
        state.is_advancing = true;
        while let Some((sequence, Entrant { candidate, signal })) = state.order.next() {
            let node = candidate.node().clone();
            state.held = Some(node.clone());
            drop(state);
            let granted =
                if node.is_gone() { Err(candidate) } else { unless_it_panics(|| candidate.grant()) };
            if granted.is_ok() {
                signal.is_granted();
            }
            state = self.state();
            if granted.is_err() {
                state.held = None;
            }
            match granted {
                Ok(()) => {}
                Err(candidate) if node.is_gone() => {
                    state.order.leave(sequence, false);
                    signal.is_gone();
                    state = self.without(state, candidate);
                }
                // Nobody is left to look again for it.
                Err(candidate) if signal.state() == LEFT => {
                    state.order.leave(sequence, true);
                    state = self.without(state, candidate);
                }
                Err(candidate) => state.order.put_back(sequence, Entrant { candidate, signal }),
            }
        }
        state.is_advancing = false;
    }

    /// Drops what comes back to the line when it is dropped.
    fn without<'a>(&'a self, state: MutexGuard<'a, State<C>>, dropped: C) -> MutexGuard<'a, State<C>> {
        drop(state);
        drop(dropped);
        self.state()
    }

    /// Changes what is known, and grants what follows from it.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Order<Entrant<C>>) -> T) -> T {
        let changed = change(&mut self.state().order);
        self.advance();
        changed
    }

    /// Has all who wait look again.
    pub(super) fn stir(&self) {
        self.state().order.stir();
    }

    /// Held by the one who lists the directory for all.
    pub(super) fn turn(&self) -> Arc<tokio::sync::Mutex<()>> {
        self.state().turn.get_or_insert_default().clone()
    }

    /// Which survey, at the earliest, says something about whoever asks now.
    pub(super) fn next_survey(&self) -> u64 {
        self.state().order.next_survey()
    }

    /// Whether that one, or a later one, is done.
    pub(super) fn is_surveyed(&self, number: u64, synced: bool) -> bool {
        self.state().order.is_surveyed(number, synced)
    }

    /// A listing is about to be asked for.
    pub(super) fn start_survey(&self) -> u64 {
        self.state().order.start_survey()
    }

    /// The listing `number` has come.
    pub(super) fn finish_survey(self: &Arc<Self>, number: u64, synced: bool, children: &[String]) {
        self.change(|order| order.finish_survey(number, synced, children));
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A contender's place in its line; dropping it withdraws, if it has not been granted.
pub(super) struct Place<C: Candidate = Claimant> {
    line: Arc<Line<C>>,
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

impl<C: Candidate> Place<C> {
    pub(super) fn line(&self) -> &Arc<Line<C>> {
        &self.line
    }

    pub(super) fn standing(&self) -> Standing {
        match self.signal.state() {
            GRANTED => Standing::Granted,
            GONE => Standing::Gone,
            // Being granted at this moment if it is not there: it is told when that is done.
            _ => Standing::Behind(
                self.line
                    .state()
                    .order
                    .before(self.sequence)
                    .map_or_else(|| Before::Ours(self.sequence.wrapping_sub(1)), Before::clone),
            ),
        }
    }

    /// Resolves when the standing may be another one. Cancel-safe.
    pub(super) async fn changed(&self) {
        self.signal.bell.rings().await;
    }

    /// Rings then, unless it is granted.
    pub(super) fn bell(&self) -> Arc<Bell> {
        self.signal.bell.clone()
    }

    /// Nobody is before it any more.
    pub(super) fn is_first(&self) {
        self.line.change(|order| order.is_first(self.sequence));
    }

    /// What was known is known no more.
    pub(super) fn is_unknown(&self) {
        self.line.state().order.is(self.sequence, Before::Unknown);
    }

    pub(super) fn is_behind(&self, theirs: Theirs) {
        self.line.state().order.is(self.sequence, Before::Theirs(theirs));
    }

    /// Its node is seen to be gone. False: it was granted before that.
    pub(super) async fn is_gone(&self) -> bool {
        loop {
            if self.line.change(|order| order.withdraw(self.sequence, true)).is_some() {
                return true;
            }
            match self.standing() {
                Standing::Granted => return false,
                Standing::Gone => return true,
                // Being granted at this moment, or in vain.
                Standing::Behind(_) => self.changed().await,
            }
        }
    }
}

impl<C: Candidate> Drop for Place<C> {
    fn drop(&mut self) {
        if self.signal.state() == GRANTED {
            return;
        }
        let withdrawn = self.line.change(|order| {
            let withdrawn = order.withdraw(self.sequence, false);
            if withdrawn.is_none() && self.signal.state() == WAITS {
                // Being granted at this moment.
                self.signal.state.store(LEFT, Ordering::Release);
            }
            withdrawn
        });
        drop(withdrawn);
    }
}

impl<C> fmt::Debug for Line<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        task::{Context, Poll, Waker},
    };

    use uuid::Uuid;

    use super::{
        super::{group::Created, nodes::Name},
        *,
    };

    type Shared = Arc<Mutex<World>>;

    /// What happens around the line.
    #[derive(Default)]
    struct World {
        /// The session cannot be relied on.
        is_invalid: bool,
        /// Who was granted, in the order of the grants.
        granted: Vec<i32>,
        /// Whose nodes were taken away.
        taken_away: Vec<i32>,
        places: BTreeMap<i32, Place<Fake>>,
        /// Leaves while it is being granted.
        leaves: Option<i32>,
        /// Its waker panics.
        panics: Option<i32>,
    }

    /// A contender without a server.
    struct Fake {
        sequence: i32,
        node: Arc<Node>,
        world: Shared,
    }

    impl Candidate for Fake {
        fn node(&self) -> &Arc<Node> {
            &self.node
        }

        fn grant(self) -> Result<(), Self> {
            let leaving = {
                let mut world = self.world.lock().unwrap();
                world.leaves.take().and_then(|leaves| world.places.remove(&leaves))
            };
            drop(leaving);
            let mut world = self.world.lock().unwrap();
            if world.is_invalid {
                drop(world);
                return Err(self);
            }
            world.granted.push(self.sequence);
            let panics = world.panics == Some(self.sequence);
            drop(world);
            assert!(!panics, "a waker that panics");
            Ok(())
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let mut world = self.world.lock().unwrap();
            if world.granted.last() != Some(&self.sequence) {
                world.taken_away.push(self.sequence);
            }
        }
    }

    fn node(sequence: i32) -> Arc<Node> {
        let name = Name { uuid: Uuid::nil(), sequence };
        Node::contender("/a".into(), name, Created { czxid: sequence.into(), place: 0 })
    }

    /// Lets contenders of ours enter, the first of them alone.
    fn entered(line: &Arc<Line<Fake>>, sequences: std::ops::Range<i32>) -> Shared {
        let world = Shared::default();
        for sequence in sequences.clone() {
            let fake = Fake { sequence, node: node(sequence), world: world.clone() };
            let place = line.enter(sequence, sequence == sequences.start, fake);
            world.lock().unwrap().places.insert(sequence, place);
        }
        world
    }

    fn place(world: &Shared, sequence: i32) -> Place<Fake> {
        world.lock().unwrap().places.remove(&sequence).unwrap()
    }

    fn is_ready<T>(future: impl Future<Output = T>) -> Poll<T> {
        std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_lock_goes_from_one_to_the_next() {
        let line = Arc::new(Line::of(None));
        let world = entered(&line, 4..7);
        for sequence in 4..7 {
            assert_eq!(world.lock().unwrap().granted.last(), Some(&sequence));
            assert!(matches!(place(&world, sequence).standing(), Standing::Granted));
            line.leave(sequence, true);
        }
        assert_eq!(world.lock().unwrap().granted, [4, 5, 6]);
    }

    #[test]
    fn a_panic_in_a_grant_does_not_stop_the_line() {
        let line = Arc::new(Line::of(None));
        let world = entered(&line, 4..7);
        world.lock().unwrap().panics = Some(5);
        line.leave(4, true);
        line.leave(5, true);
        assert_eq!(world.lock().unwrap().granted, [4, 5, 6]);
    }

    #[test]
    fn who_leaves_while_it_is_granted_in_vain_is_taken_away_and_blocks_nobody() {
        let line = Arc::new(Line::of(None));
        let world = entered(&line, 4..7);
        world.lock().unwrap().is_invalid = true;
        world.lock().unwrap().leaves = Some(5);
        line.leave(4, true);
        assert_eq!(world.lock().unwrap().taken_away, [5]);
        // The turn has come to the next one, which knows that it must wait for the session.
        let next = place(&world, 6);
        assert!(matches!(next.standing(), Standing::Behind(Before::Unconfirmed)));
        assert!(is_ready(next.changed()).is_ready());
        world.lock().unwrap().is_invalid = false;
        next.is_first();
        assert!(matches!(next.standing(), Standing::Behind(Before::Unconfirmed)), "it has not looked again");
        next.is_unknown();
        next.is_first();
        assert_eq!(world.lock().unwrap().granted, [4, 6]);
    }

    #[test]
    fn who_is_seen_to_be_gone_while_it_is_granted_hears_what_came_of_it() {
        let line = Arc::new(Line::<Fake>::of(None));
        let world = entered(&line, 4..6);
        let second = place(&world, 5);
        // Somebody else is granting it at this moment.
        line.state().order.leave(4, true);
        let (_, taken) = line.state().order.next().unwrap();
        let mut gone = std::pin::pin!(second.is_gone());
        let mut context = Context::from_waker(Waker::noop());
        assert!(gone.as_mut().poll(&mut context).is_pending());
        taken.signal.is_granted();
        assert_eq!(gone.as_mut().poll(&mut context), Poll::Ready(false));
    }

    #[test]
    fn nothing_is_passed_on_by_whose_node_is_gone() {
        let line = Arc::new(Line::of(None));
        let world = entered(&line, 4..8);
        let second = place(&world, 5);
        // A waiter: the one behind it looks for itself, also when the holder is done.
        assert_eq!(is_ready(second.is_gone()), Poll::Ready(true));
        line.leave(4, true);
        let third = place(&world, 6);
        assert!(matches!(third.standing(), Standing::Behind(Before::Unknown)));
        third.is_first();
        // A holder.
        line.leave(6, false);
        let fourth = place(&world, 7);
        assert!(matches!(fourth.standing(), Standing::Behind(Before::Unknown)));
        assert!(is_ready(fourth.changed()).is_ready());
        fourth.is_first();
        assert_eq!(world.lock().unwrap().granted, [4, 6, 7]);
    }

    #[test]
    fn nodes_that_are_gone_do_not_occupy_a_directory() {
        let line = Arc::new(Line::of(None));
        let _world = entered(&line, 4..6);
        assert!(line.is_occupied());
        line.state().held.as_ref().unwrap().is_seen_gone();
        assert!(line.is_occupied());
        line.state().order.waiting().for_each(|waiting| waiting.candidate.node.is_seen_gone());
        assert!(!line.is_occupied());
    }

    /// Its node may be of a directory that was made anew, which nobody has noticed yet.
    #[test]
    fn a_sequence_that_was_there_before_is_not_taken() {
        let line = Arc::new(Line::of(None));
        let _world = entered(&line, 4..8);
        line.leave(4, true);
        for (sequence, is_taken) in
            [(0, false), (4, false), (5, false), (7, false), (8, true), (8, false), (9, true)]
        {
            assert_eq!(line.takes(sequence), is_taken, "{sequence}");
        }
    }
}
