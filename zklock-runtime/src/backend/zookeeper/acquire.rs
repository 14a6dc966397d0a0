use std::{future::Future, sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    Config,
    answer::Setback,
    attempt::{Attempt, Progress, Stage},
    fair, inspect, live,
    outlet::Outlet,
    plain,
    supervisor::Current,
};
use crate::{
    backend::Request,
    clock::Tick,
    error::{Cause, Error},
};

/// One call of `acquire`, on the engine's thread.
pub(super) struct Acquire {
    pub(super) config: Arc<Config>,
    pub(super) current: watch::Receiver<Current>,
    pub(super) request: Arc<Request>,
    pub(super) outlet: Arc<Outlet>,
    pub(super) started: Tick,
}

/// For how long a first answer is waited for when waiting was not asked for.
const ONE_TRY: Duration = Duration::from_secs(1);

/// For how long the holder's name is looked up for an error.
const LOOK_UP: Duration = Duration::from_millis(250);

impl Acquire {
    /// Sees to it that the outlet is told of a grant or of a failure. Dropping what is tried is enough to withdraw: nodes
    /// belong to values that take them away.
    pub(super) async fn run(self, gone: impl Future<Output = ()>) {
        let progress = Progress::start();
        // One try is made even if there is no time to wait; it gets the time for an answer.
        let until = if self.request.wait_until > self.started {
            self.request.wait_until
        } else {
            self.started + ONE_TRY
        };
        let failed = tokio::select! {
            contended = self.contend(&progress) => match contended {
                Ok(()) => return,
                Err(error) => error,
            },
            () = gone => return,
            () = async { tokio::time::sleep(until.remaining()).await } => self.timed_out(&progress),
        };
        let failed = match failed {
            Error::Busy { path, waited, holder: None } => {
                Error::Busy { holder: self.holder().await, path, waited }
            }
            error => error,
        };
        self.outlet.answer(Err(failed));
    }

    async fn contend(&self, progress: &Progress) -> Result<(), Error> {
        let mut last = None;
        loop {
            let session = live(&self.current, last.as_ref()).await?;
            let attempt = Attempt {
                session: &session,
                request: &self.request,
                outlet: &self.outlet,
                started: self.started,
                progress,
            };
            let tried = if self.request.options.fair {
                fair::acquire(&attempt).await
            } else {
                plain::acquire(&attempt).await
            };
            match tried {
                Ok(()) => return Ok(()),
                Err(Setback::Failed(error)) => return Err(error),
                Err(Setback::SessionOver) => {
                    progress.is(Stage::Asking);
                    last = Some(session);
                }
            }
        }
    }

    /// Whether it was the others or the server that took too long.
    fn timed_out(&self, progress: &Progress) -> Error {
        let waited = self.started.elapsed();
        let (is_connected, source) = match &*self.current.borrow() {
            Current::Live(session) => (session.validity.is_connected(), None),
            Current::None(Some(Error::Unavailable { source, .. })) => (false, source.clone()),
            Current::None(error) => (false, error.clone().map(Cause::new)),
            Current::Closed => return Error::Closed,
        };
        // An answer that takes less than a second is not missing yet, only late for so short a wait.
        match progress.stage() {
            Stage::BeforeDirectory if is_connected => {
                let node = format!("{}{}", self.config.address.chroot(), self.request.path);
                plain::a_directory(&self.request.path, &node)
            }
            stage if is_connected && (stage == Stage::Queueing || progress.lasts() < ONE_TRY) => {
                Error::Busy { path: self.request.path.clone(), waited, holder: None }
            }
            _ => Error::Unavailable { servers: self.config.address.servers(), waited, source },
        }
    }

    async fn holder(&self) -> Option<String> {
        let session = match &*self.current.borrow() {
            Current::Live(session) => session.clone(),
            Current::None(_) | Current::Closed => return None,
        };
        tokio::time::timeout(LOOK_UP, inspect::holder_of(&session, &self.request.path)).await.ok()?
    }
}
