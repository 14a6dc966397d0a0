//! One grant, and what may become of it.

mod state;
#[cfg(test)]
#[cfg(feature = "sqlx")]
mod tests;
mod validity;

use std::{
    fmt,
    future::Future,
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, futures::OwnedNotified};
use tracing::error;
use uuid::Uuid;

use self::state::{Outer, Refusal, Word};
pub(crate) use self::{state::State, validity::Validity};
use crate::{
    clock::Tick,
    error::{Error, LostReason},
    options::LockOptions,
    path::LockPath,
    token::FencingToken,
};

/// One grant of one path, from the moment the backend gives it until its contender is gone.
///
/// The backend, the guard, the reaper and the transaction all look at this one object; whoever comes first takes
/// the step, and each step can be taken once.
pub(crate) struct Hold {
    id: u64,
    path: LockPath,
    fair: bool,
    function: &'static str,
    token: FencingToken,
    attempt: Uuid,
    /// None of a backend without sessions.
    validity: Option<Arc<Validity>>,
    since: Tick,
    deadline: AtomicU64,
    /// Where its overseer finds it: for that one alone to read and write.
    due: AtomicU64,
    state: Word,
    /// The code of the reason for which it is to end as soon as no nested COMMIT is on its way any more; else zero.
    late: AtomicU8,
    /// This hold's own COMMIT was started, and those that it is nested in know of it.
    has_commit: AtomicBool,
    /// Wakes whoever must stop when the hold ends, and whoever waits for the contender to be gone. Made by the first who
    /// waits, and that of the grant itself, whichever entry into it this is: see [`notify`](Self::notify).
    changed: OnceLock<Arc<Notify>>,
    is_waited_for: AtomicBool,
    gone: AtomicBool,
    slot: Mutex<Slot>,
    parent: Option<Arc<Hold>>,
}

/// What a backend says of a grant; one without sessions has no validity.
pub(crate) struct Grant<V = Arc<Validity>> {
    pub(crate) path: LockPath,
    pub(crate) options: LockOptions,
    pub(crate) token: FencingToken,
    /// Names this grant in the fence row and in logs.
    pub(crate) attempt: Uuid,
    pub(crate) validity: V,
}

/// What stands in the queue for a hold.
pub(crate) trait Contender: Send + fmt::Debug {
    /// Starts to take the contender away, and sees it through without the caller. `done` is dropped when it is gone,
    /// or can block nobody any more.
    fn release(self: Box<Self>, done: Done);
}

/// A backend in which nothing stands in the queue but the hold itself, with one overseer for all.
pub(crate) trait Register: Send + Sync {
    fn overseer(&self) -> Option<&Arc<dyn Overseer>>;
    /// Takes the hold out: it is gone when this returns.
    fn take_out(self: Arc<Self>, hold: &Hold);
}

/// How a hold stands in the queue.
enum Place {
    Contender(Box<dyn Contender>),
    Registered(Arc<dyn Register>),
}

