use zklock::*;

#[zk_lock(path = "/a")]
const fn constant() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a")]
extern "C" fn foreign() {}

#[zk_lock(path = "/a")]
fn plain() -> Result<(), Error> {
    Ok(())
}

#[zk_lock(path = "/a")]
fn future() -> impl Future<Output = Result<(), Error>> {
    async { Ok(()) }
}

#[zk_lock(path = "/a")]
async fn returns_nothing() {}

trait Trait {
    #[zk_lock(path = "/a")]
    fn declared(&self) -> impl Future<Output = Result<(), Error>>;
}

fn main() {}
