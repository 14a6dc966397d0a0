use std::{
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify};

use crate::{
    clock::Tick,
    error::LostReason,
    hold::{Hold, Overseer, State},
};

/// Ends holds at their deadlines, and sees to it that what ended is let go.
///
/// One task serves all holds of a `Locks`, from a queue ordered by time: a hold costs one entry, no timer and, as
/// long as deadlines come later than the earliest one, no wake-up.
#[derive(Debug)]
pub(crate) struct Reaper {
    table: Mutex<Table>,
    /// The earliest entry came forward.
    earlier: Notify,
    /// The table became empty after it was closed.
    empty: Notify,
    grace: Duration,
    engine: Handle,
}

#[derive(Debug, Default)]
struct Table {
    /// By when they are due, which each hold keeps for us, and its id.
    queue: BTreeMap<(Tick, u64), Entry>,
    /// When the task will look again by itself.
    wake_at: Option<Tick>,
    is_closed: bool,
}

/// A hold, and what the entry is due for.
#[derive(Clone, Debug)]
enum Entry {
    /// Nobody has it yet; dropped, it is given back. Due at the deadline.
    OnItsWay(Weak<Hold>),
    /// Held: due at the deadline.
    Deadline(Arc<Hold>),
    /// Ended, or committing past its deadline: due when the grace time is over.
    Grace(Arc<Hold>),
    /// Its transaction is being stopped from outside.
    Stopping(Arc<Hold>),
}

/// What has come to the end of a phase.
struct Due {
    hold: Arc<Hold>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Deadline,
    Grace,
    Stopping,
}

impl Entry {
    fn of(phase: Phase, hold: &Arc<Hold>) -> Self {
        let hold = hold.clone();
        match phase {
            Phase::Deadline => Self::Deadline(hold),
            Phase::Grace => Self::Grace(hold),
            Phase::Stopping => Self::Stopping(hold),
        }
    }

    fn hold(&self) -> Option<Arc<Hold>> {
        match self {
            Self::OnItsWay(hold) => hold.upgrade(),
            Self::Deadline(hold) | Self::Grace(hold) | Self::Stopping(hold) => Some(hold.clone()),
        }
    }

    fn phase(&self) -> Phase {
        match self {
            Self::OnItsWay(_) | Self::Deadline(_) => Phase::Deadline,
            Self::Grace(_) => Phase::Grace,
            Self::Stopping(_) => Phase::Stopping,
        }
    }
}

impl Reaper {
    pub(crate) fn start(engine: &Handle, grace: Duration) -> Arc<Self> {
        let reaper = Arc::new(Self {
            table: Mutex::default(),
            earlier: Notify::new(),
            empty: Notify::new(),
            grace,
            engine: engine.clone(),
        });
        engine.spawn(run(reaper.clone()));
        reaper
    }

    pub(crate) fn grace(&self) -> Duration {
        self.grace
    }

    /// Watches over a hold until it is let go.
    pub(crate) fn watch(self: &Arc<Self>, hold: &Arc<Hold>) {
        hold.oversee(self.clone());
        self.add(hold, Entry::Deadline(hold.clone()));
    }

    /// The same for a hold that nobody else knows yet, and that knows us.
    pub(crate) fn watch_new(&self, hold: &Arc<Hold>) {
        debug_assert!(hold.is_overseen(), "nobody would take it out of the table");
        let is_closed = {
            let mut table = self.table();
            let entry = Entry::Deadline(hold.clone());
            self.put(&mut table, hold, entry, hold.deadline());
            table.is_closed
        };
        if is_closed {
            hold.end(LostReason::Closed);
        }
    }

    fn add(&self, hold: &Arc<Hold>, new: Entry) {
        let is_closed = {
            let mut table = self.table();
            match table.entry(hold) {
                Some(entry) if entry.phase() == Phase::Deadline => *entry = new,
                // Ended on its way to its caller.
                Some(_) => return,
                None if hold.is_let_go() => return,
                None => self.put(&mut table, hold, new, hold.deadline()),
            }
            table.is_closed
        };
        if is_closed {
            hold.end(LostReason::Closed);
        }
        // It may have ended before anybody was there to be told.
        if let State::Ended(_) = hold.state() {
            self.ending(hold);
        }
    }

