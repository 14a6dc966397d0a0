use zklock::*;

struct PgConnection;

#[zk_lock(path = "/a", transactional = true)]
async fn value(#[tx] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

#[zk_lock(path = "/a", transactional(isolaton = "serializable"))]
async fn misspelled(#[tx] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

#[zk_lock(path = "/a", transactional(isolation = "serialisable"))]
async fn level(#[tx] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

#[zk_lock(path = "/a", transactional(isolation = Serializable))]
async fn level_kind(#[tx] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

#[zk_lock(path = "/a", transactional("serializable"))]
async fn no_name(#[tx] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

#[zk_lock(path = "/a", transactional(pool, commit_if = true))]
async fn values(#[tx] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

fn main() {}
