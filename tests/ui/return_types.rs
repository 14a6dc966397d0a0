use zklock::*;

#[derive(Debug)]
struct Mine;

#[zk_lock(path = "/a")]
async fn number() -> u32 {
    1
}

#[zk_lock(path = "/a")]
async fn option() -> Option<u32> {
    None
}

#[zk_lock(path = "/a")]
async fn no_conversion() -> Result<(), Mine> {
    Ok(())
}

#[zk_lock(path = "/a")]
async fn unit() -> () {}

fn main() {}
