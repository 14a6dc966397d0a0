use zklock::*;

#[zk_lock(path = "orders/{id}")]
async fn relative(id: u64) -> Result<(), Error> {
    let _ = id;
    Ok(())
}

#[zk_lock(path = "/")]
async fn root() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/orders/")]
async fn slash_at_the_end() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/orders//1")]
async fn empty_segment() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/orders/./..")]
async fn dots() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/orders/%2F~")]
async fn reserved() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/orders/\n")]
async fn control() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/orders/😀")]
async fn emoji() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/zookeeper/quota")]
async fn servers_own() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/orders/_c_x")]
async fn contender() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/orders/x-lock-1")]
async fn contender_inside() -> Result<(), Error> {
    Ok(())
}

fn main() {}
