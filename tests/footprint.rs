//! What a call, a hold and a waiter cost: how often they go to the allocator, and for how much.
//!
//! The bounds are a little above what was counted when they were set; lower them when it gets less.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use allocation_counter::{AllocationInfo, measure};
use zklock::{Error, Guard, Locks, zk_lock};

const MANY: u64 = 10_000;

/// What is resident is so for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[zk_lock(path = "/orders/{id}", locks = locks)]
async fn order(locks: &Locks, id: u64) -> Result<u64, Error> {
    let _ = locks;
    Ok(id)
}

#[zk_lock(path = "/orders/{id}", locks = locks)]
async fn entered_again(locks: &Locks, id: u64) -> Result<u64, Error> {
    order(locks, id).await
}

/// The path, the hold and its place in the call chain.
#[test]
fn an_uncontended_call_allocates_three_times() {
    let _alone = alone();
    let locks = Locks::memory();
    let count = |id| measure(|| assert_eq!(at_once(order(&locks, id)).unwrap(), id));
    // The tables have their size after the first one.
    count(41);
    for id in 42..50 {
        let once = count(id);
        assert_eq!(once.count_total, 3, "{once:?}");
        assert!(once.bytes_total <= 400, "{once:?}");
        assert_eq!(once.bytes_current, 0, "{once:?}");
    }
}

#[test]
fn entering_again_allocates_three_times_more() {
    let _alone = alone();
    let locks = Locks::memory();
    let count = || measure(|| assert_eq!(at_once(entered_again(&locks, 42)).unwrap(), 42));
    count();
    let twice = count();
    assert_eq!(twice.count_total, 3 + 3, "{twice:?}");
    assert_eq!(twice.bytes_current, 0, "{twice:?}");
}

#[test]
fn ten_thousand_held_locks_take_less_than_eight_megabytes() {
    let _alone = alone();
    let locks = Locks::memory();
    let mut guards: Vec<Guard> = Vec::with_capacity(10_000);
    let before = resident();
    let held = measure(|| guards.extend((0..MANY).map(|id| held(&locks, id))));
    let grown = resident().saturating_sub(before);
    println!(
        "a held lock: {} bytes in {} allocations; resident {grown} bytes for all",
        each(&held),
        count(&held)
    );
    assert!(each(&held) <= 500, "{held:?}");
    assert!(grown <= 8_000_000, "{grown}");
    assert_eq!(locks.snapshot().held.len(), guards.len());
    let given_back = measure(|| drop(guards));
    // The tables keep the size that they have had.
    let left = held.bytes_current + given_back.bytes_current;
    println!("left when they are given back: {left} bytes");
    assert!(left <= 1_400_000, "{left}");
}

#[test]
fn ten_thousand_waiters_take_less_than_fifteen_megabytes() {
    let _alone = alone();
    let locks = Locks::memory();
    let held = held(&locks, 0);
    let mut waiters: Vec<Waiter<'_>> = Vec::with_capacity(10_000);
    let before = resident();
    let waiting = measure(|| waiters.extend((0..MANY).map(|_| waiter(&locks))));
    let grown = resident().saturating_sub(before);
    println!(
        "a waiter: {} bytes in {} allocations; resident {grown} bytes for all",
        each(&waiting),
        count(&waiting)
    );
    assert!(each(&waiting) <= 1_275, "{waiting:?}");
    assert!(grown <= 15_000_000, "{grown}");
    assert_eq!(locks.snapshot().waiting.len(), waiters.len());
    // Each is given the lock in its turn, and a hold of its own with it.
    drop(held);
    for mut waiter in waiters {
        assert!(poll(waiter.as_mut()).is_ready());
    }
}

type Waiter<'a> = Pin<Box<dyn Future<Output = Result<u64, Error>> + 'a>>;

fn waiter(locks: &Locks) -> Waiter<'_> {
    #[zk_lock(path = "/held/{id}", locks = locks)]
    async fn wait(locks: &Locks, id: u64) -> Result<u64, Error> {
        let _ = locks;
        Ok(id)
    }
    let mut waiter = Box::pin(wait(locks, 0));
    assert!(poll(waiter.as_mut()).is_pending());
    waiter
}

fn held(locks: &Locks, id: u64) -> Guard {
    at_once(locks.mutex(format!("/held/{id}")).timeout(None).acquire()).unwrap()
}

fn each(info: &AllocationInfo) -> u64 {
    u64::try_from(info.bytes_current).unwrap() / MANY
}

fn count(info: &AllocationInfo) -> u64 {
    u64::try_from(info.count_current).unwrap() / MANY
}

fn at_once<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the lock was not free"),
    }
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Nothing where the system does not say.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}
