mod grants;
mod tree;

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use tokio::sync::oneshot;

use self::{grants::Grants, tree::Tree};
use super::{Backend, BoxFuture, Deletes, QueueEntry, Request, Taken};
#[cfg(feature = "sqlx")]
use crate::token::Ensemble;
use crate::{
    clock::Tick,
    error::Error,
    hold::{Hold, Overseer, Register},
    options::LockOptions,
    path::LockPath,
    timers::Timers,
};

/// Locks of this process alone, with the semantics of the servers.
pub(crate) struct Memory {
    table: Arc<Table>,
    timers: Arc<Timers>,
}

struct Table {
    state: Mutex<State>,
    identity: Arc<str>,
    overseer: OnceLock<Arc<dyn Overseer>>,
}

struct State {
    queues: HashMap<LockPath, Queue>,
    tree: Tree,
    grants: Grants,
    last_waiter: u64,
    closed: bool,
}

/// One path. It exists while somebody holds or waits.
struct Queue {
    fair: bool,
    holder: Option<Holder>,
    waiters: VecDeque<Waiter>,
}

struct Holder {
    id: u64,
    /// Of its token, which all else is the same for.
    number: u64,
    function: &'static str,
    since: Tick,
}

struct Waiter {
    id: u64,
    request: Arc<Request>,
    since: Tick,
    turn: oneshot::Sender<Turn>,
}

enum Turn {
    /// Fair: the lock is yours.
    Granted(Arc<Hold>),
    /// Unfair: the lock is free, take it if nobody is quicker.
    Free,
}

enum Tried {
    Granted(Arc<Hold>),
    Waiting(Waiting),
    Busy(String),
}

impl Memory {
    pub(crate) fn new(identity: Arc<str>, timers: Arc<Timers>) -> Self {
        let state = State {
            queues: HashMap::new(),
            tree: Tree::default(),
            grants: Grants::new(),
            last_waiter: 0,
            closed: false,
        };
        let table = Table { state: Mutex::new(state), identity, overseer: OnceLock::new() };
        Self { table: Arc::new(table), timers }
    }
}

impl Backend for Memory {
    fn take(&self, path: LockPath, options: LockOptions, now: Tick) -> Result<Taken, Error> {
        self.table.take(&mut self.table.lock(), path, options, now)
    }

    fn overseen_by(&self, overseer: Arc<dyn Overseer>) {
        // There is one, and it is said once.
        let _ = self.table.overseer.set(overseer);
    }

    fn knows_holders(&self) -> bool {
        true
    }

    fn holder(&self, path: &LockPath) -> Option<u64> {
        self.table.lock().queues.get(path)?.holder.as_ref().map(|holder| holder.id)
    }

    fn acquire(&self, request: Request) -> BoxFuture<Result<Arc<Hold>, Error>> {
        let (table, timers) = (self.table.clone(), self.timers.clone());
        let request = Arc::new(request);
        Box::pin(async move {
            let asked = Tick::now();
            let mut place = Place::Back;
            loop {
                let mut waiting = match table.try_acquire(&request, place)? {
                    Tried::Granted(hold) => return Ok(hold),
                    Tried::Waiting(waiting) => waiting,
                    Tried::Busy(holder) => return Err(busy(&request, asked, Some(holder))),
                };
                let turn = tokio::select! {
                    biased;
                    turn = waiting.turn() => turn?,
                    () = timers.sleep_until(request.wait_until) => match waiting.give_up() {
                        Some(turn) => turn,
                        None => return Err(busy(&request, asked, table.describe_holder(&request.path))),
                    },
                };
                match turn {
                    Turn::Granted(hold) => return Ok(hold),
                    // It may be gone again; then we keep our place at the front.
                    Turn::Free => place = Place::Front,
                }
            }
        })
    }

    fn inspect(&self, path: &LockPath) -> BoxFuture<Result<Vec<QueueEntry>, Error>> {
        let entries = self.table.inspect(path);
        Box::pin(async { Ok(entries) })
    }

    #[cfg(feature = "sqlx")]
    fn ensemble(&self, _: Tick) -> BoxFuture<Result<Ensemble, Error>> {
        Box::pin(async { Ok(Ensemble::MEMORY) })
    }

