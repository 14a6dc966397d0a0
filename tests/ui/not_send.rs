use zklock::*;

use std::rc::Rc;

#[zk_lock(path = "/a/{id}")]
async fn f(id: u64) -> Result<u64, Error> {
    let shared = Rc::new(id);
    tokio::task::yield_now().await;
    Ok(*shared)
}

fn send<T: Send>(_: T) {}

fn check() {
    send(f(1));
}

fn main() {}
