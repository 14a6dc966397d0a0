use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    runtime::Handle,
    sync::oneshot::{self, Receiver, Sender, error::RecvError},
};

/// Work that must come to its end: whoever waits for what it replies polls it, and what is left of it when that one has
/// its reply, or goes away before, runs in a task of its own.
///
/// Two hops between threads cheaper than a task from the start.
pub(crate) struct Unbroken<T> {
    /// `None` once it is done.
    work: Option<Work>,
    reply: Receiver<T>,
    /// The runtime that it runs on, whoever polls it.
    runtime: Handle,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<T> Unbroken<T> {
    /// `work` sees by the sender that nobody waits any more.
    pub(crate) fn new<F>(runtime: Handle, work: impl FnOnce(Sender<T>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, reply) = oneshot::channel();
        Self { work: Some(Box::pin(work(sender))), reply, runtime }
    }
}

/// An error when the work came to no reply: it panicked, or the runtime was shut down.
impl<T> Future for Unbroken<T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Taken out, so that what panics is not polled again.
        if let Some(mut work) = this.work.take() {
            let _runtime = this.runtime.enter();
            if work.as_mut().poll(context).is_pending() {
                this.work = Some(work);
            }
        }
        Pin::new(&mut this.reply).poll(context)
    }
}

impl<T> Drop for Unbroken<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            // Before it runs on, so that it does not reply to nobody.
            self.reply.close();
            drop(self.runtime.spawn(work));
        }
    }
}
