use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::error::Error;

/// Drops a future at each point where its caller could, and lets `check` look for what it left
/// behind: a node, an open transaction, a pool's permit.
///
/// `future` makes the future anew for each try. The first is dropped before it is polled, the next
/// after it was polled once, and so on until one completes. Each number of polls is tried twice: the
/// future is dropped as soon as it has to wait, and dropped when what it waits for has come, but it
/// has not seen it yet; the lock was granted, say, to somebody who is gone. `check` is awaited after
/// each drop and panics when it finds something.
///
/// What the futures have in common, connections for instance, is made before and borrowed.
///
/// # Errors
///
/// [`Error::Deadline`] if a future waits for longer than 30 s.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), zklock_testkit::Error> {
/// use tokio::sync::Semaphore;
///
/// let permits = Semaphore::new(1);
/// let work = async || {
///     let _permit = permits.acquire().await;
///     tokio::task::yield_now().await;
/// };
/// let fuzzed = zklock_testkit::drop_fuzz(work, async |moment| {
///     assert_eq!(permits.available_permits(), 1, "dropped {moment}");
/// })
/// .await?;
/// assert_eq!(fuzzed.polls, 2);
/// # Ok(())
/// # }
/// ```
pub async fn drop_fuzz<F: Future>(
    future: impl FnMut() -> F,
    check: impl AsyncFnMut(DropMoment),
) -> Result<DropFuzzed<F::Output>, Error> {
    drop_fuzz_within(Duration::from_secs(30), future, check).await
}

async fn drop_fuzz_within<F: Future>(
    deadline: Duration,
    mut future: impl FnMut() -> F,
    mut check: impl AsyncFnMut(DropMoment),
) -> Result<DropFuzzed<F::Output>, Error> {
    for polls in 0.. {
        for woken in [false, true] {
            if polls == 0 && woken {
                continue;
            }
            let moment = DropMoment { polls, woken };
            if let Some(output) = run_until(deadline, future(), moment).await? {
                return Ok(DropFuzzed { polls, output });
            }
            check(moment).await;
        }
    }
    unreachable!("no future is polled without end")
}

/// When [`drop_fuzz`] dropped a future.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DropMoment {
    /// How often it was polled before.
    pub polls: usize,
    /// Whether it had been woken, and would have been polled again.
    pub woken: bool,
}

impl fmt::Display for DropMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} polls{}", self.polls, if self.woken { " and a wake-up" } else { "" })
    }
}

/// What came of [`drop_fuzz`].
#[derive(Debug)]
#[non_exhaustive]
pub struct DropFuzzed<T> {
    /// How many polls it took to complete. If this is 1, nothing was tried but not to begin at all.
    pub polls: usize,
    /// What the one that completed gave.
    pub output: T,
}

/// Drives the future until the moment has come, then drops it; gives its output if it completes
/// before. Polled only when woken, so that others who wake the same task do not count.
async fn run_until<F: Future>(
    deadline: Duration,
    future: F,
    moment: DropMoment,
) -> Result<Option<F::Output>, Error> {
    let mut future = pin!(future);
    let signal = Arc::new(Signal { woken: AtomicBool::new(true), outer: Mutex::new(None) });
    let waker = Waker::from(Arc::clone(&signal));
    let mut polls = 0;
    let run = poll_fn(|outer| {
        signal.report_to(outer.waker());
        loop {
            if polls == moment.polls && !moment.woken {
                return Poll::Ready(None);
            }
            if !signal.woken.swap(false, Ordering::SeqCst) {
                return Poll::Pending;
            }
            if polls == moment.polls {
                return Poll::Ready(None);
            }
            polls += 1;
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(Some(output));
            }
        }
    });
    tokio::time::timeout(deadline, run).await.map_err(|_| Error::Deadline {
        waited_for: format!("a future that was to be dropped {moment}"),
        waited: deadline,
    })
}

struct Signal {
    woken: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Signal {
    fn report_to(&self, outer: &Waker) {
        *self.outer.lock().unwrap_or_else(PoisonError::into_inner) = Some(outer.clone());
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        let outer = self.outer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(outer) = outer {
            outer.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::task::yield_now;

    use super::*;

    /// Every moment at which something was left behind.
    async fn leaks<F: Future>(future: impl FnMut() -> F, left: &Cell<bool>) -> Vec<(usize, bool)> {
        let mut leaks = Vec::new();
        let check = async |moment: DropMoment| {
            if left.replace(false) {
                leaks.push((moment.polls, moment.woken));
            }
        };
        drop_fuzz(future, check).await.unwrap();
        leaks
    }

    #[tokio::test]
    async fn finds_what_is_left_between_two_awaits() {
        let left = Cell::new(false);
        let careless = async || {
            yield_now().await;
            left.set(true);
            yield_now().await;
            left.set(false);
        };
        assert_eq!(leaks(careless, &left).await, [(2, false), (2, true)]);
    }

    /// The lock is handed to somebody who will not come for it.
    #[tokio::test]
    async fn finds_what_is_lost_between_wake_up_and_poll() {
        let lost = Cell::new(false);
        let grants = Rc::new(Cell::new(false));
        let careless = async || {
            let granted = Rc::clone(&grants);
            let (sender, receiver) = tokio::sync::oneshot::channel();
            tokio::task::spawn_local(async move {
                granted.set(true);
                let _ = sender.send(());
            });
            let _ = receiver.await;
            grants.set(false);
        };
        let check = async |moment: DropMoment| {
            lost.set(lost.get() || (moment.woken && grants.replace(false)));
        };
        tokio::task::LocalSet::new().run_until(drop_fuzz(careless, check)).await.unwrap();
        assert!(lost.get());
    }

    #[tokio::test]
    async fn says_when_a_future_never_wakes() {
        let never = std::future::pending::<()>;
        let error = drop_fuzz_within(Duration::from_millis(20), never, async |_| {}).await.unwrap_err();
        assert!(error.to_string().contains("after 1 polls and a wake-up"), "{error}");
    }

    #[tokio::test]
    async fn the_first_is_never_polled() {
        let (polled, mut moments) = (Cell::new(0), Vec::new());
        let once = async || polled.set(polled.get() + 1);
        let fuzzed = drop_fuzz(once, async |moment| moments.push(moment)).await.unwrap();
        assert_eq!((fuzzed.polls, polled.get()), (1, 1));
        assert_eq!(moments, [DropMoment { polls: 0, woken: false }]);
    }
}
