use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use super::call::Call;

/// Tells a waiter that its standing may be another one: a call that waits without a task, or the task that it has once there
/// was more to do than to wait.
#[derive(Default)]
pub(super) struct Bell(Mutex<Listener>);

#[derive(Default)]
enum Listener {
    #[default]
    None,
    /// Whoever listens next hears it.
    Rung,
    Call(Arc<Call>),
    Task(Waker),
}

impl Bell {
    /// From any thread, and under the lock of what the waiter stands in.
    pub(super) fn ring(&self) {
        let listener = std::mem::replace(&mut *self.listener(), Listener::Rung);
        match listener {
            Listener::None | Listener::Rung => {}
            Listener::Call(call) => call.is_told(),
            Listener::Task(waker) => waker.wake(),
        }
    }

    /// What was waited for has come: a call without a task hears of it by itself.
    pub(super) fn is_over(&self) {
        let listener = std::mem::replace(&mut *self.listener(), Listener::Rung);
        if let Listener::Task(waker) = listener {
            waker.wake();
        }
    }

    /// Has `call` go on when it rings. False: it has rung already.
    pub(super) fn is_heard_by(&self, call: &Arc<Call>) -> bool {
        let mut listener = self.listener();
        match *listener {
            Listener::Rung => false,
            Listener::None | Listener::Call(_) | Listener::Task(_) => {
                let replaced = std::mem::replace(&mut *listener, Listener::Call(call.clone()));
                drop(listener);
                drop(replaced);
                true
            }
        }
    }

    /// Resolves when it has rung since the last time. For one task at a time. Cancel-safe.
    pub(super) async fn rings(&self) {
        poll_fn(|context| {
            let mut listener = self.listener();
            if let Listener::Rung = *listener {
                *listener = Listener::None;
                return Poll::Ready(());
            }
            let replaced = std::mem::replace(&mut *listener, Listener::Task(context.waker().clone()));
            drop(listener);
            drop(replaced);
            Poll::Pending
        })
        .await;
    }

    fn listener(&self) -> MutexGuard<'_, Listener> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
