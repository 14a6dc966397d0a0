use zklock::*;

#[zk_lock(path = "/a", fiar = false)]
async fn misspelled() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", retries = 3)]
async fn unknown() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", write)]
async fn later() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", isolation = "serializable", unfenced)]
async fn misplaced() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", fair, fair = false)]
async fn twice() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a" fair)]
async fn no_comma() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a", 5)]
async fn no_name() -> Result<(), Error> {
    Ok(())
}

fn main() {}
