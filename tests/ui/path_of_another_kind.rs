use zklock::*;

#[zk_lock(path = 5)]
async fn number() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path)]
async fn no_value() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = )]
async fn empty_value() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = ["/a", "/b"])]
async fn list() -> Result<(), Error> {
    Ok(())
}

fn main() {}
