use std::{sync::Arc, time::Duration};

use tracing::Span;

use crate::{
    backend::{self, BoxFuture, Request},
    clock::Tick,
    context,
    error::Error,
    guard::Guard,
    hold::Hold,
    locks::Locks,
    observe,
    options::LockOptions,
    path::LockPath,
    waits::Ticket,
};

/// What asking for a lock has come to.
pub(crate) enum Asked {
    Answered(Result<Guard, Error>),
    /// In a box of its own, so that only those who wait pay for it.
    Waits(BoxFuture<Result<Guard, Error>>),
}

/// Takes the lock, or enters it again where the running call chain has it.
pub(crate) fn ask(locks: Locks, path: LockPath, options: LockOptions) -> Asked {
    let call = Call { span: observe::span(&path, &options), asked: Tick::now() };
    match first_look(&locks, path, options, call.asked) {
        Ok(Look::Taken(hold)) => Asked::Answered(call.over(locks, Ok(hold))),
        Ok(Look::Waits(grant, ticket)) => Asked::Waits(Box::pin(async move {
            let hold = wait(&locks, grant, ticket).await;
            call.over(locks, hold)
        })),
        Err(error) => Asked::Answered(call.over(locks, Err(error))),
    }
}

/// One call, as it is seen from outside.
struct Call {
    span: Span,
    asked: Tick,
}

enum Look {
    Taken(Arc<Hold>),
    Waits(BoxFuture<Result<Arc<Hold>, Error>>, Ticket),
}

fn first_look(locks: &Locks, path: LockPath, options: LockOptions, asked: Tick) -> Result<Look, Error> {
    if locks.is_closed() {
        return Err(Error::Closed);
    }
    let frame = context::current();
    if let Some(outer) = frame.as_ref().and_then(|frame| frame.hold_of(locks.id(), &path)) {
        return enter_again(locks, &outer, options).map(Look::Taken);
    }
    let path = match locks.backend().take(path, options, asked)? {
        backend::Taken::Granted(hold) => {
            locks.reaper().watch_new(&hold);
            locks.waits().held(&hold);
            return Ok(Look::Taken(hold));
        }
        backend::Taken::NotYet(path) => path,
    };
    // A single try does not wait, so it closes no circle.
    let tries_once = options.wait == Some(Duration::ZERO);
    let under = frame.filter(|_| !tries_once).map_or_else(Vec::new, |frame| frame.under());
    let ticket = locks.waits().wait(under, &path, options.function, asked)?;
    let wait_until = options.wait.map_or(Tick::NEVER, |wait| asked + wait);
    let request = Request { path, options, wait_until, overseer: Some(locks.reaper().clone()) };
    // Not begun before it is polled. Kept instead of the request, which would be stored for each step on the way.
    Ok(Look::Waits(locks.backend().acquire(request), ticket))
}

async fn wait(
    locks: &Locks,
    grant: BoxFuture<Result<Arc<Hold>, Error>>,
    ticket: Ticket,
) -> Result<Arc<Hold>, Error> {
    let closing = locks.closing();
    tokio::pin!(closing);
    // Registered before the look, else an end in between would be missed.
    closing.as_mut().enable();
    if locks.is_closed() {
        return Err(Error::Closed);
    }
    let hold = tokio::select! {
        biased;
        () = closing => return Err(Error::Closed),
        hold = grant => hold?,
    };
    locks.reaper().watch(&hold);
    locks.waits().held(&hold);
    drop(ticket);
    Ok(hold)
}

fn enter_again(locks: &Locks, outer: &Arc<Hold>, options: LockOptions) -> Result<Arc<Hold>, Error> {
    if outer.is_fair() != options.fair {
        let found = if outer.is_fair() { "a fair lock" } else { "an unfair lock (`fair = false`)" };
        let found = format!("{found} held by `{}` in this call chain", outer.function());
        return Err(Error::WrongKind { path: outer.path().clone(), found });
    }
    outer.check().map_err(|reason| outer.error(reason))?;
    let hold = Hold::nested(outer, options);
    // Not as a new one: the outer hold may have been taken away at this moment, and its overseer with it.
    locks.reaper().watch(&hold);
    Ok(hold)
}

impl Call {
    fn over(self, locks: Locks, hold: Result<Arc<Hold>, Error>) -> Result<Guard, Error> {
        let Self { span, asked } = self;
        match hold {
            Ok(hold) => {
                observe::granted(&span, &hold, asked);
                Ok(Guard::new(hold, locks, span))
            }
            Err(error) => {
                observe::refused(&span, asked, &error);
                Err(error)
            }
        }
    }
}
