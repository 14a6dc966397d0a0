use zklock::*;

// As without the attribute.

#[zk_lock(path = "/a/{id}")]
async fn moved(id: String) -> Result<String, Error> {
    drop(id);
    Ok(id)
}

fn main() {}
