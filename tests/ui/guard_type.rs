use zklock::*;

#[zk_lock(path = "/a")]
async fn f(#[guard] guard: &String) -> Result<(), Error> {
    let _ = guard;
    Ok(())
}

fn main() {}
