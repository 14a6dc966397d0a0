use std::{
    fmt,
    future::poll_fn,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use tokio::sync::oneshot;
use uuid::Uuid;

use super::{call::Call, contender::OwnNode};
use crate::{
    error::Error,
    hold::{Grant, Hold},
    token::FencingToken,
};

/// Where the answer to one `acquire` goes. Grants and failures may come from several threads: whoever is first
/// answers, and there is one answer.
pub(super) struct Outlet(Mutex<Option<oneshot::Sender<Answer>>>);

pub(super) type Answer = Result<Arc<Hold>, Error>;

impl Outlet {
    pub(super) fn new() -> (Self, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Mutex::new(Some(sender))), receiver)
    }

    /// Takes the right to answer.
    pub(super) fn take(&self) -> Option<oneshot::Sender<Answer>> {
        self.sender().take()
    }

    /// Answers, if nobody has. What nobody takes is dropped, and a hold with it, which gives it back.
    pub(super) fn answer(&self, answer: Answer) {
        if let Some(sender) = self.take() {
            let _ = sender.send(answer);
        }
    }

    /// Whether somebody still waits for the answer.
    pub(super) fn is_open(&self) -> bool {
        self.sender().as_ref().is_some_and(|sender| !sender.is_closed())
    }

    /// Resolves when nobody does. For one task at a time. Cancel-safe.
    pub(super) async fn closed(&self) {
        poll_fn(|context| match &mut *self.sender() {
            Some(sender) => sender.poll_closed(context),
            None => Poll::Ready(()),
        })
        .await;
    }

    fn sender(&self) -> MutexGuard<'_, Option<oneshot::Sender<Answer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("is_open", &self.is_open()).finish()
    }
}

/// Grants, in company: the waker of a caller may panic, or a subscriber, and the others must have their turns all the same.
/// What became of the hold is known by then, or told by its drop.
pub(super) fn unless_it_panics<E>(grant: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    panic::catch_unwind(AssertUnwindSafe(grant)).unwrap_or(Ok(()))
}

/// What it takes to grant a lock at the moment when its turn has come, on whatever thread that is noticed.
pub(super) struct Claim {
    pub(super) call: Arc<Call>,
    /// Names the grant in the fence row.
    pub(super) attempt: Uuid,
}

impl Claim {
    /// Gives the lock that rests on `own`, if its session is valid at this very moment; else gives both back.
    ///
    /// A caller that is gone gives it back at once, from in here.
    pub(super) fn grant(self, own: OwnNode) -> Result<(), (Self, OwnNode)> {
        let session = own.session().clone();
        let node = own.node();
        let request = &self.call.request;
        let grant = Grant {
            path: request.path.clone(),
            options: request.options,
            // The czxid is positive: the server counts from its epoch and up.
            token: FencingToken::new(
                session.home.ensemble,
                node.czxid.cast_unsigned(),
                node.place,
                own.handover(),
            ),
            attempt: self.attempt,
            validity: session.validity.clone(),
        };
        match session.grant(own, grant) {
            Ok(hold) => {
                if let Some(sender) = self.call.outlet.take() {
                    request.granted(&hold);
                    let _ = sender.send(Ok(hold));
                }
                Ok(())
            }
            Err(own) => Err((self, own)),
        }
    }
}
