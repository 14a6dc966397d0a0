use zklock::*;

struct PgConnection;

#[zk_lock(path = "/a", transactional)]
async fn no_tx() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a")]
async fn not_transactional(#[tx] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

#[zk_lock(path = "/a", transactional)]
async fn by_value(#[tx] tx: PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

#[zk_lock(path = "/a", transactional)]
async fn shared(#[tx] tx: &PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

#[zk_lock(path = "/a", transactional)]
async fn opaque(#[tx] tx: &mut impl Send) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

#[zk_lock(path = "/a", transactional)]
async fn two(#[tx] tx: &mut PgConnection, #[tx] other: &mut PgConnection) -> Result<(), Error> {
    let _ = (tx, other);
    Ok(())
}

#[zk_lock(path = "/a")]
async fn two_guards(#[guard] guard: &Guard, #[guard] other: &Guard) -> Result<(), Error> {
    let _ = (guard, other);
    Ok(())
}

#[zk_lock(path = "/a")]
async fn guard_by_value(#[guard] guard: Guard) -> Result<(), Error> {
    let _ = guard;
    Ok(())
}

#[zk_lock(path = "/a")]
async fn guard_mut(#[guard] guard: &mut Guard) -> Result<(), Error> {
    let _ = guard;
    Ok(())
}

#[zk_lock(path = "/a", transactional)]
async fn both(#[tx] #[guard] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

#[zk_lock(path = "/a", transactional)]
async fn arguments(#[tx(pool)] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

#[zk_lock(path = "/a", transactional)]
async fn sometimes(#[cfg(unix)] #[tx] tx: &mut PgConnection) -> Result<(), Error> {
    let _ = tx;
    Ok(())
}

impl PgConnection {
    #[zk_lock(path = "/a", transactional)]
    async fn receiver(#[tx] &mut self) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {}