    #[cfg(feature = "sqlx")]
    fn fence_key(&self, path: &LockPath) -> String {
        path.as_str().to_owned()
    }

    fn deletes(&self) -> Deletes {
        Deletes::default()
    }

    fn close(&self) -> BoxFuture<()> {
        let waiters: Vec<Waiter> = {
            let mut state = self.table.lock();
            state.closed = true;
            state.queues.values_mut().flat_map(|queue| queue.waiters.drain(..)).collect()
        };
        drop(waiters);
        Box::pin(async {})
    }
}

#[derive(Clone, Copy)]
enum Place {
    Back,
    Front,
}

impl Table {
    fn try_acquire(self: &Arc<Self>, request: &Arc<Request>, place: Place) -> Result<Tried, Error> {
        let path = &request.path;
        let mut state = self.lock();
        let now = Tick::now();
        if let Taken::Granted(hold) = self.take(&mut state, path.clone(), request.options, now)? {
            return Ok(Tried::Granted(hold));
        }
        let State { queues, last_waiter, .. } = &mut *state;
        // It is there, since somebody else has it.
        let queue = queues.get_mut(path).ok_or(Error::Closed)?;
        if request.wait_until <= now {
            return Ok(Tried::Busy(queue.describe_holder(&self.identity)));
        }
        *last_waiter += 1;
        let id = *last_waiter;
        let (sender, turn) = oneshot::channel();
        let waiter = Waiter { id, request: request.clone(), since: now, turn: sender };
        match place {
            Place::Back => queue.waiters.push_back(waiter),
            Place::Front => queue.waiters.push_front(waiter),
        }
        drop(state);
        Ok(Tried::Waiting(Waiting { table: self.clone(), request: request.clone(), id, turn: Some(turn) }))
    }

    /// Grants the lock if it is free and nobody is before us.
    fn take(
        self: &Arc<Self>,
        state: &mut State,
        path: LockPath,
        options: LockOptions,
        now: Tick,
    ) -> Result<Taken, Error> {
        if state.closed {
            return Err(Error::Closed);
        }
        let State { queues, tree, grants, .. } = state;
        if !options.fair {
            tree.watch_over(|| queues.keys());
        }
        let queue = match queues.entry(path.clone()) {
            Entry::Occupied(queue) => queue.into_mut(),
            Entry::Vacant(place) => {
                tree.add(&path, options.fair)?;
                place.insert(Queue { fair: options.fair, holder: None, waiters: VecDeque::new() })
            }
        };
        if queue.fair != options.fair {
            return Err(Error::WrongKind { path, found: kind(queue.fair).to_owned() });
        }
        let first = !queue.fair || queue.waiters.is_empty();
        if queue.holder.is_some() || !first {
            return Ok(Taken::NotYet(path));
        }
        Ok(Taken::Granted(self.grant(queue, grants, path, options, now)))
    }

    /// Makes the hold and notes it as the holder.
    fn grant(
        self: &Arc<Self>,
        queue: &mut Queue,
        grants: &mut Grants,
        path: LockPath,
        options: LockOptions,
        now: Tick,
    ) -> Arc<Hold> {
        let (grant, number) = grants.next(now, path, options);
        let hold = Hold::registered(now, grant, self.clone());
        queue.holder = Some(Holder { id: hold.id(), number, function: options.function, since: now });
        hold
    }

    /// Gives a free lock to whoever waits, and forgets the path when nobody does.
    fn next(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        path: &LockPath,
        is_gone: impl Fn(&Holder) -> bool,
    ) {
        let State { queues, tree, grants, .. } = &mut *state;
        let Some(queue) = queues.get_mut(path) else { return };
        queue.holder.take_if(|holder| is_gone(holder));
        // A grant that its waiter no longer takes is given back by its drop, which comes here again: it must not
        // happen with the table locked.
        let mut untaken = None;
        while queue.holder.is_none() {
            let Some(waiter) = queue.waiters.pop_front() else {
                queues.remove(path);
                tree.remove(path);
                break;
            };
            if waiter.turn.is_closed() {
                continue;
            }
            if !queue.fair {
                if waiter.turn.send(Turn::Free).is_ok() {
                    break;
                }
                continue;
            }
            let hold = self.grant(queue, grants, path.clone(), waiter.request.options, Tick::now());
            waiter.request.granted(&hold);
            untaken = waiter.turn.send(Turn::Granted(hold)).err();
        }
        drop(state);
        drop(untaken);
    }

