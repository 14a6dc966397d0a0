use zklock::*;

// As without the attribute.

#[zk_lock(path = "/a/{id}")]
async fn mismatch(id: u64) -> Result<String, Error> {
    Ok(id)
}

#[zk_lock(path = "/a")]
async fn semicolon() -> Result<u64, Error> {
    Ok(1);
}

#[zk_lock(path = "/a")]
async fn question() -> Result<u64, Error> {
    let number = "1".parse::<u64>()?;
    Ok(number)
}

#[zk_lock(path = "/a/{id}")]
async fn method(id: u64) -> Result<u64, Error> {
    Ok(id.frobnicate())
}

fn main() {}
