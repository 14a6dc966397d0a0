//! Holders of zklock's locks, in processes of their own, while all around them fails at random; and a look through
//! what they wrote down for anything that must not be.
//!
//! `cargo run --release -p zklock-testkit --bin torture -- --minutes 2 --seed 1`
//!
//! Two hands make faults at a time: one those of the lock service, its network and its operators, the other those of
//! the processes, the database and the way there. Each deals its kinds of faults from a deck, so that a few minutes have
//! all of them, and all are counted and printed. A fault says two things of itself: which promise it excuses from
//! ([`Excuse`]), which is close to none, and whom it may disturb with all promises kept ([`Reach`]): an error that is told to
//! a caller while nothing reaches him is a violation.
//!
//! The seed decides what is done, and not when it meets what: a run cannot be repeated to the letter.

mod args;
mod event;
mod faults;
mod history;
mod holder;
mod log;
mod operator;
mod process_faults;
mod processes;
mod random;
mod record;
mod stalls;
mod supervisor;
mod work;

use std::process::ExitCode;

use self::args::Args;
pub use self::event::{Event, Outcome, What};
pub use self::history::{Excuse, FaultWindow, History, Increment, Reach, Violation, Whose, check};

/// The program: a failure if anything was wrong, 2 if it could not be run.
pub fn main() -> ExitCode {
    let done = Args::parse(std::env::args().skip(1), crate::random::random())
        .map_err(|wrong| format!("{wrong}\n\n{}", args::USAGE));
    let done = done.and_then(|args| run(args).map_err(|error| error.to_string()));
    done.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}

fn run(args: Args) -> Result<ExitCode, crate::Error> {
    let start = |mut runtime: tokio::runtime::Builder| {
        runtime.enable_all().build().map_err(crate::Error::io("starting a runtime"))
    };
    match args {
        Args::Help => {
            println!("{}", args::USAGE);
            Ok(ExitCode::SUCCESS)
        }
        // On one thread: the holders end with the thread that started them.
        Args::Supervisor(supervision) => {
            start(tokio::runtime::Builder::new_current_thread())?.block_on(supervisor::run(supervision))
        }
        Args::Holder(holding) => {
            start(tokio::runtime::Builder::new_multi_thread())?.block_on(holder::run(holding))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
