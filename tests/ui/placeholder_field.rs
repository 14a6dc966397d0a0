use zklock::*;

struct Order {
    id: u64,
}

#[zk_lock(path = "/orders/{order.di}")]
async fn f(order: Order) -> Result<u64, Error> {
    Ok(order.id)
}

fn main() {}
