//! What the attribute adds to the size of a future: at most 512 bytes, however large the body.
#![allow(missing_docs, clippy::large_futures, clippy::unwrap_used)]

mod recorder;

use recorder::{Connection, take_log};
use zklock::{Error, Guard, Locks, zk_lock};

const ALLOWED: usize = 512;
/// Kept over an await, so that it is part of the future.
type Large = [u8; 4096];

macro_rules! pair {
    ($(#[$attr:meta])* $plain:ident, $locked:ident($($arg:ident: $ty:ty),*) -> $ok:ty $body:block) => {
        async fn $plain($($arg: $ty),*) -> Result<$ok, Error> $body

        $(#[$attr])*
        async fn $locked($($arg: $ty),*) -> Result<$ok, Error> $body
    };
}

pair! {
    #[zk_lock(path = "/small/{id}")]
    small, small_locked(id: u64) -> u64 {
        tokio::task::yield_now().await;
        Ok(id)
    }
}

pair! {
    #[zk_lock(path = "/large/{id}", timeout = "5s", wait = "5s")]
    large_body, large_body_locked(id: u64) -> u8 {
        let mut large: Large = [0; 4096];
        tokio::task::yield_now().await;
        large[1] = 2;
        let _ = id;
        Ok(large[2])
    }
}

/// What is not `Copy`: the compiler keeps the place that such a value was copied from.
struct Order(Large);

impl Order {
    fn total(&self) -> u8 {
        self.0[2]
    }
}

pair! {
    #[zk_lock(path = "/argument/{id}")]
    large_argument, large_argument_locked(id: String, order: Order) -> u8 {
        tokio::task::yield_now().await;
        drop(id);
        Ok(order.total())
    }
}

pair! {
    #[zk_lock(path = "/inner/{id}", locks = locks)]
    large_inner, large_inner_locked(id: u64, locks: &Locks) -> u8 {
        let first = large_body(id).await?;
        let second = large_body(id + 1).await?;
        let _ = locks;
        Ok(first + second)
    }
}

pair! {
    #[zk_lock(path = "/returned/{id}")]
    large_return, large_return_locked(id: u64) -> Box<Large> {
        tokio::task::yield_now().await;
        let _ = id;
        Ok(Box::new([0; 4096]))
    }
}

async fn transactional(id: u64, tx: &mut Connection) -> Result<u8, Error> {
    let mut large: Large = [0; 4096];
    tx.execute("statement").await;
    large[1] = 2;
    let _ = id;
    Ok(large[2])
}

#[zk_lock(path = "/transactional/{id}", timeout = "5s", transactional, crate = crate::recorder)]
async fn transactional_locked(
    id: u64,
    #[tx] tx: &mut Connection,
    #[guard] guard: &Guard,
) -> Result<u8, Error> {
    let mut large: Large = [0; 4096];
    tx.execute("statement").await;
    large[1] = 2;
    guard.check()?;
    let _ = id;
    Ok(large[2])
}

#[track_caller]
fn compare(what: &str, plain: usize, locked: usize) {
    println!("{what}: {plain} bytes, under the lock {locked}");
    assert!(locked <= plain + ALLOWED, "{what}: {plain} bytes, under the lock {locked}");
}

#[test]
fn at_most_512_bytes_are_added() {
    let locks = Locks::memory();
    let large = [0; 4096];
    compare("small", size_of_val(&small(1)), size_of_val(&small_locked(1)));
    compare("large body", size_of_val(&large_body(1)), size_of_val(&large_body_locked(1)));
    compare(
        "large argument",
        size_of_val(&large_argument(String::new(), Order(large))),
        size_of_val(&large_argument_locked(String::new(), Order(large))),
    );
    compare("large inner", size_of_val(&large_inner(1, &locks)), size_of_val(&large_inner_locked(1, &locks)));
    compare("large return", size_of_val(&large_return(1)), size_of_val(&large_return_locked(1)));
}

#[tokio::test]
async fn at_most_512_bytes_are_added_by_a_transaction() {
    let mut connection = Connection::new();
    let plain = size_of_val(&transactional(1, &mut connection));
    compare("transactional", plain, size_of_val(&transactional_locked(1)));
    Locks::memory().scope(transactional_locked(1)).await.unwrap();
    assert!(!take_log().is_empty());
}
