use zklock::*;

struct PgConnection;

// Every mistake of an annotation is reported, and nothing else: its callers and its body are fine.
#[zk_lock(pth = "orders/{id}", timout = 5, fair = maybe, transactional(unfecned))]
async fn f(id: u64, #[tx] tx: &mut PgConnection, #[guard] guard: &Guard) -> Result<u64, Error> {
    let _: (&mut PgConnection, &Guard) = (tx, guard);
    Ok(id)
}

async fn caller() -> Result<u64, Error> {
    f(1).await
}

fn main() {}
