use zklock::{Error, sqlx, zk_lock};

#[zk_lock(path = "/a", transactional)]
async fn f(#[tx] tx: &mut String) -> Result<u32, Error> {
    let _ = tx;
    Ok(1)
}

#[zk_lock(path = "/a", transactional(pool = name))]
async fn g(name: &str, #[tx] tx: &mut sqlx::PgConnection) -> Result<u32, Error> {
    let _ = tx;
    Ok(1)
}

fn main() {}
