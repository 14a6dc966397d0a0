use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    bell::Bell,
    contender::OwnNode,
    outlet::{Claim, unless_it_panics},
    session::Node,
};
use crate::{clock::Tick, hold::Done};

/// The tasks of this session that want the plain node of one path, in the order in which they came.
///
/// One of them at a time, the first, asks the server for the node: a herd of one a process. Whoever is first when the
/// node comes gets it, and when that one is done the next one gets the same node, here and now, on the thread of whoever
/// gave it back; only the hand-over count of the token rises. Nobody else can have held it in between, because the
/// node stood all the time: that is what `Session::grant` asks for, under the lock under which holds are revoked.
///
/// Processes take turns: see [`Share`].
pub(super) struct LocalQueue {
    path: Arc<str>,
    queues: Arc<LocalQueues>,
    state: Mutex<State>,
    /// No delete of ours is on its way any more.
    settled: Notify,
}

#[derive(Default)]
struct State {
    /// By their tickets: who tries once is before all others when its node has come.
    waiting: BTreeMap<i64, Waiter>,
    /// To be granted or to be taken away, with whoever waits for its last holder to be gone.
    node: Option<(OwnNode, Option<Done>)>,
    /// The node that one of ours holds.
    held: Option<Arc<Node>>,
    /// The first one's create has not been answered. It outlives the one who asked.
    is_asking: bool,
    /// How many nodes of ours are being deleted.
    going: usize,
    share: Share,
    /// Somebody is granting; whoever brings a node meanwhile leaves it to that one.
    is_advancing: bool,
}

/// How much of the lock this process had since others last had their chance.
///
/// A node that is passed on, or deleted and made again in one request, is never free for anybody else. So this is
/// counted over nodes, and when it is used up the node is deleted and the next create waits until whoever watches the node
/// has heard of that and asked (`plain::give_way`).
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    since: Option<Tick>,
    grants: u32,
}

/// Where a share ends: in time, for what others wait, and in count, for how often they are overtaken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) longest: Duration,
    pub(crate) most: u32,
}

/// Giving way takes three round trips, about a millisecond with a server close by. 20 ms keep that to a twentieth, and
/// are short beside what people who wait for a lock notice. The count matters for holds that do next to nothing: at
/// 10 µs each, 1024 of them are half of that time.
impl Default for Limit {
    fn default() -> Self {
        Self { longest: Duration::from_millis(20), most: 1024 }
    }
}

impl Share {
    fn is_used_up(&self, limit: Limit, now: Tick) -> bool {
        self.grants >= limit.most || self.since.is_some_and(|since| now.since(since) >= limit.longest)
    }

    fn count(&mut self, now: Tick) {
        self.since.get_or_insert(now);
        self.grants += 1;
    }
}

struct Waiter {
    claim: Claim,
    signal: Arc<Signal>,
}

/// Tells a waiter of what happens.
#[derive(Default)]
struct Signal {
    bell: Arc<Bell>,
    is_granted: AtomicBool,
    /// Set with the state locked: what is put back into the queue must not stand there with nobody behind it.
    is_withdrawn: AtomicBool,
}

impl LocalQueue {
    /// Stands at the end of the queue.
    pub(super) fn enter(self: &Arc<Self>, claim: Claim) -> Place {
        let place = self.place(|ticket| ticket);
        self.state().waiting.insert(place.ticket, place.waiter(claim));
        place
    }

    /// The same, by a call that may ask the server at once.
    pub(super) fn arrive(self: &Arc<Self>, claim: Claim) -> (Place, Arrived) {
        let place = self.place(|ticket| ticket);
        let mut state = self.state();
        let is_first = state.waiting.is_empty() && state.is_open();
        let gives_way = is_first && state.share.is_used_up(self.queues.limit, Tick::now());
        state.waiting.insert(place.ticket, place.waiter(claim));
        state.is_asking |= is_first && !gives_way;
        drop(state);
        let arrived = match (is_first, gives_way) {
            (false, _) => Arrived::Behind,
            (true, true) => Arrived::Late,
            (true, false) => Arrived::First(Asking(self.clone())),
        };
        (place, arrived)
    }

    /// For somebody who does not wait for the others, and stands nowhere until a node of its own has come.
    pub(super) fn pass_by(self: &Arc<Self>) -> Place {
        self.place(|ticket| -ticket)
    }

    fn place(self: &Arc<Self>, ticket: impl FnOnce(i64) -> i64) -> Place {
        static TICKETS: AtomicI64 = AtomicI64::new(1);
        let ticket = ticket(TICKETS.fetch_add(1, Ordering::Relaxed));
        Place { queue: self.clone(), ticket, signal: Arc::default() }
    }

