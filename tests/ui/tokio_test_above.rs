use zklock::*;

#[tokio::main]
#[zk_lock(path = "/a")]
async fn f() -> Result<(), Error> {
    Ok(())
}

fn main() {}
