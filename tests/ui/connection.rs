use zklock::*;

#[path = "../recorder/mod.rs"]
mod recorder;

#[zk_lock(path = "/a", transactional, crate = crate::recorder)]
async fn f(#[tx] tx: &mut String) -> Result<u32, Error> {
    let _ = tx;
    Ok(1)
}

#[zk_lock(path = "/a", transactional(pool = name), crate = crate::recorder)]
async fn g(name: &str, #[tx] tx: &mut recorder::Connection) -> Result<u32, Error> {
    let _ = tx;
    Ok(1)
}

fn main() {}