    /// The server has made `own`, for `first` or else for whoever is first.
    pub(super) fn receive(self: &Arc<Self>, own: OwnNode, first: Option<Newcomer>) {
        let session = own.session().clone();
        let (left, held) = {
            let mut state = self.state();
            if let Some(Newcomer { ticket, waiter }) = first {
                state.enter(ticket, waiter);
            }
            (state.node.replace((own, None)), state.held.take())
        };
        // There is one node of that name: what we believed to have was deleted by somebody else.
        let replaced = left.as_ref().map(|(left, _)| left.node()).into_iter().chain(&held);
        replaced.for_each(|node| session.is_gone(node));
        drop(left);
        self.advance();
    }

    /// A holder of ours is done with the node: `own` is the same node for the next one.
    pub(super) fn leave(self: &Arc<Self>, own: OwnNode, done: Option<Done>) {
        {
            let mut state = self.state();
            if state.held.as_ref().is_some_and(|held| Arc::ptr_eq(held, own.node())) {
                state.held = None;
                state.node = Some((own, done));
            } else {
                // Replaced already.
                drop(state);
                own.give_up(None, done);
                return;
            }
        }
        self.advance();
    }

    /// Grants the node to whoever is first, or lets it go. Iterative: a caller that is gone gives its grant back in here.
    fn advance(self: &Arc<Self>) {
        let mut state = self.state();
        if state.is_advancing {
            return;
        }
        state.is_advancing = true;
        while let Some((own, done)) = state.node.take() {
            let Some((ticket, Waiter { claim, signal })) = state.next(&own, self.queues.limit) else {
                state = self.let_go(state, own, done);
                continue;
            };
            state.held = Some(own.node().clone());
            state.share.count(Tick::now());
            drop(state);
            let granted = unless_it_panics(|| claim.grant(own));
            // The last holder's node can block nobody any more, except for who has it now.
            drop(done);
            if granted.is_ok() {
                signal.grant();
            }
            state = self.state();
            match granted {
                Ok(()) => {}
                Err((claim, own)) => {
                    // The session cannot be relied on just now, or the node is gone: it is first in line for the next one.
                    state.held = None;
                    state.enter(ticket, Waiter { claim, signal });
                    state = self.let_go(state, own, None);
                }
            }
        }
        state.is_advancing = false;
        state.wake_first();
    }

    /// Has a node deleted.
    fn let_go<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        own: OwnNode,
        done: Option<Done>,
    ) -> MutexGuard<'a, State> {
        state.going += 1;
        drop(state);
        own.give_up(Some(Going(self.clone())), done);
        self.state()
    }

    /// Resolves when no delete of ours is on its way. Cancel-safe.
    pub(super) async fn settled(&self) {
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            // Registered before the look, else an end in between would be missed.
            settled.as_mut().enable();
            if self.state().going == 0 {
                return;
            }
            settled.await;
        }
    }

    /// Others have, or had, their chance.
    pub(super) fn has_given_way(&self) {
        let mut state = self.state();
        if state.held.is_none() && state.node.is_none() {
            state.share = Share::default();
        }
    }

    /// The first one asks the server now.
    pub(super) fn ask(self: &Arc<Self>) -> Asking {
        self.state().is_asking = true;
        Asking(self.clone())
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Puts a waiter into the queue, unless it has withdrawn meanwhile.
    fn enter(&mut self, ticket: i64, waiter: Waiter) {
        if !waiter.signal.is_withdrawn.load(Ordering::Acquire) {
            self.waiting.insert(ticket, waiter);
        }
    }

    /// Takes out who is to have the node.
    fn next(&mut self, own: &OwnNode, limit: Limit) -> Option<(i64, Waiter)> {
        if own.node().is_gone() {
            return None;
        }
        // What has just come is for us once, however long that took.
        if own.handover() > 0 && self.share.is_used_up(limit, Tick::now()) {
            return None;
        }
        let first = self.waiting.pop_first();
        if self.waiting.is_empty() {
            // An empty map keeps room for eleven, which would be most of what a lock weighs that is held.
            self.waiting = BTreeMap::new();
        }
        first
    }

    /// Whether the first one is to ask the server.
    fn is_open(&self) -> bool {
        self.held.is_none() && self.node.is_none() && !self.is_asking
    }

    /// Whether only the server keeps the first one waiting.
    fn is_asked_for_first(&self) -> bool {
        self.held.is_none() && self.node.is_none() && self.is_asking
    }

    fn wake_first(&self) {
        if self.is_open()
            && let Some((_, waiter)) = self.waiting.first_key_value()
        {
            waiter.signal.bell.ring();
        }
    }
}

