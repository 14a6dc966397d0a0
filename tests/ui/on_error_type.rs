use zklock::*;

fn handle(_: Error) -> String {
    String::new()
}

#[zk_lock(path = "/a", on_error = handle)]
async fn f() -> u32 {
    1
}

fn main() {}
