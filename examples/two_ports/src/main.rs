//! Two web servers that share one lock.
fn main() {}
