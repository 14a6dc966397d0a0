use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    super::{
        answer::Setback, attempt::Attempt, call::Call, fair as fair_lock, plain as plain_lock,
        session::Session,
    },
    support::{Peer, SOON, chroot, count, release, request, until, within},
};
use crate::{
    backend::{Backend, Request},
    clock::Tick,
    error::{Error, LostReason},
    hold::Hold,
};

/// Polls `future` so many times and then drops it.
struct Polls<F> {
    future: Option<Pin<Box<F>>>,
    left: u32,
}

impl<F: Future> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.future.as_mut().unwrap();
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        self.left -= 1;
        if self.left > 0 {
            return Poll::Pending;
        }
        // Here and now, in the thread that everything else runs on too.
        self.future = None;
        Poll::Ready(None)
    }
}

/// What the backend does for `request`, dropped at the given poll; `None` if it was, or if it was still waiting
/// after a while.
async fn cancelled(peer: &Peer, request: Request, polls: u32) -> Option<Result<Arc<Hold>, Setback>> {
    let session = peer.session().unwrap();
    let tasks = session.tasks.clone();
    let (call, mut answer) = peer.call(request);
    let task = tasks.run(async move {
        let attempt = Attempt { session: &session, call: &call };
        let work = async {
            if call.request.options.fair {
                fair_lock::acquire(&attempt, None).await
            } else {
                plain_lock::acquire(&attempt, None).await
            }
        };
        let polls = Polls { future: Some(Box::pin(work)), left: polls };
        tokio::time::timeout(Duration::from_millis(100), polls).await
    });
    let outcome = task.await.unwrap().ok().flatten()?;
    Some(outcome.map(|()| answer.try_recv().unwrap().unwrap()))
}

#[tokio::test]
async fn a_free_lock_cancelled_at_every_poll_leaves_nothing() {
    let (server, chroot) = chroot("polls").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    for is_fair in [true, false] {
        // Keeps the node above the parents, so that each round takes the same steps.
        let kept = peer.lock(&format!("/{is_fair}/kept")).await;
        let mut polls = 1;
        loop {
            // A path of its own each time, so that the directory and its parent are made too.
            let path = format!("/{is_fair}/{polls}/x");
            let outcome = cancelled(&peer, request(&path, is_fair, SOON), polls).await;
            let node = format!("{}{path}", chroot.path());
            let is_done = outcome.is_some();
            if let Some(outcome) = outcome {
                release(outcome.unwrap()).await;
            } else {
                // Whatever was sent before it was dropped has been answered when this has.
                release(peer.lock("/other").await).await;
            }
            until("nothing is left", async || server.node(&node).await.unwrap().is_none()).await;
            if is_done {
                break;
            }
            polls += 1;
        }
        release(kept).await;
        // While the contender is created in vain, its parent, the contender.
        assert!(polls > 3, "cancelled only before poll {polls}");
    }
    let session = peer.session().unwrap();
    until("the janitor is done", async || session.janitor.deletes().pending == 0).await;
}

#[tokio::test]
async fn a_wait_cancelled_at_every_poll_leaves_nothing_and_blocks_nobody() {
    let (server, chroot) = chroot("waits").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let other = Peer::connect(&chroot.url(), "b").await;
    for is_fair in [true, false] {
        let hold = other.acquired("/a", is_fair).await;
        let alone = usize::from(is_fair);
        for polls in 1..12 {
            let outcome = cancelled(&peer, request("/a", is_fair, SOON), polls).await;
            assert!(outcome.is_none());
            until("only the holder is left", async || count(server, &chroot, "/a").await == alone).await;
        }
        release(hold).await;
        release(peer.acquired("/a", is_fair).await).await;
        until("nothing is left", async || count(server, &chroot, "/a").await == 0).await;
    }
}

/// Without a task: the caller itself asks, and waits behind one of its own session.
#[tokio::test]
async fn a_call_that_is_dropped_leaves_nothing_and_blocks_nobody() {
    let (server, chroot) = chroot("calls").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    for is_fair in [true, false] {
        let path = format!("/{is_fair}");
        // While the answer is on its way.
        for _ in 0..20 {
            let mut asking = peer.acquire(request(&path, is_fair, SOON));
            assert!(polled(&mut asking).await.is_none());
        }
        // While it waits, in front of another one and behind it.
        let hold = peer.acquired(&path, is_fair).await;
        let mut given_up = peer.acquire(request(&path, is_fair, SOON));
        assert!(polled(&mut given_up).await.is_none());
        let session = peer.session().unwrap();
        let is_there = async |number| {
            if is_fair {
                count(server, &chroot, &path).await == number
            } else {
                session.local.queue(&path.as_str().into()).waiting() == number - 1
            }
        };
        until("one waits", async || is_there(2).await).await;
        let kept = peer.start(request(&path, is_fair, SOON));
        until("two wait", async || is_there(3).await).await;
        drop(given_up);
        until("one has left", async || is_there(2).await).await;
        hold.release();
        let next = within(SOON, kept).await.unwrap().unwrap();
        assert!(next.is_held());
        release(next).await;
        drop(session);
        until("nothing is left", async || count(server, &chroot, &path).await == 0).await;
    }
    let session = peer.session().unwrap();
    until("the janitor is done", async || session.janitor.deletes().pending == 0).await;
    assert_eq!(session.local.count(), 0);
}

