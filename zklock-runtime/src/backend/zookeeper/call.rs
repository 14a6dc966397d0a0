use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Wake, Waker},
    time::Duration,
};

use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use super::{
    Config,
    answer::Setback,
    attempt::{Attempt, Progress, Stage},
    bell::Bell,
    entry, fair, inspect,
    io::Tasks,
    live,
    outlet::{Answer, Claim, Outlet},
    plain,
    session::Session,
    supervisor::Current,
};
use crate::{
    backend::Request,
    clock::Tick,
    engine::Engine,
    error::{Cause, Error},
    timers::Sleep,
};

/// What all calls of one `Locks` share.
pub(super) struct Home {
    pub(super) engine: Arc<Engine>,
    pub(super) tasks: Tasks,
    pub(super) config: Arc<Config>,
    pub(super) current: watch::Receiver<Current>,
}

/// One call of `acquire`.
///
/// Most need no task of their own: what is to be written is handed over on the caller's thread, the answer grants the
/// lock or finds the place in line, and whoever gives the lock back grants it to the next. A task on the thread that
/// speaks with the server takes over where more is to be done than to wait.
pub(super) struct Call {
    home: Arc<Home>,
    pub(super) request: Request,
    pub(super) outlet: Outlet,
    pub(super) started: Tick,
    pub(super) progress: Progress,
    rest: Mutex<Rest>,
}

/// What is kept for a call that has no task.
#[derive(Default)]
struct Rest {
    timer: Option<Sleep>,
    stand: Option<(Arc<Session>, Stand)>,
    /// The caller is gone, or has its answer.
    is_left: bool,
}

/// Where a call stands. Dropping it withdraws.
pub(super) enum Stand {
    Fair(fair::Stand),
    Plain(plain::Stand),
}

/// What a task starts with.
pub(super) enum First {
    Stand(Stand),
    /// With what came of the first try.
    Fair(entry::Tried),
    Plain(plain::Stand, plain::Tried),
}

/// For how long a first answer is waited for when waiting was not asked for.
const ONE_TRY: Duration = Duration::from_secs(1);

/// How long a call can wait without being looked after.
const UNATTENDED: Duration = Duration::from_secs(1);

/// For how long the holder's name is looked up for an error.
const LOOK_UP: Duration = Duration::from_millis(250);

impl Call {
    pub(super) fn new(home: Arc<Home>, request: Request) -> (Arc<Self>, oneshot::Receiver<Answer>) {
        let (outlet, answer) = Outlet::new();
        let (started, progress) = (Tick::now(), Progress::start());
        let call = Self { home, request, outlet, started, progress, rest: Mutex::default() };
        (Arc::new(call), answer)
    }

    /// What the caller awaits. Dropping it withdraws.
    pub(super) async fn acquire(home: Arc<Home>, request: Request) -> Answer {
        let (call, answer) = Self::new(home, request);
        let caller = Caller(call);
        caller.0.start();
        // Without an answer the engine has stopped.
        answer.await.unwrap_or(Err(Error::Closed))
    }

    fn start(self: &Arc<Self>) {
        let session = match &*self.home.current.borrow() {
            Current::Live(session) => Some(session.clone()),
            Current::None(_) | Current::Closed => None,
        };
        let Some(session) = session else { return self.takes_task(None) };
        // First: afterwards there may be a task already, which has timers of its own.
        self.is_due_at(self.until().min(self.started + UNATTENDED));
        if self.request.options.fair {
            fair::start(self, &session);
        } else {
            plain::start(self, &session);
        }
    }

    /// By when there must be an answer. One try is made even if there is no time to wait; it gets the time for an answer.
    fn until(&self) -> Tick {
        if self.request.wait_until > self.started { self.request.wait_until } else { self.started + ONE_TRY }
    }

    /// There is no time, or none left, to wait for others.
    pub(super) fn tries_once(&self) -> bool {
        self.request.wait_until <= Tick::now()
    }

    /// What it takes to grant, to the node of the attempt `uuid`.
    pub(super) fn claim(self: &Arc<Self>, uuid: Uuid) -> Claim {
        Claim { call: self.clone(), attempt: uuid }
    }

    /// Waits in `stand` without a task.
    pub(super) fn waits(self: &Arc<Self>, session: &Arc<Session>, stand: Stand) {
        let bell = stand.bell();
        {
            let mut rest = self.rest();
            if rest.is_left {
                drop(rest);
                return drop(stand);
            }
            rest.stand = Some((session.clone(), stand));
        }
        // Told of something already, or never to be told.
        if !bell.is_heard_by(self) || session.is_over() {
            self.is_told();
        }
    }

    /// There is more to do for it than to wait. From any thread and under any lock, since nothing is done here.
    pub(super) fn is_told(self: &Arc<Self>) {
        let call = self.clone();
        self.home.tasks.spawn(async move {
            if let Some((session, stand)) = call.takes_stand() {
                let attended = call.attended();
                attended.0.run(Some((session, First::Stand(stand)))).await;
            }
        });
    }

    /// Out of where it waits without a task, if it does. It keeps its timer, since it may go back there.
    pub(super) fn takes_stand(&self) -> Option<(Arc<Session>, Stand)> {
        self.rest().stand.take()
    }

    /// As when its caller goes away.
    #[cfg(test)]
    pub(super) fn is_left(self: &Arc<Self>) {
        drop(Caller(self.clone()));
    }

    #[cfg(test)]
    pub(super) fn waits_without_a_task(&self) -> bool {
        self.rest().stand.is_some()
    }

