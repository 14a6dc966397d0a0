//! Locks in memory, without the attribute: free ones, busy ones, and what is handed over.
#![allow(missing_docs)]

mod common;

use std::{collections::VecDeque, pin::Pin};

use common::{at_once, poll};
use divan::{Bencher, Divan, black_box};
use zklock::{Error, Guard, LockPath, Locks};

fn main() {
    // Many calls a sample: a clock that is read for each would be a good part of the figure. `fastest` says most where
    // others are at work on the machine.
    Divan::from_args().sample_size(100).sample_count(500).main();
}

fn order(id: u64) -> LockPath {
    LockPath::from_segments(["orders", &id.to_string()]).expect("it is a path")
}

#[divan::bench(args = [true, false])]
fn acquire_and_drop(bencher: Bencher<'_, '_>, fair: bool) {
    let (locks, path) = (Locks::memory(), order(42));
    // Dropped here: what a benchmark returns is kept for a while.
    bencher.bench_local(|| drop(at_once(locks.mutex(&path).fair(fair).acquire()).expect("it is free")));
}

/// Each a path that was never used before.
#[divan::bench]
fn acquire_and_drop_new_path(bencher: Bencher<'_, '_>) {
    let locks = Locks::memory();
    let mut id = 0;
    bencher.bench_local(|| {
        id += 1;
        drop(at_once(locks.mutex(order(black_box(id))).acquire()).expect("it is free"));
    });
}

#[divan::bench]
fn acquire_and_release(bencher: Bencher<'_, '_>) {
    let (locks, path) = (Locks::memory(), order(42));
    bencher.bench_local(|| {
        let guard = at_once(locks.mutex(&path).acquire()).expect("it is free");
        at_once(guard.release())
    });
}

#[divan::bench]
fn try_acquire_of_a_busy_one(bencher: Bencher<'_, '_>) {
    let (locks, path) = (Locks::memory(), order(42));
    let _held = at_once(locks.mutex(&path).acquire()).expect("it is free");
    bencher.bench_local(|| {
        let tried = at_once(locks.mutex(&path).try_acquire()).expect("an answer");
        assert!(tried.is_none());
    });
}

/// To the first of so many that wait; the next one queues behind them.
#[divan::bench(args = [1, 100, 10_000])]
fn hand_over(bencher: Bencher<'_, '_>, waiters: usize) {
    let (locks, path) = (Locks::memory(), order(42));
    let wait = || {
        let mut waiter: Waiter = Box::pin(locks.mutex(&path).timeout(None).acquire());
        assert!(poll(waiter.as_mut()).is_pending());
        waiter
    };
    let mut held = Some(at_once(locks.mutex(&path).timeout(None).acquire()).expect("it is free"));
    let mut queue: VecDeque<Waiter> = (1..waiters).map(|_| wait()).collect();
    bencher.bench_local(|| {
        queue.push_back(wait());
        drop(held.take());
        held = queue.pop_front().map(|next| at_once(next).expect("it is handed over"));
    });
}

type Waiter = Pin<Box<dyn Future<Output = Result<Guard, Error>>>>;
