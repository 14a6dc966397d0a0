use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
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
/// Two hops between threads cheaper than a task from the start. Dropping it at any moment is safe: that is what it is for.
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
        // Taken out, so that what panics is not polled again. As a task's, its panic is not its caller's.
        if let Some(mut work) = this.work.take() {
            let _runtime = this.runtime.enter();
            if let Ok(Poll::Pending) = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
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

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;

    use super::*;

    /// Replies in the middle of what it does, between two waits.
    struct Steps {
        before: Notify,
        after: Notify,
        done: Notify,
    }

    static NEVER: Notify = Notify::const_new();

    impl Steps {
        const fn new() -> Self {
            Self { before: Notify::const_new(), after: Notify::const_new(), done: Notify::const_new() }
        }

        async fn run(&'static self, reply: Sender<bool>) {
            self.before.notified().await;
            let is_waited_for = !reply.is_closed();
            let _ = reply.send(is_waited_for);
            self.after.notified().await;
            self.done.notify_one();
        }

        fn start(&'static self) -> Unbroken<bool> {
            Unbroken::new(Handle::current(), |reply| self.run(reply))
        }
    }

    fn is_pending<T>(future: &mut Unbroken<T>) -> bool {
        Pin::new(future).poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn what_is_left_after_the_reply_is_done_too() {
        static STEPS: Steps = Steps::new();
        STEPS.before.notify_one();
        assert_eq!(STEPS.start().await, Ok(true));
        STEPS.after.notify_one();
        STEPS.done.notified().await;
    }

    #[tokio::test]
    async fn who_goes_away_does_not_cut_it_short() {
        static STEPS: Steps = Steps::new();
        for is_begun in [false, true] {
            let mut work = STEPS.start();
            if is_begun {
                assert!(is_pending(&mut work));
            }
            drop(work);
            STEPS.before.notify_one();
            STEPS.after.notify_one();
            STEPS.done.notified().await;
        }
    }

    #[tokio::test]
    async fn it_sees_that_nobody_waits() {
        let (gone, notice) = oneshot::channel();
        let mut work = Unbroken::<()>::new(Handle::current(), |mut reply| async move {
            reply.closed().await;
            let _ = gone.send(());
        });
        assert!(is_pending(&mut work));
        drop(work);
        notice.await.unwrap();
    }

    #[tokio::test]
    async fn its_panic_is_not_its_callers() {
        let work = Unbroken::<()>::new(Handle::current(), |reply| async move {
            let _reply = reply;
            panic!("a driver that panics")
        });
        assert!(work.await.is_err());
    }

    #[test]
    fn it_does_without_the_runtime_of_whoever_polls_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut work = Unbroken::<()>::new(runtime.handle().clone(), |reply| async move {
            tokio::spawn(NEVER.notified());
            NEVER.notified().await;
            drop(reply);
        });
        assert!(is_pending(&mut work));
        drop(work);
        // Nor does it matter that the runtime is gone.
        let mut work = Unbroken::<()>::new(runtime.handle().clone(), |reply| async move {
            NEVER.notified().await;
            drop(reply);
        });
        assert!(is_pending(&mut work));
        drop(runtime);
        drop(work);
    }
}
