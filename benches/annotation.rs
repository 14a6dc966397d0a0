//! What the attribute costs: the same function plain and annotated, on locks in memory that nobody else wants.
#![allow(missing_docs)]

mod common;

use std::hint::black_box;

use common::at_once;
use divan::{Bencher, Divan};
use zklock::{Error, Guard, Locks, zk_lock};

fn main() {
    // Many calls a sample: a clock that is read for each would be a good part of the figure. `fastest` says most where
    // others are at work on the machine.
    Divan::from_args().sample_size(100).sample_count(500).main();
}

#[divan::bench]
fn plain(bencher: Bencher<'_, '_>) {
    #[expect(clippy::unused_async, reason = "as the annotated ones are")]
    async fn add(id: u64) -> Result<u64, Error> {
        Ok(black_box(id) + 1)
    }
    bencher.bench_local(|| at_once(add(black_box(41))));
}

/// Plus what a path costs that is a constant.
#[divan::bench]
fn fixed_path(bencher: Bencher<'_, '_>) {
    #[zk_lock(path = "/jobs/nightly", locks = locks)]
    async fn add(locks: &Locks, id: u64) -> Result<u64, Error> {
        let _ = locks;
        Ok(black_box(id) + 1)
    }
    let locks = Locks::memory();
    bencher.bench_local(|| at_once(add(&locks, black_box(41))));
}

#[divan::bench]
fn path_of_arguments(bencher: Bencher<'_, '_>) {
    let locks = Locks::memory();
    bencher.bench_local(|| at_once(order(&locks, black_box(41))));
}

/// As services use it: the `Locks` that is installed.
#[divan::bench]
fn installed(bencher: Bencher<'_, '_>) {
    #[zk_lock(path = "/orders/{id}")]
    async fn add(id: u64) -> Result<u64, Error> {
        Ok(black_box(id) + 1)
    }
    Locks::memory().install();
    bencher.bench_local(|| at_once(add(black_box(41))));
}

#[divan::bench]
fn with_guard(bencher: Bencher<'_, '_>) {
    #[zk_lock(path = "/orders/{id}", timeout = "none", wait = "0s", locks = locks)]
    async fn add(locks: &Locks, id: u64, #[guard] guard: &Guard) -> Result<u64, Error> {
        let _ = locks;
        guard.check()?;
        Ok(black_box(id) + 1)
    }
    let locks = Locks::memory();
    bencher.bench_local(|| at_once(add(&locks, black_box(41))));
}

/// Inside a call that has the lock already; the figure is that of both.
#[divan::bench]
fn entered_again(bencher: Bencher<'_, '_>) {
    #[zk_lock(path = "/orders/{id}", locks = locks)]
    async fn outer(locks: &Locks, id: u64) -> Result<u64, Error> {
        order(locks, id).await
    }
    let locks = Locks::memory();
    bencher.bench_local(|| at_once(outer(&locks, black_box(41))));
}

/// Among many others that are held.
#[divan::bench(args = [100, 10_000])]
fn beside(bencher: Bencher<'_, '_>, held: u64) {
    let locks = Locks::memory();
    let _guards: Vec<Guard> = (0..held)
        .map(|id| at_once(locks.mutex(format!("/held/{id}")).timeout(None).acquire()).expect("it is free"))
        .collect();
    bencher.bench_local(|| at_once(order(&locks, black_box(41))));
}

#[zk_lock(path = "/orders/{id}", locks = locks)]
async fn order(locks: &Locks, id: u64) -> Result<u64, Error> {
    let _ = locks;
    Ok(black_box(id) + 1)
}
