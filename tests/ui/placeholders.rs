use zklock::*;

#[zk_lock(path = "/orders/{a}{b}")]
async fn adjacent(a: u64, b: u64) -> Result<(), Error> {
    let _ = (a, b);
    Ok(())
}

#[zk_lock(path = "/orders/{id")]
async fn open(id: u64) -> Result<(), Error> {
    let _ = id;
    Ok(())
}

#[zk_lock(path = "/orders/id}")]
async fn close(id: u64) -> Result<(), Error> {
    let _ = id;
    Ok(())
}

#[zk_lock(path = "/orders/{}/{id:>4}")]
async fn format(id: u64) -> Result<(), Error> {
    let _ = id;
    Ok(())
}

#[zk_lock(path = "/orders/{1 + 2}/{id.pow(2)}/{std::process::id()}")]
async fn expression(id: u64) -> Result<(), Error> {
    let _ = id;
    Ok(())
}

#[zk_lock(path = "/orders/{oder_id}")]
async fn misspelled(order_id: u64) -> Result<(), Error> {
    let _ = order_id;
    Ok(())
}

#[zk_lock(path = "/orders/{id}")]
async fn unknown(number: u64, amount: u64) -> Result<(), Error> {
    let _ = (number, amount);
    Ok(())
}

#[zk_lock(path = "/orders/{id}")]
async fn no_arguments() -> Result<(), Error> {
    Ok(())
}

struct PgConnection;

#[zk_lock(path = "/orders/{tx.id}/{guard.path()}", transactional)]
async fn injected(#[tx] tx: &mut PgConnection, #[guard] guard: &Guard) -> Result<(), Error> {
    let _ = (tx, guard);
    Ok(())
}

fn main() {}
