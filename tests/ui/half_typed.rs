use zklock::*;

// What is in the middle of being typed reaches the compiler as it is.
#[zk_lock(path = "/a/{id}")]
async fn f(id: u64) -> Result<u64, Error> {
    let number = id.
    Ok(number)
}

fn main() {}
