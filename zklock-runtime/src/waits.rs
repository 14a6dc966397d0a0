//! Who waits for whom inside this process: finds the circles that would never end, and is what a snapshot shows.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{backend::Backend, clock::Tick, error::Error, hold::Hold, path::LockPath};

/// The calls of one `Locks` that wait, and the paths that its holds are on.
#[derive(Debug)]
pub(crate) struct Waits {
    backend: Arc<dyn Backend>,
    graph: Mutex<Graph>,
}

#[derive(Debug, Default)]
struct Graph {
    /// What each waiting call is after.
    waiting: HashMap<u64, Waiting>,
    /// Which hold is on a path, by its id, where the backend does not know.
    holders: HashMap<LockPath, u64>,
    last: u64,
}

/// A call that waits in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) path: LockPath,
    pub(crate) function: &'static str,
    pub(crate) since: Tick,
    /// The holds that the call is in: they cannot end before the wait does. What its siblings hold can.
    under: Vec<u64>,
}

impl Waits {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self { backend, graph: Mutex::default() })
    }

    /// Notes that a call under the holds `under` waits for `path`, until the returned value is dropped.
    ///
    /// Errors with `Deadlock` where a circle of holders leads back to one of them. Looking when a wait starts is
    /// enough: a circle closes with its last wait.
    pub(crate) fn wait(
        self: &Arc<Self>,
        under: Vec<u64>,
        path: &LockPath,
        function: &'static str,
        since: Tick,
    ) -> Result<Ticket, Error> {
        let mut graph = self.graph();
        if let Some(cycle) = graph.cycle(&*self.backend, &under, path) {
            return Err(Error::Deadlock { path: path.clone(), cycle });
        }
        graph.last += 1;
        let id = graph.last;
        graph.waiting.insert(id, Waiting { path: path.clone(), function, since, under });
        Ok(Ticket { waits: self.clone(), id })
    }

    /// Notes that `hold` is on its path, where the backend does not know.
    pub(crate) fn held(&self, hold: &Hold) {
        // One that ended on its way may have a successor, which is then noted.
        if !self.backend.knows_holders() && !hold.is_let_go() {
            self.graph().holders.insert(hold.path().clone(), hold.id());
        }
    }

    /// Ends what `held` has noted, if it has.
    pub(crate) fn not_held(&self, hold: &Hold) {
        if self.backend.knows_holders() || hold.is_nested() {
            return;
        }
        let mut graph = self.graph();
        // The next holder may have been noted already.
        if let Entry::Occupied(noted) = graph.holders.entry(hold.path().clone())
            && *noted.get() == hold.id()
        {
            noted.remove();
        }
    }

    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        let mut all: Vec<Waiting> = self.graph().waiting.values().cloned().collect();
        all.sort_by_key(|waiting| waiting.since);
        all
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Graph {
    /// The paths of the circle that a wait under the holds `under` for `path` would close.
    fn cycle(&self, backend: &dyn Backend, under: &[u64], path: &LockPath) -> Option<Vec<LockPath>> {
        if under.is_empty() {
            return None;
        }
        let mut ways = vec![vec![path.clone()]];
        let mut seen = vec![path.clone()];
        while let Some(way) = ways.pop() {
            let on = |path| backend.holder(path).or_else(|| self.holders.get(path).copied());
            let Some(holder) = way.last().and_then(on) else { continue };
            if under.contains(&holder) {
                return Some(way);
            }
            // A body that joins futures may wait for several paths at once: each is a way that the circle may take.
            for next in self.waiting.values().filter(|waiting| waiting.under.contains(&holder)) {
                if !seen.contains(&next.path) {
                    seen.push(next.path.clone());
                    let mut longer = way.clone();
                    longer.push(next.path.clone());
                    ways.push(longer);
                }
            }
        }
        None
    }
}

/// A wait that is noted.
#[derive(Debug)]
pub(crate) struct Ticket {
    waits: Arc<Waits>,
    id: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.waits.graph().waiting.remove(&self.id);
    }
}
