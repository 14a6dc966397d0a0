use zklock::*;

struct Service;

#[zk_lock(path = "/a")]
impl Service {
    async fn f() -> Result<(), Error> {
        Ok(())
    }
}

fn main() {}
