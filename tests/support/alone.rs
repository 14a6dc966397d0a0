use std::{env, process::Command};

const ALONE: &str = "ZKLOCK_TEST_ALONE";

/// Runs the test `name` in a process of its own, where no other test's threads, sockets or children are. True in that
/// process, which then does the work; in the first one it returns when that is done.
///
/// # Panics
///
/// If the test fails there.
pub(crate) fn alone(name: &str) -> bool {
    if env::var(ALONE).is_ok_and(|alone| alone == name) {
        return true;
    }
    let program = env::current_exe().expect("a test is a program");
    let run = Command::new(program).args(["--exact", name, "--nocapture"]).env(ALONE, name).output();
    let run = run.expect("the program that is running can be run");
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && output.contains("1 passed"),
        "{name} alone: {}\n{output}\n{}",
        run.status,
        String::from_utf8_lossy(&run.stderr)
    );
    false
}
