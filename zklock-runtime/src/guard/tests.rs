use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
};

use uuid::Uuid;

use super::*;
use crate::{
    hold::{Contender, Done, Grant, Validity},
    options::LockOptions,
    token::Ensemble,
};

#[derive(Debug)]
struct Nobody;

impl Contender for Nobody {
    fn release(self: Box<Self>, done: Done) {
        drop(done);
    }
}

/// A guard whose hold no reaper watches: as if its thread got no time.
fn unwatched(timeout: Option<Duration>, validity: Arc<Validity>) -> Guard {
    let grant = Grant {
        path: LockPath::new("/a").unwrap(),
        options: LockOptions { fair: true, timeout, wait: None, function: "test" },
        token: FencingToken::new(Ensemble::MEMORY, 1, 0, 0),
        attempt: Uuid::new_v4(),
        validity,
    };
    Guard::new(Hold::new(grant, Box::new(Nobody)), Locks::memory(), Span::none())
}

/// Polls a body, lets something happen, and polls it again: how it was stopped, if it was not polled for it.
fn stopped(guard: &Guard, meanwhile: impl FnOnce()) -> LostReason {
    let polls = AtomicUsize::new(0);
    let body = poll_fn(|_| {
        polls.fetch_add(1, Ordering::SeqCst);
        Poll::<()>::Pending
    });
    let mut run = pin!(guard.supervise(body));
    let mut context = Context::from_waker(Waker::noop());
    assert!(run.as_mut().poll(&mut context).is_pending());
    meanwhile();
    let Poll::Ready(Err(Interrupted(reason))) = run.as_mut().poll(&mut context) else {
        panic!("polled {polls:?} times, the last one without the lock")
    };
    assert_eq!(polls.load(Ordering::SeqCst), 1);
    reason
}

#[test]
fn g06_a_body_is_not_polled_past_its_limit_though_nobody_has_noticed() {
    let limit = Duration::from_secs(1);
    let guard = unwatched(Some(limit), Validity::unlimited());
    assert_eq!(stopped(&guard, || std::thread::sleep(limit)), LostReason::Overrun);
}

#[cfg(feature = "zookeeper")]
#[test]
fn g07_a_body_is_not_polled_past_its_session_though_nobody_has_noticed() {
    let validity = Validity::until(Tick::now() + Duration::from_secs(1), "");
    let guard = unwatched(None, validity.clone());
    assert_eq!(stopped(&guard, || std::thread::sleep(Duration::from_secs(1))), LostReason::Unconfirmed);
    let validity = Validity::until(Tick::NEVER, "");
    let guard = unwatched(None, validity.clone());
    assert_eq!(stopped(&guard, || validity.end()), LostReason::SessionExpired);
}

/// The clock is trusted for the poll in which it granted the lock, and no longer.
#[cfg(feature = "sqlx")]
#[test]
fn g03_a_body_that_comes_after_the_begin_asks_the_clock() {
    let guard = unwatched(Some(Duration::ZERO), Validity::unlimited());
    let frame = || Frame::body(guard.locks().id(), guard.hold().clone(), true);
    let poll = |frame| {
        let mut run = pin!(guard.supervise_in(frame, poll_fn(|_| Poll::Ready(()))));
        run.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    };
    assert!(matches!(poll(frame()), Poll::Ready(Ok(()))));
    let later = frame();
    later.takes_time();
    assert!(matches!(poll(later), Poll::Ready(Err(Interrupted(LostReason::Overrun)))));
}