impl Signal {
    fn grant(&self) {
        self.is_granted.store(true, Ordering::Release);
        self.bell.is_over();
    }
}

/// How a call found the queue.
pub(super) enum Arrived {
    /// Nobody was there: it asks the server for the node.
    First(Asking),
    /// Nobody was there, and other processes come first.
    Late,
    Behind,
}

/// A create that is not answered yet.
pub(super) struct Asking(Arc<LocalQueue>);

impl Drop for Asking {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_asking = false;
        state.wake_first();
    }
}

/// A delete that is not answered yet.
pub(super) struct Going(Arc<LocalQueue>);

impl Drop for Going {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.going -= 1;
        if state.going == 0 {
            self.0.settled.notify_waiters();
        }
    }
}

impl fmt::Debug for Going {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Going")
    }
}

/// A place in the queue; dropping it withdraws, if it has not been granted.
pub(super) struct Place {
    queue: Arc<LocalQueue>,
    ticket: i64,
    signal: Arc<Signal>,
}

/// Somebody to be put first, with the node that has come for it.
pub(super) struct Newcomer {
    ticket: i64,
    waiter: Waiter,
}

/// How a wait went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Granted,
    /// For others of this process.
    Waits,
    /// For the answer to a create, whose node it will have.
    HasAsked,
    /// Asks the server for the node. `gives_way`: others first.
    Asks {
        gives_way: bool,
    },
}

impl Place {
    /// `passes_by`: it stands nowhere yet, and does not wait.
    pub(super) fn standing(&self, passes_by: bool) -> Standing {
        if self.signal.is_granted.load(Ordering::Acquire) {
            return Standing::Granted;
        }
        let state = self.queue.state();
        let is_first = state.waiting.first_key_value().is_some_and(|(first, _)| *first == self.ticket);
        if passes_by || (is_first && state.is_open()) {
            let gives_way = state.is_open() && state.share.is_used_up(self.queue.queues.limit, Tick::now());
            Standing::Asks { gives_way }
        } else if is_first && state.is_asked_for_first() {
            Standing::HasAsked
        } else {
            Standing::Waits
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

    pub(super) fn newcomer(&self, claim: Claim) -> Newcomer {
        Newcomer { ticket: self.ticket, waiter: self.waiter(claim) }
    }

    fn waiter(&self, claim: Claim) -> Waiter {
        Waiter { claim, signal: self.signal.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.signal.is_granted.load(Ordering::Acquire) {
            return;
        }
        let withdrawn = {
            let mut state = self.queue.state();
            self.signal.is_withdrawn.store(true, Ordering::Release);
            let withdrawn = state.waiting.remove(&self.ticket);
            if withdrawn.is_some() {
                state.wake_first();
            }
            withdrawn
        };
        drop(withdrawn);
    }
}

/// The queues of a session, each for as long as somebody has to do with it.
pub(super) struct LocalQueues {
    limit: Limit,
    all: Mutex<HashMap<Arc<str>, Weak<LocalQueue>>>,
}

impl LocalQueues {
    pub(super) fn new(limit: Limit) -> Arc<Self> {
        Arc::new(Self { limit, all: Mutex::default() })
    }

    pub(super) fn queue(self: &Arc<Self>, path: &Arc<str>) -> Arc<LocalQueue> {
        let mut all = self.lock();
        if let Some(queue) = all.get(path).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = Arc::new(LocalQueue {
            path: path.clone(),
            queues: self.clone(),
            state: Mutex::default(),
            settled: Notify::new(),
        });
        all.insert(path.clone(), Arc::downgrade(&queue));
        queue
    }

    /// Has all who wait look again.
    pub(super) fn stir(&self) {
        let all: Vec<_> = self.lock().values().filter_map(Weak::upgrade).collect();
        for queue in all {
            queue.state().waiting.values().for_each(|waiter| waiter.signal.bell.ring());
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<LocalQueue>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LocalQueue {
    fn drop(&mut self) {
        let mut all = self.queues.lock();
        // By now another one may stand in its place.
        if all.get(&self.path).is_some_and(|queue| queue.strong_count() == 0) {
            all.remove(&self.path);
        }
    }
}

impl fmt::Debug for LocalQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("LocalQueue")
            .field("path", &self.path)
            .field("waiting", &state.waiting.len())
            .field("is_held", &state.held.is_some())
            .field("share", &state.share)
            .finish_non_exhaustive()
    }
}
