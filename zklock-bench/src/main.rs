//! Measures zklock beside raw nodes, Curator, kazoo and other locks, all in one run; `--help` says how.

// What is counted here has no digits to lose.
#![allow(clippy::cast_precision_loss)]

mod args;
mod bench;
mod clock;
mod contestant;
mod launch;
mod peer;
mod protocol;
mod report;
mod results;
mod running;
mod servers;
mod stats;
mod team;
mod together;
mod workload;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [word, contestant, address] if word == peer::WORD => peer::main(contestant, address),
        _ => bench::main(&args::Args::parse().into_plan()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zklock-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