    /// Ends all holds, and those that are granted from now on at once.
    pub(crate) fn close(&self) {
        let holds = {
            let mut table = self.table();
            table.is_closed = true;
            table.holds()
        };
        for hold in holds {
            if !hold.end(LostReason::Closed) {
                // Its COMMIT is on its way: that too must have its answer within the grace time.
                self.ending(&hold);
            }
        }
    }

    /// What is held now, in the order of the deadlines.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        self.table().holds()
    }

    /// Resolves when nothing is held, after `close`. Cancel-safe.
    pub(crate) async fn empty(&self) {
        loop {
            let empty = self.empty.notified();
            tokio::pin!(empty);
            empty.as_mut().enable();
            if self.table().queue.is_empty() {
                return;
            }
            empty.await;
        }
    }

    /// Takes a hold from the phase `from` to another, if it is in that phase: the steps from one phase to the next
    /// race each other, and with `let_go`, and only the first of them may be taken.
    fn step(&self, hold: &Arc<Hold>, from: Phase, due: Tick, to: Phase) {
        let mut table = self.table();
        let Some(entry) = table.entry(hold).filter(|entry| entry.phase() == from) else { return };
        let next = match entry {
            // One that nobody takes is still given back when it is dropped, until it is over.
            Entry::OnItsWay(_) if to == Phase::Deadline => entry.clone(),
            _ => Entry::of(to, hold),
        };
        self.put(&mut table, hold, next, due);
    }

    fn put(&self, table: &mut Table, hold: &Hold, entry: Entry, due: Tick) {
        table.put(hold, entry, due);
        if table.wake_at.is_none_or(|at| due < at) {
            table.wake_at = Some(due);
            self.earlier.notify_one();
        }
    }

    /// Takes what is due to its next phase, and notes when the next one is.
    fn take_due(&self) -> (Vec<Due>, Tick) {
        let mut table = self.table();
        let mut due = Vec::new();
        let now = Tick::now();
        while let Some(first) = table.queue.first_entry()
            && first.key().0 <= now
        {
            let entry = first.remove();
            // One that is gone has given itself back.
            due.extend(entry.hold().map(|hold| Due { hold, phase: entry.phase() }));
        }
        // They stay in the table: one that is let go from here on takes itself out.
        for Due { hold, phase } in &due {
            let next = match phase {
                Phase::Deadline => Phase::Grace,
                // Should the database not answer either, the fence is what protects the next holder.
                Phase::Grace | Phase::Stopping => Phase::Stopping,
            };
            table.put(hold, Entry::of(next, hold), now + self.grace);
        }
        let next = table.queue.first_key_value().map_or(Tick::NEVER, |((at, _), _)| *at);
        table.wake_at = Some(next);
        (due, next)
    }

    fn reap(&self, due: &Due) {
        let hold = &due.hold;
        if self.table().entry(hold).is_none() {
            // Let go at this moment.
            return;
        }
        match due.phase {
            Phase::Deadline => {
                if hold.overrun() {
                    tell(|| {
                        tracing::warn!(
                            target: "zklock",
                            function = hold.function(),
                            path = %hold.path(),
                            token = %hold.token(),
                            held = ?hold.held_for(),
                            "lock held past its timeout, stopping the body"
                        );
                    });
                } else if hold.state() == State::Held {
                    // Extended at this moment.
                    self.step(hold, Phase::Grace, hold.deadline(), Phase::Deadline);
                } else if hold.state() == State::Committing {
                    tell(|| {
                        tracing::warn!(
                            target: "zklock",
                            function = hold.function(),
                            path = %hold.path(),
                            "timeout passed while COMMIT is on its way, waiting for its answer"
                        );
                    });
                }
            }
            Phase::Grace => self.stop(hold),
            Phase::Stopping => force_release(hold),
        }
    }

    /// The grace time is over and the hold was not let go: nobody is there to do it.
    fn stop(&self, hold: &Arc<Hold>) {
        tell(|| {
            tracing::error!(
                target: "zklock",
                function = hold.function(),
                path = %hold.path(),
                token = %hold.token(),
                held = ?hold.held_for(),
                "the body does not yield (it blocks its thread, or nobody polls it); ending its transaction from outside \
                 and releasing the lock, its COMMIT will be refused"
            );
        });
        match hold.transaction() {
            None => force_release(hold),
            Some(transaction) => {
                let hold = hold.clone();
                self.engine.spawn(async move {
                    if let Err(error) = transaction.stop().await {
                        tell(|| {
                            tracing::error!(
                                target: "zklock",
                                function = hold.function(),
                                path = %hold.path(),
                                %error,
                                "the transaction could not be ended from outside"
                            );
                        });
                    }
                    force_release(&hold);
                });
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What anybody who watches must see: from here on another may hold the path while the body still runs.
fn force_release(hold: &Arc<Hold>) {
    if hold.is_let_go() {
        return;
    }
    // The lock of one that is nested stays with the outer call.
    if !hold.is_nested() {
        tell(|| {
            tracing::warn!(
                target: "zklock",
                function = hold.function(),
                path = %hold.path(),
                token = %hold.token(),
                "lock released over the head of its body"
            );
        });
    }
    hold.force_release();
}

impl Overseer for Reaper {
    fn granted(&self, hold: &Arc<Hold>) {
        self.add(hold, Entry::OnItsWay(Arc::downgrade(hold)));
    }

    fn ending(&self, hold: &Arc<Hold>) {
        self.step(hold, Phase::Deadline, Tick::now() + self.grace, Phase::Grace);
    }

    fn moved(&self, hold: &Arc<Hold>) {
        self.step(hold, Phase::Deadline, hold.deadline(), Phase::Deadline);
    }

    fn let_go(&self, hold: &Hold) {
        let mut table = self.table();
        let removed = table.remove(hold);
        let is_last = table.is_closed && table.queue.is_empty();
        drop(table);
        drop(removed);
        if is_last {
            self.empty.notify_waiters();
        }
    }
}

impl Table {
    fn holds(&self) -> Vec<Arc<Hold>> {
        self.queue.values().filter_map(Entry::hold).collect()
    }

    fn entry(&mut self, hold: &Hold) -> Option<&mut Entry> {
        self.queue.get_mut(&(hold.due()?, hold.id()))
    }

    fn put(&mut self, hold: &Hold, entry: Entry, due: Tick) {
        self.remove(hold);
        hold.set_due(Some(due));
        self.queue.insert((due, hold.id()), entry);
    }

    fn remove(&mut self, hold: &Hold) -> Option<Entry> {
        let due = hold.due()?;
        hold.set_due(None);
        self.queue.remove(&(due, hold.id()))
    }
}

/// Says something to the subscribers of others. Should one of them panic, what is to be done next is done all the same.
fn tell(say: impl FnOnce()) {
    drop(panic::catch_unwind(AssertUnwindSafe(say)));
}

/// How long the reaper sleeps at most while anything has a deadline.
const NAP: Duration = Duration::from_secs(1);

/// Ends with the thread that it runs on.
async fn run(reaper: Arc<Reaper>) {
    loop {
        let (due, next) = reaper.take_due();
        for entry in &due {
            // It calls the wakers of others: one that panics must not end the reaper.
            if panic::catch_unwind(AssertUnwindSafe(|| reaper.reap(entry))).is_err() {
                tell(|| {
                    tracing::error!(target: "zklock", path = %entry.hold.path(), "a waker panicked");
                });
            }
        }
        if due.is_empty() {
            let nap = if next == Tick::NEVER { Duration::MAX } else { NAP };
            tokio::select! {
                // Timers stop while the machine is suspended; deadlines do not.
                () = tokio::time::sleep(next.remaining().min(nap)) => {}
                () = reaper.earlier.notified() => {}
            }
        }
    }
}
