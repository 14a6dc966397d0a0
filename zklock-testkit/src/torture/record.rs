use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::history::{Excuse, FaultWindow, Reach, Violation, Whose};
use super::log::now;
use crate::proxy::Rule;

/// What the supervisor did and saw, by whichever of its parts.
#[derive(Debug)]
pub(super) struct Record {
    until: Instant,
    windows: RefCell<Vec<FaultWindow>>,
    violations: RefCell<Vec<Violation>>,
    /// What is counted besides.
    notes: RefCell<BTreeMap<&'static str, usize>>,
    /// Shared by all faults but those that must be alone.
    stage: RwLock<()>,
}

/// Of so many seconds the last ones are calm: what must go well when nothing is wrong shows then.
const ROUND: u64 = 30;
const CALM: u64 = 10;

impl Record {
    pub(super) fn new(time: Duration) -> Self {
        Self {
            until: Instant::now() + time,
            windows: RefCell::default(),
            violations: RefCell::default(),
            notes: RefCell::default(),
            stage: RwLock::default(),
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits before the next fault; false when there is to be none.
    pub(super) async fn pause(&self, pause: Duration) -> bool {
        tokio::time::sleep(pause.min(self.remaining())).await;
        let left = self.remaining().as_secs() % ROUND;
        if left < CALM && self.remaining() > Duration::ZERO {
            let rest = Duration::from_secs(left + 1);
            tokio::time::sleep(rest.min(self.remaining())).await;
        }
        self.remaining() > Duration::ZERO
    }

    /// For a fault that others may be made beside.
    pub(super) async fn among_others(&self) -> RwLockReadGuard<'_, ()> {
        self.stage.read().await
    }

    /// For one that shows something only while nothing else is wrong.
    pub(super) async fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.stage.write().await
    }

    /// A fault is about to begin.
    pub(super) fn begin(&self, fault: &str, excuse: Excuse, reach: Reach) -> usize {
        let mut windows = self.windows.borrow_mut();
        windows.push(FaultWindow { fault: fault.to_owned(), begin: now(), end: u64::MAX, excuse, reach });
        windows.len() - 1
    }

    /// It is over, but for what may come of it for some time more.
    pub(super) fn end(&self, window: usize, more: Duration) {
        let more = u64::try_from(more.as_nanos()).unwrap_or_default();
        self.windows.borrow_mut()[window].end = now() + more;
    }

    /// Something that was found out late: it began so long ago, and is over.
    pub(super) fn was(&self, fault: &str, ago: Duration, more: Duration, reach: Reach) {
        let window = self.begin(fault, Excuse::None, reach);
        let ago = u64::try_from(ago.as_nanos()).unwrap_or_default();
        self.windows.borrow_mut()[window].begin -= ago;
        self.end(window, more);
    }

    /// Whether something is being done to all locks just now.
    pub(super) fn is_disturbed(&self) -> bool {
        let windows = self.windows.borrow();
        windows.iter().any(|window| window.end == u64::MAX && window.reach.locks == Whose::Everybodys)
    }

    /// Whether anything that could cost the locks of `process` has happened since the fault `window` began.
    pub(super) fn has_disturbed(&self, process: &str, window: usize) -> bool {
        let windows = self.windows.borrow();
        let begin = windows[window].begin;
        windows.iter().any(|window| window.end >= begin && window.reach.locks.include(process))
    }

    /// Counts the faults of a single request of which there was such a request.
    pub(super) fn fired(&self, rule: Option<&Rule>) {
        if rule.is_some_and(Rule::has_fired) {
            self.note("single requests or answers hit", 1);
        }
    }

    pub(super) fn note(&self, what: &'static str, count: usize) {
        *self.notes.borrow_mut().entry(what).or_default() += count;
    }

    pub(super) fn violation(&self, violation: Violation) {
        eprintln!("VIOLATION {violation}");
        self.violations.borrow_mut().push(violation);
    }

    pub(super) fn windows(&self) -> Vec<FaultWindow> {
        self.windows.borrow().clone()
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        self.violations.borrow().clone()
    }

    /// How many faults there were of each kind.
    pub(super) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for window in self.windows.borrow().iter() {
            let kind = window.fault.split(' ').next().unwrap_or_default();
            *counts.entry(kind.to_owned()).or_default() += 1;
        }
        counts
    }

    pub(super) fn notes(&self) -> BTreeMap<&'static str, usize> {
        self.notes.borrow().clone()
    }
}
