use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify};

use crate::{
    clock::Tick,
    engine::sleep_until,
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
    /// The table became empty.
    empty: Notify,
    grace: Duration,
    engine: Handle,
}

#[derive(Debug, Default)]
struct Table {
    queue: BTreeMap<(Tick, u64), Entry>,
    /// When each hold is due, by its id.
    due: HashMap<u64, Tick>,
    /// When the task will look again by itself.
    wake_at: Option<Tick>,
}

#[derive(Debug)]
struct Entry {
    hold: Arc<Hold>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Held: the entry is due at the deadline.
    Deadline,
    /// Ended, or committing past its deadline: it is due when the grace time is over.
    Grace,
    /// Its transaction is being stopped from outside.
    Stopping,
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
        self.step(hold, None, hold.deadline(), Phase::Deadline);
        // It may have ended, or been let go, before anybody was there to be told.
        match hold.state() {
            State::Ended(_) => self.ending(hold),
            State::Released if hold.is_gone() => self.let_go(hold),
            _ => {}
        }
    }

    /// What is held now, in the order of the deadlines.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        self.table().queue.values().map(|entry| entry.hold.clone()).collect()
    }

    /// Resolves when nothing is held. Cancel-safe.
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

    /// Watches over a hold, or does so at another time, if `from` is the phase that it is in: the steps from one phase
    /// to the next race each other, and with `let_go`, and only the first of them may be taken.
    fn step(&self, hold: &Arc<Hold>, from: Option<Phase>, due: Tick, phase: Phase) {
        let mut table = self.table();
        if table.phase(hold.id()) != from {
            return;
        }
        table.put(hold.clone(), due, phase);
        if table.wake_at.is_none_or(|at| due < at) {
            table.wake_at = Some(due);
            drop(table);
            self.earlier.notify_one();
        }
    }

    /// Takes what is due to its next phase, and notes when the next one is.
    fn take_due(&self) -> (Vec<Entry>, Tick) {
        let mut table = self.table();
        let mut due = Vec::new();
        let now = Tick::now();
        while let Some(first) = table.queue.first_entry()
            && first.key().0 <= now
        {
            let ((_, id), entry) = first.remove_entry();
            table.due.remove(&id);
            due.push(entry);
        }
        // They stay in the table: one that is let go from here on takes itself out.
        for entry in &due {
            let next = match entry.phase {
                Phase::Deadline => Phase::Grace,
                // Should the database not answer either, the fence is what protects the next holder.
                Phase::Grace | Phase::Stopping => Phase::Stopping,
            };
            table.put(entry.hold.clone(), now + self.grace, next);
        }
        let next = table.queue.first_key_value().map_or(Tick::NEVER, |((at, _), _)| *at);
        table.wake_at = Some(next);
        (due, next)
    }

    fn reap(&self, entry: &Entry) {
        let hold = &entry.hold;
        if self.table().phase(hold.id()).is_none() {
            // Let go at this moment.
            return;
        }
        match entry.phase {
            Phase::Deadline => {
                if hold.overrun() {
                    tracing::warn!(
                        target: "zklock",
                        function = hold.function(),
                        path = %hold.path(),
                        token = %hold.token(),
                        held = ?hold.held_for(),
                        "lock held past its timeout, stopping the body"
                    );
                } else if hold.state() == State::Held {
                    // Extended at this moment.
                    self.step(hold, Some(Phase::Grace), hold.deadline(), Phase::Deadline);
                } else if hold.state() == State::Committing {
                    tracing::warn!(
                        target: "zklock",
                        function = hold.function(),
                        path = %hold.path(),
                        "timeout passed while COMMIT is on its way, waiting for its answer"
                    );
                }
            }
            Phase::Grace => self.stop(hold),
            Phase::Stopping => hold.force_release(),
        }
    }

    /// The grace time is over and the hold was not let go: nobody is there to do it.
    fn stop(&self, hold: &Arc<Hold>) {
        tracing::error!(
            target: "zklock",
            function = hold.function(),
            path = %hold.path(),
            token = %hold.token(),
            held = ?hold.held_for(),
            "the body does not yield (it blocks its thread, or nobody polls it); ending its transaction from outside \
             and releasing the lock, its COMMIT will be refused"
        );
        match hold.transaction() {
            None => hold.force_release(),
            Some(transaction) => {
                let hold = hold.clone();
                self.engine.spawn(async move {
                    if let Err(error) = transaction.stop().await {
                        tracing::error!(
                            target: "zklock",
                            function = hold.function(),
                            path = %hold.path(),
                            %error,
                            "the transaction could not be ended from outside"
                        );
                    }
                    hold.force_release();
                });
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Overseer for Reaper {
    fn ending(&self, hold: &Arc<Hold>) {
        self.step(hold, Some(Phase::Deadline), Tick::now() + self.grace, Phase::Grace);
    }

    fn moved(&self, hold: &Arc<Hold>) {
        self.step(hold, Some(Phase::Deadline), hold.deadline(), Phase::Deadline);
    }

    fn let_go(&self, hold: &Hold) {
        let mut table = self.table();
        let removed = table.remove(hold.id());
        let empty = table.queue.is_empty();
        drop(table);
        drop(removed);
        if empty {
            self.empty.notify_waiters();
        }
    }
}

impl Table {
    fn phase(&self, id: u64) -> Option<Phase> {
        let due = *self.due.get(&id)?;
        self.queue.get(&(due, id)).map(|entry| entry.phase)
    }

    fn put(&mut self, hold: Arc<Hold>, due: Tick, phase: Phase) {
        self.remove(hold.id());
        self.due.insert(hold.id(), due);
        self.queue.insert((due, hold.id()), Entry { hold, phase });
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let due = self.due.remove(&id)?;
        self.queue.remove(&(due, id))
    }
}

/// Ends with the thread that it runs on.
async fn run(reaper: Arc<Reaper>) {
    loop {
        let (due, next) = reaper.take_due();
        for entry in &due {
            reaper.reap(entry);
        }
        if due.is_empty() {
            tokio::select! {
                () = sleep_until(&reaper.engine, next) => {}
                () = reaper.earlier.notified() => {}
            }
        }
    }
}
