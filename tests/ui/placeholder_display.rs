use zklock::*;

struct Order {
    tags: Vec<String>,
}

#[zk_lock(path = "/orders/{order.tags}")]
async fn f(order: Order) -> Result<usize, Error> {
    Ok(order.tags.len())
}

fn main() {}
