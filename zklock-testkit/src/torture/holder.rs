//! A process that holds locks, and is not spared.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use zklock::sqlx::PgPool;
use zklock::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use zklock::{Error as LockError, Locks};

use super::args::Holding;
use super::log::Log;
use super::random::Random;
use super::work::{Desk, Work};
use crate::error::Error;

/// After which the servers pass the locks of a process on that is not heard of.
pub(super) const SESSION: Duration = Duration::from_secs(4);

/// Takes no more work. Answered with [`DRAINED`] when all that was begun is over.
pub(super) const DRAIN: &str = "drain";
pub(super) const DRAINED: &str = "drained";

/// Keeps all threads busy that tasks run on, as careless code does. Answered with [`BLOCKED`] and their number when all
/// are.
pub(super) const BLOCK: &str = "block";
pub(super) const BLOCKED: &str = "blocked";

/// Ends that. Answered with itself.
pub(super) const UNBLOCK: &str = "unblock";

/// Works until told otherwise: by a line of input, [`DRAIN`] and later the end of it.
pub(super) async fn run(holding: Holding) -> Result<(), Error> {
    // Not even a stopped holder outlives its supervisor.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| Error::io("asking to end with the supervisor")(error.into()))?;
    let orders = Arc::new(Orders::default());
    listen(orders.clone());
    let desk = open(&holding).await?;
    let tasks: Vec<_> = (0..holding.tasks)
        .map(|task| tokio::spawn(keep_working(desk.clone(), holding.clone(), task, orders.clone())))
        .collect();
    for task in tasks {
        task.await.map_err(|error| Error::io("working")(error.into()))?;
    }
    answer(DRAINED).map_err(Error::io("answering the supervisor"))?;
    orders.ended().await;
    desk.locks.close().await;
    Ok(())
}

/// Connects, as often as it takes: a holder may be born into any fault.
pub(super) async fn open(holding: &Holding) -> Result<Arc<Desk>, Error> {
    let Holding { name, zookeeper, postgres, direct, log, .. } = holding;
    let log = Log::create(log).map_err(Error::io(format!("creating {}", log.display())))?;
    let (pool, direct) = (pool(postgres)?, pool(direct)?);
    loop {
        let locks =
            Locks::builder(zookeeper).identity(name.as_str()).session_timeout(SESSION).connect().await;
        match locks {
            Ok(locks) => return Ok(Arc::new(Desk { locks, pool, direct, log })),
            Err(LockError::Unavailable { .. } | LockError::Backend { .. }) => {}
            Err(error) => return Err(Error::io("connecting")(std::io::Error::other(error))),
        }
    }
}

fn pool(url: &str) -> Result<PgPool, Error> {
    let options: PgConnectOptions =
        url.parse().map_err(|error| Error::io("reading a URL")(std::io::Error::other(error)))?;
    let pool = PgPoolOptions::new().max_connections(6).acquire_timeout(Duration::from_secs(3));
    Ok(pool.connect_lazy_with(options))
}

async fn keep_working(desk: Arc<Desk>, holding: Holding, task: usize, orders: Arc<Orders>) {
    let mut random = Random::new(holding.seed, &[holding.number, holding.life, task as u64]);
    let mut number = 0;
    while !orders.drain.load(Ordering::Acquire) {
        number += 1;
        let work = Work::draw(format!("{}-{task}-{number}", holding.name), task, &mut random);
        desk.work(work).await;
        tokio::time::sleep(Duration::from_millis(random.between(5, 60))).await;
    }
}

#[derive(Debug, Default)]
struct Orders {
    drain: AtomicBool,
    ended: AtomicBool,
    changed: Notify,
}

impl Orders {
    async fn ended(&self) {
        loop {
            let changed = self.changed.notified();
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            changed.await;
        }
    }
}

fn listen(orders: Arc<Orders>) {
    let tasks = Handle::current();
    // Reading the input blocks; the thread ends with the process.
    std::thread::spawn(move || {
        let mut blockade = None;
        for line in std::io::stdin().lines().map_while(Result::ok) {
            match line.as_str() {
                DRAIN => orders.drain.store(true, Ordering::Release),
                BLOCK => {
                    let made = Blockade::of(&tasks);
                    let _ = answer(&format!("{BLOCKED} {}", made.blocked()));
                    blockade = Some(made);
                }
                UNBLOCK => {
                    blockade = None;
                    let _ = answer(UNBLOCK);
                }
                _ => {}
            }
        }
        drop(blockade);
        orders.drain.store(true, Ordering::Release);
        orders.ended.store(true, Ordering::Release);
        orders.changed.notify_waiters();
    });
}

fn answer(line: &str) -> std::io::Result<()> {
    println!("{line}");
    std::io::stdout().flush()
}

/// While it lives, no worker thread of a runtime does anything.
struct Blockade(Arc<Gate>);

#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    blocked: usize,
    open: bool,
}

impl Blockade {
    /// Waits until all are blocked, for as long as that may take on a busy machine.
    fn of(tasks: &Handle) -> Self {
        /// A worker may have taken two of the tasks to itself before others looked: then another one is needed.
        const AGAIN: Duration = Duration::from_millis(200);
        const ROUNDS: usize = 100;

        let gate = Arc::new(Gate::default());
        let workers = tasks.metrics().num_workers();
        for _ in 0..ROUNDS {
            let missing = workers.saturating_sub(gate.state().blocked);
            for _ in 0..missing {
                let gate = gate.clone();
                tasks.spawn(async move { gate.block() });
            }
            let waited =
                gate.changed.wait_timeout_while(gate.state(), AGAIN, |state| state.blocked < workers);
            if waited.is_ok_and(|(state, _)| state.blocked >= workers) {
                break;
            }
        }
        Self(gate)
    }

    fn blocked(&self) -> usize {
        self.0.state().blocked
    }
}

impl Drop for Blockade {
    fn drop(&mut self) {
        self.0.state().open = true;
        self.0.changed.notify_all();
    }
}

impl Gate {
    fn block(&self) {
        let mut state = self.state();
        state.blocked += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.open));
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
