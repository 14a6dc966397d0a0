use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::{runtime::Handle, sync::oneshot};
use uuid::Uuid;

use super::{Backend, BoxFuture, Deletes, QueueEntry, Request};
use crate::{
    clock::Tick,
    engine::sleep_until,
    error::Error,
    hold::{Contender, Done, Grant, Hold, Validity},
    path::LockPath,
    token::{Ensemble, FencingToken},
};

/// Locks of this process alone, with the semantics of the servers.
pub(crate) struct Memory {
    table: Arc<Table>,
    timers: Handle,
}

struct Table {
    state: Mutex<State>,
    identity: Arc<str>,
    validity: Arc<Validity>,
}

struct State {
    queues: HashMap<LockPath, Queue>,
    tree: Tree,
    last_token: u64,
    last_waiter: u64,
    closed: bool,
}

/// What stands on which path, as the nodes of a server would: one that is an unfair lock cannot have others below it.
#[derive(Default)]
struct Tree {
    unfair: HashSet<Box<str>>,
    /// How many queues there are below a path.
    below: HashMap<Box<str>, usize>,
}

/// One path. It exists while somebody holds or waits.
struct Queue {
    fair: bool,
    holder: Option<Holder>,
    waiters: VecDeque<Waiter>,
}

struct Holder {
    token: FencingToken,
    function: &'static str,
    since: SystemTime,
}

struct Waiter {
    id: u64,
    request: Request,
    since: SystemTime,
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
    pub(crate) fn new(identity: Arc<str>, timers: Handle) -> Self {
        let state = State {
            queues: HashMap::new(),
            tree: Tree::default(),
            last_token: 0,
            last_waiter: 0,
            closed: false,
        };
        let table = Table { state: Mutex::new(state), identity, validity: Validity::unlimited() };
        Self { table: Arc::new(table), timers }
    }
}

