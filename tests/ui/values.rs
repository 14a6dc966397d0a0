use zklock::*;

#[zk_lock(path = "/a", fair = "yes")]
async fn flag() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", locks)]
async fn locks() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", crate)]
async fn krate() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", crate = "zklock")]
async fn krate_text() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", on_error = |_| Ok(()))]
async fn closure() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", on_error)]
async fn no_function() -> Result<(), Error> {
    Ok(())
}

fn main() {}
