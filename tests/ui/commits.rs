use zklock::*;

#[path = "../recorder/mod.rs"]
mod recorder;

fn handle(_: Error) -> u32 {
    0
}

#[zk_lock(path = "/a", on_error = handle, transactional, crate = crate::recorder)]
async fn f(#[tx] tx: &mut recorder::Connection) -> u32 {
    let _ = tx;
    1
}

fn is_even(number: &u32) -> bool {
    number.is_multiple_of(2)
}

#[zk_lock(path = "/a", transactional(commit_if = is_even), crate = crate::recorder)]
async fn g(#[tx] tx: &mut recorder::Connection) -> Result<u32, Error> {
    let _ = tx;
    Ok(1)
}

fn main() {}
