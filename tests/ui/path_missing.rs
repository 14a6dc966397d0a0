use zklock::*;

#[zk_lock]
async fn bare() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(fair, timeout = "5s")]
async fn others() -> Result<(), Error> {
    Ok(())
}

fn main() {}