    /// Goes on with a task.
    pub(super) fn takes_task(self: &Arc<Self>, first: Option<(Arc<Session>, First)>) {
        let attended = self.attended();
        self.home.tasks.spawn(async move { attended.0.run(first).await });
    }

    /// A task sees to it from here on, with timers of its own.
    fn attended(self: &Arc<Self>) -> Attended {
        let timer = self.rest().timer.take();
        drop(timer);
        Attended(self.clone())
    }

    /// Has itself looked after at `at`, as long as it has no task.
    fn is_due_at(self: &Arc<Self>, at: Tick) {
        let mut timer = self.home.engine.timers().sleep_until(at);
        let waker = Waker::from(self.clone());
        {
            // Locked from before it can run out: else it could be kept in place of the next one, and never run out again.
            let mut rest = self.rest();
            if Pin::new(&mut timer).poll(&mut Context::from_waker(&waker)).is_pending() {
                // Kept for a caller that has just left, it would keep the call, and be set again and again.
                if !rest.is_left {
                    rest.timer = Some(timer);
                }
                return;
            }
        }
        if at <= Tick::now() {
            self.is_due();
        } else {
            // The engine has stopped.
            drop(self.outlet.take());
        }
    }

    /// Its timer has run out.
    pub(super) fn is_due(self: &Arc<Self>) {
        if let Some((session, stand)) = self.takes_stand() {
            return self.takes_task(Some((session, First::Stand(stand))));
        }
        if !self.outlet.is_open() {
            return;
        }
        // An answer of the server is still to come, or was there just now.
        let now = Tick::now();
        if now < self.until() {
            return self.is_due_at(self.until().min(now + UNATTENDED));
        }
        let Some(answer) = self.outlet.take() else { return };
        let call = self.clone();
        self.home.tasks.spawn(async move {
            let failed = call.in_full(call.timed_out()).await;
            let _ = answer.send(Err(failed));
        });
    }

    /// Sees to it that the outlet is told of a grant or of a failure. Dropping what is tried is enough to withdraw: nodes
    /// belong to values that take them away.
    async fn run(self: &Arc<Self>, first: Option<(Arc<Session>, First)>) {
        let until = self.until();
        let failed = tokio::select! {
            contended = self.contend(first) => match contended {
                Ok(()) => return,
                Err(error) => error,
            },
            () = self.outlet.closed() => return,
            () = async { tokio::time::sleep(until.remaining()).await } => self.timed_out(),
        };
        self.outlet.answer(Err(self.in_full(failed).await));
    }

    async fn contend(self: &Arc<Self>, first: Option<(Arc<Session>, First)>) -> Result<(), Error> {
        let mut last = None;
        let mut first = first;
        loop {
            let (session, first) = match first.take() {
                Some((session, first)) => (session, Some(first)),
                None => (live(&self.home.current, last.as_ref()).await?, None),
            };
            let attempt = Attempt { session: &session, call: self };
            let tried = if self.request.options.fair {
                fair::acquire(&attempt, first).await
            } else {
                plain::acquire(&attempt, first).await
            };
            match tried {
                Ok(()) => return Ok(()),
                Err(Setback::Failed(error)) => return Err(error),
                Err(Setback::SessionOver) => {
                    self.progress.is(Stage::Asking);
                    last = Some(session);
                }
            }
        }
    }

    /// Whether it was the others or the server that took too long.
    fn timed_out(&self) -> Error {
        let waited = self.started.elapsed();
        let config = &self.home.config;
        let (is_connected, source) = match &*self.home.current.borrow() {
            Current::Live(session) => (session.validity.is_connected(), None),
            Current::None(Some(Error::Unavailable { source, .. })) => (false, source.clone()),
            Current::None(error) => (false, error.clone().map(Cause::new)),
            Current::Closed => return Error::Closed,
        };
        // An answer that takes less than a second is not missing yet, only late for so short a wait.
        match self.progress.stage() {
            Stage::BeforeDirectory if is_connected => {
                let node = format!("{}{}", config.address.chroot(), self.request.path);
                plain::a_directory(&self.request.path, &node)
            }
            stage if is_connected && (stage == Stage::Queueing || self.progress.lasts() < ONE_TRY) => {
                Error::Busy { path: self.request.path.clone(), waited, holder: None }
            }
            _ => Error::Unavailable { servers: config.address.servers(), waited, source },
        }
    }

    /// With the name of the holder, where that is asked for.
    async fn in_full(&self, error: Error) -> Error {
        match error {
            Error::Busy { path, waited, holder: None } => {
                Error::Busy { holder: self.holder().await, path, waited }
            }
            error => error,
        }
    }

    async fn holder(&self) -> Option<String> {
        let session = match &*self.home.current.borrow() {
            Current::Live(session) => session.clone(),
            Current::None(_) | Current::Closed => return None,
        };
        tokio::time::timeout(LOOK_UP, inspect::holder_of(&session, &self.request.path)).await.ok()?
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What its timer wakes.
impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.is_due();
    }
}

impl Stand {
    fn bell(&self) -> Arc<Bell> {
        match self {
            Self::Fair(stand) => stand.bell(),
            Self::Plain(stand) => stand.bell(),
        }
    }
}

/// A call that has a task: when that is let go without an answer, there will never be one.
struct Attended(Arc<Call>);

impl Drop for Attended {
    fn drop(&mut self) {
        drop(self.0.outlet.take());
    }
}

/// The caller's end of a call.
struct Caller(Arc<Call>);

impl Drop for Caller {
    fn drop(&mut self) {
        let left = {
            let mut rest = self.0.rest();
            rest.is_left = true;
            (rest.timer.take(), rest.stand.take())
        };
        drop(left);
    }
}
