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

struct Mine;

impl From<Error> for Mine {
    fn from(_: Error) -> Self {
        Self
    }
}

#[zk_lock(path = "/a")]
async fn question() -> Result<u64, Mine> {
    let number = "1".parse::<u64>()?;
    Ok(number)
}

#[zk_lock(path = "/a/{id}")]
async fn method(id: u64) -> Result<u64, Error> {
    Ok(id.frobnicate())
}

fn main() {}