/// Without a timer, they hear of it only if they are told.
#[tokio::test]
async fn calls_that_wait_without_a_task_hear_of_the_end_of_the_session() {
    let (_, chroot) = chroot("parked").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    for is_fair in [true, false] {
        let hold = peer.acquired(&format!("/{is_fair}"), is_fair).await;
        let session = peer.session().unwrap();
        let (call, answer) = peer.call(request(&format!("/{is_fair}"), is_fair, SOON));
        started(&call, &session);
        until("it waits", async || call.waits_without_a_task()).await;
        session.end(LostReason::SessionExpired);
        // On the next session nobody is before it.
        let next = within(SOON, answer).await.unwrap().unwrap();
        assert!(!call.waits_without_a_task() && next.is_held());
        release(next).await;
        drop(hold);
    }
}

/// As it may be when the session ends at the moment of the call.
#[tokio::test]
async fn calls_on_a_session_that_is_over_go_to_the_next_one() {
    let (_, chroot) = chroot("late").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    for is_fair in [true, false] {
        let path = format!("/{is_fair}");
        let hold = peer.acquired(&path, is_fair).await;
        let session = peer.session().unwrap();
        session.end(LostReason::SessionExpired);
        until("the next one is there", async || {
            peer.session().is_some_and(|next| !Arc::ptr_eq(&next, &session))
        })
        .await;
        let (call, answer) = peer.call(request(&path, is_fair, SOON));
        started(&call, &session);
        release(within(SOON, answer).await.unwrap().unwrap()).await;
        drop(hold);
    }
}

/// Its caller may leave between the answer of the server and the wait.
#[tokio::test]
async fn who_has_left_is_not_kept_waiting() {
    let (server, chroot) = chroot("hasleft").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let session = peer.session().unwrap();
    for is_fair in [true, false] {
        let path = format!("/{is_fair}");
        let hold = peer.acquired(&path, is_fair).await;
        let (call, answer) = peer.call(request(&path, is_fair, SOON));
        call.is_left();
        started(&call, &session);
        // Whatever was sent before has been answered when this has.
        release(peer.lock("/other").await).await;
        assert!(!call.waits_without_a_task());
        if is_fair {
            until("only the holder is left", async || count(server, &chroot, &path).await == 1).await;
        } else {
            assert_eq!(session.local.queue(&path.as_str().into()).waiting(), 0);
        }
        drop(answer);
        release(hold).await;
    }
}

/// Without a timer, it hears of it only if it is told.
#[tokio::test]
async fn a_call_that_waits_without_a_task_hears_that_it_is_first_now() {
    let (_, chroot) = chroot("first").await;
    let [peer, other] = [Peer::connect(&chroot.url(), "a").await, Peer::connect(&chroot.url(), "b").await];
    let session = peer.session().unwrap();
    let hold = other.run_for("/p").await;
    let first = peer.start(request("/p", false, SOON));
    until("one waits", async || session.local.queue(&"/p".into()).waiting() == 1).await;
    let (call, answer) = peer.call(request("/p", false, SOON));
    started(&call, &session);
    until("it waits", async || call.waits_without_a_task()).await;
    first.abort();
    until("it has a task", async || !call.waits_without_a_task()).await;
    release(hold).await;
    release(within(SOON, answer).await.unwrap().unwrap()).await;
}

/// Without a timer, it is answered only if it does not wait.
#[tokio::test]
async fn who_tries_once_does_not_wait_behind_one_of_ours() {
    let (_, chroot) = chroot("once").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    for is_fair in [true, false] {
        let path = format!("/{is_fair}");
        let hold = peer.acquired(&path, is_fair).await;
        let (call, answer) = peer.call(request(&path, is_fair, Duration::ZERO));
        started(&call, &peer.session().unwrap());
        let error = within(SOON, answer).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        release(hold).await;
    }
}

/// Its timer may run out at the moment when the caller goes: set again, it would keep the call, second after second.
#[tokio::test]
async fn nothing_keeps_a_call_whose_caller_has_left() {
    let (_, chroot) = chroot("left").await;
    let peer = Peer::connect(&chroot.url(), "a").await;
    let endless = Request { wait_until: Tick::NEVER, ..request("/a", true, SOON) };
    let (call, answer) = peer.call(endless);
    call.is_left();
    call.is_due();
    let kept = Arc::downgrade(&call);
    drop((call, answer));
    assert!(kept.upgrade().is_none());
}

/// What the caller's thread does first, without the timer.
fn started(call: &Arc<Call>, session: &Arc<Session>) {
    if call.request.options.fair {
        fair_lock::start(call, session);
    } else {
        plain_lock::start(call, session);
    }
}

/// Polls once.
async fn polled<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        Poll::Ready(match Pin::new(&mut *future).poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

impl Peer {
    async fn acquired(&self, path: &str, is_fair: bool) -> Arc<Hold> {
        if is_fair { self.lock(path).await } else { self.run_for(path).await }
    }
}
