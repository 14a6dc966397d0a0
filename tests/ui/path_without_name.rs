use zklock::*;

#[zk_lock("/orders/{id}")]
async fn f(id: u64) -> Result<(), Error> {
    let _ = id;
    Ok(())
}

fn main() {}
