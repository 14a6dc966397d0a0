//! See `torture --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    zklock_testkit::torture::main()
}