impl Backend for Memory {
    fn acquire(&self, request: Request) -> BoxFuture<Result<Arc<Hold>, Error>> {
        let (table, timers) = (self.table.clone(), self.timers.clone());
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
                    turn = &mut waiting.turn => turn.map_err(|_| Error::Closed)?,
                    () = sleep_until(&timers, request.wait_until) => match waiting.give_up() {
                        Some(turn) => turn,
                        None => return Err(busy(&request, asked, table.holder(&request.path))),
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
    fn try_acquire(self: &Arc<Self>, request: &Request, place: Place) -> Result<Tried, Error> {
        let (path, options) = (&request.path, request.options);
        let mut state = self.lock();
        if state.closed {
            return Err(Error::Closed);
        }
        let queue = state.queue(path, options.fair)?;
        if queue.fair != options.fair {
            return Err(Error::WrongKind { path: path.clone(), found: kind(queue.fair).to_owned() });
        }
        let first = !queue.fair || queue.waiters.is_empty();
        if queue.holder.is_none() && first {
            return Ok(Tried::Granted(self.grant(&mut state, request)));
        }
        if request.wait_until <= Tick::now() {
            return Ok(Tried::Busy(queue.describe_holder(&self.identity)));
        }
        state.last_waiter += 1;
        let id = state.last_waiter;
        let (sender, turn) = oneshot::channel();
        let waiter = Waiter { id, request: request.clone(), since: SystemTime::now(), turn: sender };
        if let Some(queue) = state.queues.get_mut(path) {
            match place {
                Place::Back => queue.waiters.push_back(waiter),
                Place::Front => queue.waiters.push_front(waiter),
            }
        }
        drop(state);
        Ok(Tried::Waiting(Waiting { table: self.clone(), path: path.clone(), id, turn }))
    }

    /// Makes the hold and notes it as the holder.
    fn grant(self: &Arc<Self>, state: &mut State, request: &Request) -> Arc<Hold> {
        let (path, options) = (&request.path, request.options);
        // From the wall clock, so that a restart over the same database does not go back.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        state.last_token = now.max(state.last_token.saturating_add(1));
        let token = FencingToken::new(Ensemble::MEMORY, state.last_token, 0, 0);
        if let Some(queue) = state.queues.get_mut(path) {
            queue.holder = Some(Holder { token, function: options.function, since: SystemTime::now() });
        }
        let grant = Grant {
            path: path.clone(),
            fence_key: path.as_str().into(),
            options,
            token,
            attempt: Uuid::new_v4(),
            validity: self.validity.clone(),
        };
        let hold = Hold::new(grant, Box::new(Occupant { table: self.clone(), path: path.clone(), token }));
        request.granted(&hold);
        hold
    }

    /// The holder is gone: the next one's turn.
    fn release(self: &Arc<Self>, path: &LockPath, token: FencingToken) {
        let mut state = self.lock();
        if let Some(queue) = state.queues.get_mut(path)
            && queue.holder.as_ref().is_some_and(|holder| holder.token == token)
        {
            queue.holder = None;
        }
        self.next(state, path);
    }

    /// Gives a free lock to whoever waits, and forgets the path when nobody does.
    fn next(self: &Arc<Self>, mut state: MutexGuard<'_, State>, path: &LockPath) {
        // A grant that its waiter no longer takes is given back by its drop, which comes here again: it must not
        // happen with the table locked.
        let mut untaken = None;
        while let Some(queue) = state.queues.get_mut(path)
            && queue.holder.is_none()
        {
            let Some(waiter) = queue.waiters.pop_front() else {
                state.forget(path);
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
            let hold = self.grant(&mut state, &waiter.request);
            untaken = waiter.turn.send(Turn::Granted(hold)).err();
        }
        drop(state);
        drop(untaken);
    }

    fn holder(&self, path: &LockPath) -> Option<String> {
        self.lock().queues.get(path).map(|queue| queue.describe_holder(&self.identity))
    }

    fn inspect(&self, path: &LockPath) -> Vec<QueueEntry> {
        let state = self.lock();
        let Some(queue) = state.queues.get(path) else { return Vec::new() };
        let entry = |is_holder, function: &'static str, since, name: String| QueueEntry {
            is_holder,
            identity: Some(self.identity.as_ref().to_owned()),
            function: Some(function.to_owned()),
            since: Some(since),
            name,
        };
        let holder =
            queue.holder.iter().map(|h| entry(true, h.function, h.since, format!("token {}", h.token)));
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
    /// The queue of `path`, made where there is none.
    fn queue(&mut self, path: &LockPath, fair: bool) -> Result<&mut Queue, Error> {
        match self.queues.entry(path.clone()) {
            Entry::Occupied(queue) => Ok(queue.into_mut()),
            Entry::Vacant(place) => {
                self.tree.add(path, fair)?;
                Ok(place.insert(Queue { fair, holder: None, waiters: VecDeque::new() }))
            }
        }
    }

    fn forget(&mut self, path: &LockPath) {
        if self.queues.remove(path).is_some() {
            self.tree.remove(path);
        }
    }
}

impl Tree {
    fn add(&mut self, path: &LockPath, fair: bool) -> Result<(), Error> {
        let wrong = |found| Err(Error::WrongKind { path: path.clone(), found });
        if let Some(above) = above(path).find(|above| self.unfair.contains(*above)) {
            return wrong(format!("\"{above}\" above it is {}", kind(false)));
        }
        if !fair && self.below.contains_key(path.as_str()) {
            return wrong("there are locks below it".to_owned());
        }
        for above in above(path) {
            *self.below.entry(above.into()).or_default() += 1;
        }
        if !fair {
            self.unfair.insert(path.as_str().into());
        }
        Ok(())
    }

    fn remove(&mut self, path: &LockPath) {
        self.unfair.remove(path.as_str());
        for above in above(path) {
            if let Some(count) = self.below.get_mut(above) {
                *count -= 1;
                if *count == 0 {
                    self.below.remove(above);
                }
            }
        }
    }
}

/// The paths above `path`, the root left out.
fn above(path: &LockPath) -> impl Iterator<Item = &str> {
    path.as_str().match_indices('/').skip(1).map(|(end, _)| &path.as_str()[..end])
}

impl Queue {
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
    path: LockPath,
    id: u64,
    turn: oneshot::Receiver<Turn>,
}

impl Waiting {
    /// Leaves the queue, unless the turn has come at this very moment.
    fn give_up(&mut self) -> Option<Turn> {
        let mut state = self.table.lock();
        self.turn.close();
        let turn = self.turn.try_recv().ok();
        if turn.is_none()
            && let Some(queue) = state.queues.get_mut(&self.path)
        {
            queue.waiters.retain(|waiter| waiter.id != self.id);
        }
        turn
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        match self.give_up() {
            // Its drop gives it back.
            Some(Turn::Granted(_)) => {}
            // Somebody else must be told that the lock is free. After a turn that was taken this is never reached:
            // the channel is empty then.
            Some(Turn::Free) => self.table.next(self.table.lock(), &self.path),
            None => {
                let mut state = self.table.lock();
                if let Some(queue) = state.queues.get(&self.path)
                    && queue.holder.is_none()
                    && queue.waiters.is_empty()
                {
                    state.forget(&self.path);
                }
            }
        }
    }
}

struct Occupant {
    table: Arc<Table>,
    path: LockPath,
    token: FencingToken,
}

impl Contender for Occupant {
    fn release(self: Box<Self>, done: Done) {
        self.table.release(&self.path, self.token);
        drop(done);
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

impl fmt::Debug for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Occupant")
            .field("path", &self.path)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