/// The transaction that runs under a hold, to be ended by somebody who does not own its connection.
pub(crate) trait Stop: Send + Sync {
    /// Starts at once to end the transaction from outside; resolves when its end is confirmed. Safe to call more
    /// than once and after the transaction has ended by itself.
    fn stop(&self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
}

/// Sees to it that what ended is let go within the grace time.
pub(crate) trait Overseer: Send + Sync + fmt::Debug {
    /// The hold was granted, and is on its way to a caller that may be long in taking it, or be gone. It is not kept
    /// from being dropped, which gives it back.
    fn granted(&self, hold: &Arc<Hold>);
    /// The hold ended, or was released with its transaction still open: it must be let go within the grace time.
    fn ending(&self, hold: &Arc<Hold>);
    /// The deadline was moved.
    fn moved(&self, hold: &Arc<Hold>);
    /// The contender is being taken away, nothing is left to watch.
    fn let_go(&self, hold: &Hold);
}

struct Slot {
    /// None of a nested hold, and of one that has been told to go.
    place: Option<Place>,
    /// None before it is known, where the place knows it, and when nothing is left to watch.
    overseer: Option<Arc<dyn Overseer>>,
    /// Made when there is some: most holds have none.
    work: Option<Box<Work>>,
}

/// What goes on in transactions under a hold.
#[derive(Default)]
struct Work {
    /// Those of this hold and of the holds nested in it: the lock outlasts each of them.
    transactions: Vec<(u64, Arc<dyn Stop>)>,
    /// Holds whose work is a part of one of those transactions, and which it therefore keeps too.
    joined: Vec<(u64, Arc<Hold>)>,
    release_wanted: bool,
}

impl Hold {
    /// A hold whose contender is `contender`.
    #[cfg_attr(
        not(any(feature = "zookeeper", all(test, feature = "sqlx"))),
        expect(dead_code, reason = "memory has read the clock already")
    )]
    pub(crate) fn new(grant: Grant, contender: Box<dyn Contender>) -> Arc<Self> {
        let Grant { path, options, token, attempt, validity } = grant;
        let grant = Grant { path, options, token, attempt, validity: Some(validity) };
        Arc::new(Self::granted(Tick::now(), grant, Place::Contender(contender)))
    }

    /// A hold of a backend without sessions, which has just looked at the clock.
    pub(crate) fn registered(
        now: Tick,
        grant: Grant<Option<Arc<Validity>>>,
        register: Arc<dyn Register>,
    ) -> Arc<Self> {
        Arc::new(Self::granted(now, grant, Place::Registered(register)))
    }

    fn granted(now: Tick, grant: Grant<Option<Arc<Validity>>>, place: Place) -> Self {
        let deadline = grant.options.timeout.map_or(Tick::NEVER, |timeout| now + timeout);
        let slot = Slot { place: Some(place), overseer: None, work: None };
        Self::build(grant, now, deadline, slot, None)
    }

    /// The same grant entered again by the task that has it: no contender of its own, and never longer than the
    /// outer one.
    pub(crate) fn nested(outer: &Arc<Self>, options: LockOptions) -> Arc<Self> {
        let now = Tick::now();
        let own = options.timeout.map_or(Tick::NEVER, |timeout| now + timeout);
        let grant = Grant {
            path: outer.path.clone(),
            options,
            token: outer.token,
            attempt: outer.attempt,
            validity: outer.validity.clone(),
        };
        let slot = Slot { place: None, overseer: outer.overseer(), work: None };
        Arc::new(Self::build(grant, now, own.min(outer.deadline()), slot, Some(outer.clone())))
    }

    fn build(
        grant: Grant<Option<Arc<Validity>>>,
        since: Tick,
        deadline: Tick,
        slot: Slot,
        parent: Option<Arc<Self>>,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let Grant { path, options, token, attempt, validity } = grant;
        Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            path,
            fair: options.fair,
            function: options.function,
            token,
            attempt,
            validity,
            since,
            deadline: AtomicU64::new(deadline.as_nanos()),
            due: AtomicU64::new(NOWHERE.as_nanos()),
            state: Word::held(),
            late: AtomicU8::new(0),
            has_commit: AtomicBool::new(false),
            changed: OnceLock::new(),
            is_waited_for: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            slot: Mutex::new(slot),
            parent,
        }
    }

    pub(crate) fn oversee(&self, overseer: Arc<dyn Overseer>) {
        // A hold has one overseer: a second one would be told of what the first already sees to.
        self.slot().overseer.get_or_insert(overseer);
    }

    /// Whether somebody is told of its end.
    pub(crate) fn is_overseen(&self) -> bool {
        self.slot().overseer().is_some()
    }

    /// Not to be told anything with the slot locked: it may look into it.
    fn overseer(&self) -> Option<Arc<dyn Overseer>> {
        self.slot().overseer().cloned()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The id of the grant itself, whichever entry into it this is.
    pub(crate) fn root_id(&self) -> u64 {
        self.root().id
    }

    fn root(&self) -> &Self {
        let mut root = self;
        while let Some(parent) = &root.parent {
            root = parent;
        }
        root
    }

    /// Where its overseer has it in its queue.
    pub(crate) fn due(&self) -> Option<Tick> {
        let due = Tick::from_nanos(self.due.load(Ordering::Relaxed));
        (due != NOWHERE).then_some(due)
    }

    pub(crate) fn set_due(&self, due: Option<Tick>) {
        self.due.store(due.unwrap_or(NOWHERE).as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn path(&self) -> &LockPath {
        &self.path
    }

    /// What its fence row is keyed by: the path as all processes on all chroots would write it. Not kept, since most holds
    /// have no transaction.
    #[cfg(any(feature = "sqlx", test))]
    pub(crate) fn fence_key(&self) -> String {
        let chroot = self.validity.as_ref().map_or("", |validity| validity.chroot());
        format!("{chroot}{}", self.path)
    }

    pub(crate) fn function(&self) -> &'static str {
        self.function
    }

    pub(crate) fn is_fair(&self) -> bool {
        self.fair
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    pub(crate) fn attempt(&self) -> Uuid {
        self.attempt
    }

    pub(crate) fn since(&self) -> Tick {
        self.since
    }

    pub(crate) fn held_for(&self) -> Duration {
        self.since.elapsed()
    }

    pub(crate) fn deadline(&self) -> Tick {
        Tick::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(crate) fn is_nested(&self) -> bool {
        self.parent.is_some()
    }

    pub(crate) fn state(&self) -> State {
        self.state.state()
    }

    /// Whether the lock is ours by all that can be known here and now: the state, the session, the deadline.
    pub(crate) fn is_held(&self) -> bool {
        self.verdict().is_ok()
    }

    /// `Ok` while held, else why not. A clock that has passed counts although nobody has acted on it yet, and is
    /// then acted on here.
    pub(crate) fn check(self: &Arc<Self>) -> Result<(), LostReason> {
        self.verdict().inspect_err(|&reason| {
            self.end(reason);
        })
    }

    fn verdict(&self) -> Result<(), LostReason> {
        if self.state() == State::Released {
            return Err(LostReason::Released);
        }
        self.over_by_itself().map_or(Ok(()), Err)?;
        self.parent.as_ref().map_or(Ok(()), |parent| parent.verdict())
    }

    /// Why the lock is not ours any more, if so, for a COMMIT that was begun: that its caller is gone, and the guard with
    /// it, does not take the lock away while it is on its way.
    pub(crate) fn lapsed(&self) -> Option<LostReason> {
        self.over_by_itself().or_else(|| self.parent.as_ref().and_then(|parent| parent.lapsed()))
    }

    fn over_by_itself(&self) -> Option<LostReason> {
        if let State::Ended(reason) = self.state() {
            return Some(reason);
        }
        let now = Tick::now();
        let late = || (now >= self.deadline()).then_some(LostReason::Overrun);
        self.validity.as_ref().and_then(|validity| validity.verdict(now)).or_else(late)
    }

    /// The holds that a COMMIT of this one's own transaction needs: it, and those that have joined it.
    pub(crate) fn under_commit(self: &Arc<Self>) -> Vec<Arc<Self>> {
        let slot = self.slot();
        let joined = slot.work.iter().flat_map(|work| &work.joined).map(|(_, hold)| hold);
        std::iter::once(self).chain(joined).cloned().collect()
    }

    /// Held, and the server reachable: a COMMIT may start.
    pub(crate) fn may_commit(self: &Arc<Self>) -> Result<(), LostReason> {
        self.check()?;
        self.is_reachable()
    }

    fn is_reachable(&self) -> Result<(), LostReason> {
        let is_reachable = self.validity.as_ref().is_none_or(|validity| validity.is_connected());
        if is_reachable { Ok(()) } else { Err(LostReason::Unconfirmed) }
    }

    /// `Held -> Committing`: from here on only the answer of the database decides, for this hold and for those that it
    /// is nested in.
    pub(crate) fn start_commit(self: &Arc<Self>) -> Result<(), LostReason> {
        self.may_commit()?;
        self.enter_commit(Outer::Held)
    }

    /// The same of a hold that has joined the transaction: one that it is nested in may have been released since, and
    /// is kept for that transaction.
    pub(crate) fn start_joined_commit(self: &Arc<Self>) -> Result<(), LostReason> {
        self.lapsed().map_or(Ok(()), Err)?;
        self.is_reachable()?;
        self.enter_commit(Outer::Kept)
    }

    fn enter_commit(self: &Arc<Self>, of_outer: Outer) -> Result<(), LostReason> {
        let taken = |state| match state {
            State::Ended(reason) => reason,
            State::Held | State::Committing | State::Released => LostReason::Released,
        };
        let mut entered: Vec<&Arc<Self>> = Vec::new();
        for outer in self.outer() {
            if let Err(state) = outer.state.enter_commit(of_outer) {
                entered.into_iter().for_each(Self::leave_commit);
                return Err(taken(state));
            }
            entered.push(outer);
        }
        if let Err(state) = self.state.step(State::Held, State::Committing) {
            entered.into_iter().for_each(Self::leave_commit);
            return Err(taken(state));
        }
        self.has_commit.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// The COMMIT that was started has its answer, or will never have one.
    fn commit_is_over(&self) {
        if self.has_commit.swap(false, Ordering::SeqCst) {
            self.outer().for_each(Self::leave_commit);
        }
    }

    /// A nested COMMIT is over: what was to happen meanwhile happens now.
    fn leave_commit(self: &Arc<Self>) {
        self.state.leave_commit();
        let late = self.late.load(Ordering::SeqCst);
        if let (false, State::Ended(reason)) = (late == 0, State::from_code(late)) {
            self.end(reason);
        } else {
            // The deadline, by the clock. The verdict is acted on, and not needed here.
            let _ = self.check();
        }
    }

    /// The holds that this one is nested in, the next one first.
    fn outer(&self) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::successors(self.parent.as_ref(), |hold| hold.parent.as_ref())
    }

    /// `Held -> Ended`, by whoever comes first. False when it was not there to be taken: already ended, released,
    /// or committing. One in which a nested COMMIT is on its way ends right after that.
    pub(crate) fn end(self: &Arc<Self>, reason: LostReason) -> bool {
        while let Err(refusal) = self.state.end(reason) {
            if refusal != Refusal::Committing {
                return false;
            }
            self.late.store(State::Ended(reason).code(), Ordering::SeqCst);
            // Looked at after it is noted: else the last COMMIT could be over in between, and nobody would act.
            if self.state.is_committing_inside() {
                return false;
            }
        }
        self.has_ended();
        true
    }

    /// `Held -> Ended(Overrun)`, unless the deadline was moved or the hold taken meanwhile.
    pub(crate) fn overrun(self: &Arc<Self>) -> bool {
        let slot = self.slot();
        if Tick::now() < self.deadline() || self.state.end(LostReason::Overrun).is_err() {
            return false;
        }
        drop(slot);
        self.has_ended();
        true
    }

    fn has_ended(self: &Arc<Self>) {
        self.notify();
        if let Some(overseer) = self.overseer() {
            overseer.ending(self);
        }
    }

    /// Moves the deadline to `after` from now, or takes it away. Refused when the hold is over, when a transaction
    /// runs (its own limits are set in the database already), and past the outer deadline of a nested hold.
    pub(crate) fn extend(self: &Arc<Self>, after: Duration) -> Result<(), Error> {
        self.check().map_err(|reason| self.error(reason))?;
        if self.slot().has_transactions() {
            return Err(Error::Config {
                reason: format!(
                    "the hold limit of lock \"{}\" cannot be moved inside a transaction, whose own limits are set \
                     already; give the annotation a longer `timeout`",
                    self.path()
                ),
            });
        }
        let outer = self.parent.as_ref().map_or(Tick::NEVER, |parent| parent.deadline());
        {
            // With the slot locked, as `overrun` has it: a limit is either moved or has passed.
            let _slot = self.slot();
            self.verdict().map_err(|reason| self.error(reason))?;
            self.deadline.store((Tick::now() + after).min(outer).as_nanos(), Ordering::Release);
        }
        if let Some(overseer) = self.overseer() {
            overseer.moved(self);
        }
        Ok(())
    }

    /// Notes a transaction that runs under this hold: the lock is kept until the returned value is dropped, or
    /// until the grace time is over. The holds that this one is nested in keep theirs too.
    pub(crate) fn attach(self: &Arc<Self>, transaction: &Arc<dyn Stop>) -> Attached {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        for hold in std::iter::once(self).chain(self.outer()) {
            hold.slot().work().transactions.push((id, transaction.clone()));
        }
        Attached { hold: self.clone(), id }
    }

    /// The work under `inner` has become a part of this hold's own transaction: its lock is kept until that has ended,
    /// whoever releases it.
    pub(crate) fn keep(&self, inner: &Arc<Self>) {
        // Its own is the first: what is nested in it began later.
        let Some((id, stop)) = self.slot().transactions().first().cloned() else { return };
        for hold in std::iter::once(inner).chain(inner.outer()) {
            let mut slot = hold.slot();
            if slot.transactions().iter().any(|(each, _)| *each == id) {
                // It is nested in us, or in what we are nested in.
                continue;
            }
            slot.work().transactions.push((id, stop.clone()));
            drop(slot);
            self.slot().work().joined.push((id, hold.clone()));
        }
    }

    /// What ends the transactions that run under this hold, if there are any.
    pub(crate) fn transaction(&self) -> Option<Arc<dyn Stop>> {
        let slot = self.slot();
        match slot.transactions() {
            [] => None,
            [(_, one)] => Some(one.clone()),
            several => Some(Arc::new(StopAll(several.iter().map(|(_, stop)| stop.clone()).collect()))),
        }
    }

    /// Gives the lock back, once its transaction (if any) has ended. Safe to call more than once.
    pub(crate) fn release(self: &Arc<Self>) {
        for from in [State::Held, State::Committing] {
            if self.state.step(from, State::Released).is_ok() {
                self.notify();
            }
        }
        let (going, waits) = {
            let mut slot = self.slot();
            match &mut slot.work {
                Some(work) if !work.transactions.is_empty() => {
                    work.release_wanted = true;
                    (None, slot.overseer().cloned())
                }
                _ => (Some(slot.go()), None),
            }
        };
        if let Some(overseer) = waits {
            overseer.ending(self);
        }
        if let Some(going) = going {
            self.let_go(going);
        }
    }

    /// Gives the lock back whatever its transaction does: it is fenced off.
    pub(crate) fn force_release(self: &Arc<Self>) {
        let going = self.slot().go();
        self.let_go(going);
    }

    fn detach(self: &Arc<Self>, id: u64) {
        let (joined, going) = {
            let mut slot = self.slot();
            let Some(work) = &mut slot.work else { return };
            let joined = work.detach(id);
            let is_over = work.release_wanted && work.transactions.is_empty();
            (joined, is_over.then(|| slot.go()))
        };
        for (_, hold) in &joined {
            hold.commit_is_over();
            hold.detach(id);
        }
        if let Some(going) = going {
            self.let_go(going);
        }
    }

    fn let_go(self: &Arc<Self>, going: Slot) {
        if let Some(overseer) = going.overseer() {
            overseer.let_go(self);
        }
        match going.place {
            Some(Place::Contender(contender)) => contender.release(Done(Some(self.clone()))),
            Some(Place::Registered(register)) => {
                let _gone = Gone(self);
                register.take_out(self);
            }
            None if self.is_nested() => self.mark_gone(),
            None => {}
        }
    }

    fn mark_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
        self.notify();
    }

    /// Wakes those who wait, after a change. One notifier serves a grant and all that enters it again: whoever waits for an
    /// end of one waits for them all.
    fn notify(&self) {
        let root = self.root();
        // In one order with the change itself, as `changed` is with the look at it: either that one sees the change, or
        // this one its notifier.
        if root.is_waited_for.load(Ordering::SeqCst)
            && let Some(changed) = root.changed.get()
        {
            // Wakers are the code of others: one that panics must not stop whoever ends or passes on what they wait for.
            if panic::catch_unwind(AssertUnwindSafe(|| changed.notify_waiters())).is_err() {
                error!(target: "zklock", path = %self.path, "a waker panicked");
            }
        }
    }

    /// What wakes those who wait. To be asked for, and registered with, before the state is looked at.
    fn changed(&self) -> &Arc<Notify> {
        let root = self.root();
        let changed = root.changed.get_or_init(Arc::default);
        root.is_waited_for.store(true, Ordering::SeqCst);
        changed
    }

    /// Whether the contender has been told to go, so that nothing is left to watch.
    pub(crate) fn is_let_go(&self) -> bool {
        self.is_gone() || (!self.is_nested() && self.slot().place.is_none())
    }

    /// Whether the contender is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Resolves when the contender is gone. Cancel-safe.
    pub(crate) async fn gone(&self) {
        while !self.is_gone() {
            let changed = self.changed().notified();
            tokio::pin!(changed);
            // Registered before the look, else a change in between would be missed.
            changed.as_mut().enable();
            if self.is_gone() {
                return;
            }
            changed.await;
        }
    }

    /// Resolves with the reason when the hold is over, the clocks included only as far as somebody acts on them.
    /// Cancel-safe.
    pub(crate) async fn ended(&self) -> LostReason {
        loop {
            let changed = self.changed().notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(reason) = self.noted_end() {
                return reason;
            }
            changed.await;
        }
    }

    /// Why the hold, or one that it is nested in, is over, if somebody has acted on it: the clocks are not looked at.
    pub(crate) fn noted_end(&self) -> Option<LostReason> {
        self.over().or_else(|| self.outer().find_map(|outer| outer.over()))
    }

    fn over(&self) -> Option<LostReason> {
        match self.state() {
            State::Held | State::Committing => None,
            State::Released => Some(LostReason::Released),
            State::Ended(reason) => Some(reason),
        }
    }

    /// The next change of state, to be registered before the state is looked at.
    pub(crate) fn change(&self) -> OwnedNotified {
        self.changed().clone().notified_owned()
    }

    /// What a caller is told when the hold ended for `reason`.
    pub(crate) fn error(&self, reason: LostReason) -> Error {
        match reason {
            LostReason::Overrun => {
                Error::Overrun { path: self.path().clone(), held: self.held_for(), rolled_back: false }
            }
            reason => Error::Lost { path: self.path().clone(), reason, rolled_back: false },
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In no queue.
const NOWHERE: Tick = Tick::from_nanos(0);

/// A grant that nobody took, because its caller was gone when it came, is given back.
impl Drop for Hold {
    fn drop(&mut self) {
        let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
        let going = slot.go();
        if going.place.is_some()
            && let Some(overseer) = going.overseer()
        {
            overseer.let_go(self);
        }
        match going.place {
            Some(Place::Contender(contender)) => contender.release(Done(None)),
            Some(Place::Registered(register)) => register.take_out(self),
            None => {}
        }
    }
}

impl Place {
    fn overseer(&self) -> Option<&Arc<dyn Overseer>> {
        match self {
            Self::Contender(_) => None,
            Self::Registered(register) => register.overseer(),
        }
    }
}

impl Slot {
    /// What is left to be told of the end.
    fn go(&mut self) -> Self {
        Self { place: self.place.take(), overseer: self.overseer.take(), work: None }
    }

    fn overseer(&self) -> Option<&Arc<dyn Overseer>> {
        self.overseer.as_ref().or_else(|| self.place.as_ref()?.overseer())
    }

    fn work(&mut self) -> &mut Work {
        self.work.get_or_insert_default()
    }

    fn transactions(&self) -> &[(u64, Arc<dyn Stop>)] {
        self.work.as_ref().map_or(&[], |work| &work.transactions)
    }

    fn has_transactions(&self) -> bool {
        !self.transactions().is_empty()
    }
}

impl Work {
    /// Forgets a transaction, and gives those that had joined it.
    fn detach(&mut self, id: u64) -> Vec<(u64, Arc<Hold>)> {
        self.transactions.retain(|(each, _)| *each != id);
        let (joined, others) = self.joined.drain(..).partition(|(each, _)| *each == id);
        self.joined = others;
        joined
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("path", &self.path)
            .field("token", &self.token)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Dropped when a contender is gone.
#[derive(Debug)]
pub(crate) struct Done(Option<Arc<Hold>>);

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(hold) = &self.0 {
            hold.mark_gone();
        }
    }
}

/// The same without a share in the hold, where its end is waited for: on whatever way, since wakers are the code of others.
struct Gone<'a>(&'a Hold);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.mark_gone();
    }
}

/// Keeps the lock while a transaction runs; dropped when its end is certain.
pub(crate) struct Attached {
    hold: Arc<Hold>,
    id: u64,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.hold.commit_is_over();
        for hold in std::iter::once(&self.hold).chain(self.hold.outer()) {
            hold.detach(self.id);
        }
    }
}

/// Several transactions, ended side by side.
struct StopAll(Vec<Arc<dyn Stop>>);

impl Stop for StopAll {
    fn stop(&self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        // Each starts here, before any is waited for.
        let stops: Vec<_> = self.0.iter().map(|each| each.stop()).collect();
        Box::pin(async move {
            let mut outcome = Ok(());
            for stop in stops {
                outcome = outcome.and(stop.await);
            }
            outcome
        })
    }
}
