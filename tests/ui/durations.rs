use zklock::*;

#[zk_lock(path = "/a", timeout = 5)]
async fn no_unit() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", timeout = "5")]
async fn no_unit_in_text() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", wait = "5 parsecs")]
async fn space() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", wait = 5parsecs)]
async fn unit() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", wait = "soon")]
async fn word() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", wait = "")]
async fn empty() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", timeout = "99999999999999999999h")]
async fn long() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", timeout = true, wait)]
async fn other_kind() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", timeout = "0s", wait = "0s")]
async fn zero() -> Result<(), Error> {
    Ok(())
}

fn main() {}
