use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::history::{Excuse, FaultWindow, Violation};
use super::log::now;

/// What the supervisor did and saw, by whichever of its parts.
#[derive(Debug)]
pub(super) struct Record {
    until: Instant,
    windows: RefCell<Vec<FaultWindow>>,
    violations: RefCell<Vec<Violation>>,
}

/// Of so many seconds the last ones are calm: what must go well when nothing is wrong shows then.
const ROUND: u64 = 30;
const CALM: u64 = 10;

impl Record {
    pub(super) fn new(time: Duration) -> Self {
        Self { until: Instant::now() + time, windows: RefCell::default(), violations: RefCell::default() }
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

    /// A fault is about to begin.
    pub(super) fn begin(&self, fault: &str, excuse: Excuse) -> usize {
        let mut windows = self.windows.borrow_mut();
        windows.push(FaultWindow { fault: fault.to_owned(), begin: now(), end: u64::MAX, excuse });
        windows.len() - 1
    }

    /// It is over, but for what may come of it for some time more.
    pub(super) fn end(&self, window: usize, more: Duration) {
        let more = u64::try_from(more.as_nanos()).unwrap_or_default();
        self.windows.borrow_mut()[window].end = now() + more;
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
}
