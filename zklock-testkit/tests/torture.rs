//! The torture run, for a short time.

use std::process::Command;

#[test]
fn nothing_that_must_not_be() {
    let run = Command::new(env!("CARGO_BIN_EXE_torture")).args(["--minutes", "0.4"]).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
    println!("{said}");
}
