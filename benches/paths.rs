//! How long it takes to make a path: as the annotation does of its template, and by hand.
#![allow(missing_docs)]

use divan::{Bencher, Divan, black_box};
use zklock::{
    __private::{Part, path},
    LockPath,
};

fn main() {
    // Many calls a sample: a clock that is read for each would be a good part of the figure. `fastest` says most where
    // others are at work on the machine.
    Divan::from_args().sample_size(100).sample_count(500).main();
}

/// `/orders/{id}`
const ORDER: &[&[Part]] = &[&[Part::Text("orders")], &[Part::Value("id")]];
/// `/tenants/{tenant}/accounts/{from}-{to}`
const TRANSFER: &[&[Part]] = &[
    &[Part::Text("tenants")],
    &[Part::Value("tenant")],
    &[Part::Text("accounts")],
    &[Part::Value("from"), Part::Text("-"), Part::Value("to")],
];

#[divan::bench]
fn template_with_a_number() -> LockPath {
    path(ORDER, &[&black_box(4_200_000)]).expect("it is a path")
}

#[divan::bench]
fn template_with_several_values() -> LockPath {
    path(TRANSFER, &[&black_box("acme"), &black_box(17), &black_box(18)]).expect("it is a path")
}

#[divan::bench]
fn template_with_text_to_escape() -> LockPath {
    path(ORDER, &[&black_box("Müller & Söhne/Köln")]).expect("it is a path")
}

/// As long as a value may be, and longer: it is cut, and hashed.
#[divan::bench(args = [128, 129])]
fn template_with_text_of_length(bencher: Bencher<'_, '_>, length: usize) {
    let value = "x".repeat(length);
    bencher.bench_local(|| path(ORDER, &[&black_box(&value)]).expect("it is a path"));
}

#[divan::bench]
fn ready_text() -> LockPath {
    LockPath::new(black_box("/orders/4200000")).expect("it is a path")
}

#[divan::bench]
fn segments() -> LockPath {
    LockPath::from_segments([black_box("orders"), black_box("4200000")]).expect("it is a path")
}
