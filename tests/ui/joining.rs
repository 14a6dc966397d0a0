use zklock::*;

struct PgConnection;

#[zk_lock(path = "/a", transactional(pool = tx))]
async fn itself(#[tx] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

#[zk_lock(path = "/a", transactional(pool = outer, requires_new))]
async fn requires_new(outer: &mut PgConnection, #[tx] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = (outer, tx);
    Ok(())
}

#[zk_lock(path = "/a", transactional(pool = &mut *outer, isolation = "serializable"))]
async fn isolation(outer: &mut PgConnection, #[tx] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = (outer, tx);
    Ok(())
}

fn main() {}
