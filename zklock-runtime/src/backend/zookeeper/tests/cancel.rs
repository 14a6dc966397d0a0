use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    super::{answer::Setback, attempt::Attempt, fair as fair_lock, plain as plain_lock},
    support::{Peer, SOON, chroot, count, release, request, until},
};
use crate::{backend::Request, hold::Hold};

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
    let handle = session.handle.clone();
    let (call, mut answer) = peer.call(request);
    let task = handle.spawn(async move {
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

impl Peer {
    async fn acquired(&self, path: &str, is_fair: bool) -> Arc<Hold> {
        if is_fair { self.lock(path).await } else { self.run_for(path).await }
    }
}