    fn describe_holder(&self, path: &LockPath) -> Option<String> {
        self.lock().queues.get(path).map(|queue| queue.describe_holder(&self.identity))
    }

    fn inspect(&self, path: &LockPath) -> Vec<QueueEntry> {
        let state = self.lock();
        let Some(queue) = state.queues.get(path) else { return Vec::new() };
        let entry = |is_holder, function: &'static str, since, name: String| QueueEntry {
            is_holder,
            identity: Some(self.identity.as_ref().to_owned()),
            function: Some(function.to_owned()),
            since: Some(Tick::on_the_wall(since)),
            name,
        };
        let holder = queue
            .holder
            .iter()
            .map(|h| entry(true, h.function, h.since, format!("token {}", grants::token(h.number))));
        let waiters = queue
            .waiters
            .iter()
            .filter(|waiter| !waiter.turn.is_closed())
            .map(|w| entry(false, w.request.options.function, w.since, format!("waiter {}", w.id)));
        holder.chain(waiters).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget(&mut self, path: &LockPath) {
        if self.queues.remove(path).is_some() {
            self.tree.remove(path);
        }
    }
}

impl Queue {
    fn leave(&mut self, waiter: u64) {
        // In the order of their ids, but for those of an unfair lock that have come back to the front.
        let place = if self.fair {
            self.waiters.binary_search_by_key(&waiter, |each| each.id).ok()
        } else {
            self.waiters.iter().position(|each| each.id == waiter)
        };
        if let Some(place) = place {
            self.waiters.remove(place);
        }
    }

    fn describe_holder(&self, identity: &str) -> String {
        match &self.holder {
            Some(holder) => format!("{identity} in {}", holder.function),
            None => "others in the queue".to_owned(),
        }
    }
}

/// A place in the queue; dropped by a caller that goes away.
struct Waiting {
    table: Arc<Table>,
    request: Arc<Request>,
    id: u64,
    /// Until it has come, and been taken.
    turn: Option<oneshot::Receiver<Turn>>,
}

impl Waiting {
    /// Cancel-safe.
    async fn turn(&mut self) -> Result<Turn, Error> {
        let Some(turn) = &mut self.turn else { return std::future::pending().await };
        let came = turn.await;
        self.turn = None;
        came.map_err(|_| Error::Closed)
    }

    /// Leaves the queue, unless the turn has come at this very moment.
    fn give_up(&mut self) -> Option<Turn> {
        let mut turn = self.turn.take()?;
        let mut state = self.table.lock();
        turn.close();
        let came = turn.try_recv().ok();
        if came.is_none()
            && let Some(queue) = state.queues.get_mut(&self.request.path)
        {
            queue.leave(self.id);
            if queue.holder.is_none() && queue.waiters.is_empty() {
                state.forget(&self.request.path);
            }
        }
        came
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        match self.give_up() {
            // Its drop gives it back.
            Some(Turn::Granted(_)) | None => {}
            // Somebody else must be told that the lock is free.
            Some(Turn::Free) => self.table.next(self.table.lock(), &self.request.path, |_| false),
        }
    }
}

impl Register for Table {
    fn overseer(&self) -> Option<&Arc<dyn Overseer>> {
        self.overseer.get()
    }

    /// The holder is gone: the next one's turn.
    fn take_out(self: Arc<Self>, hold: &Hold) {
        self.next(self.lock(), hold.path(), |holder| holder.id == hold.id());
    }
}

fn kind(fair: bool) -> &'static str {
    if fair { "a fair lock" } else { "an unfair lock (`fair = false`)" }
}

fn busy(request: &Request, asked: Tick, holder: Option<String>) -> Error {
    Error::Busy { path: request.path.clone(), waited: asked.elapsed(), holder }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("paths", &self.table.lock().queues.len()).finish_non_exhaustive()
    }
}
