use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify};

use crate::{
    clock::Tick,
    engine::sleep_until,
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
        self.put(hold, hold.deadline(), Phase::Deadline);
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

    fn put(&self, hold: &Arc<Hold>, due: Tick, phase: Phase) {
        let mut table = self.table();
        table.remove(hold.id());
        table.due.insert(hold.id(), due);
        table.queue.insert((due, hold.id()), Entry { hold: hold.clone(), phase });
        if table.wake_at.is_none_or(|at| due < at) {
            table.wake_at = Some(due);
            drop(table);
            self.earlier.notify_one();
        }
    }

    /// Takes what is due, and notes when the next one is.
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
        let next = table.queue.first_key_value().map_or(Tick::NEVER, |((at, _), _)| *at);
        table.wake_at = Some(next);
        (due, next)
    }

    fn reap(&self, entry: &Entry) {
        let hold = &entry.hold;
        match entry.phase {
            Phase::Deadline => {
                // Back into the table first: `end` tells us of it, and we must know the hold then.
                self.put(hold, Tick::now() + self.grace, Phase::Grace);
                if hold.end(LostReason::Overrun) {
                    tracing::warn!(
                        target: "zklock",
                        function = hold.function(),
                        path = %hold.path(),
                        token = %hold.token(),
                        held = ?hold.held_for(),
                        "lock held past its timeout, stopping the body"
                    );
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
                // Should the database not answer either, the fence is what protects the next holder.
                self.put(hold, Tick::now() + self.grace, Phase::Stopping);
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
        let known = {
            let table = self.table();
            let due = table.due.get(&hold.id()).copied();
            due.and_then(|due| table.queue.get(&(due, hold.id()))).map(|entry| entry.phase)
        };
        if known == Some(Phase::Deadline) {
            self.put(hold, Tick::now() + self.grace, Phase::Grace);
        }
    }

    fn moved(&self, hold: &Arc<Hold>) {
        self.put(hold, hold.deadline(), Phase::Deadline);
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
