use std::{fmt::Write as _, fs, path::Path, time::Duration};

use anyhow::Context as _;

use super::{
    machine, plots,
    tables::{markdown, table},
    targets::targets,
};
use crate::{
    args::Plan,
    results::Results,
    servers::{BRIEF_WARM_UP, Setup, WARM_UP},
};

/// Writes the page, and its pictures into a folder of its name beside it.
pub(crate) fn write(out: &Path, results: &Results, plan: &Plan, took: Duration) -> anyhow::Result<()> {
    let pictures = out.with_extension("");
    fs::create_dir_all(&pictures).with_context(|| format!("making {}", pictures.display()))?;
    let plots = plots::plots(results);
    for plot in &plots {
        let file = pictures.join(plot.file);
        fs::write(&file, plot.chart.to_svg()).with_context(|| format!("writing {}", file.display()))?;
    }
    let folder = pictures.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut page = head(plan, took);
    page.push_str(&summary(results));
    if !plots.is_empty() {
        page.push_str("## Curves\n\n");
        for plot in plots {
            // Writing to a String does not fail.
            let _ = writeln!(page, "![{}]({folder}/{})\n", plot.chart.title, plot.file);
        }
    }
    page.push_str("## Everything\n\n");
    for case in results.cases() {
        let _ = writeln!(page, "### {case}\n\n{}", table(results, case));
    }
    page.push_str(&how());
    fs::write(out, page).with_context(|| format!("writing {}", out.display()))
}

/// What was reached, for a terminal too.
pub(crate) fn summary(results: &Results) -> String {
    let mut rows = vec![["", "target", "measured", ""].map(str::to_owned).to_vec()];
    for target in targets(results) {
        rows.push(vec![
            target.what.to_owned(),
            target.limits(),
            target.measured(),
            target.verdict().to_owned(),
        ]);
    }
    format!(
        "## Targets\n\nOn {}. Throughputs and latencies are multiples of what the other reached in the same round with the same \
         number of tasks.\n\n{}\n",
        Setup::MAIN,
        markdown(&rows)
    )
}

fn head(plan: &Plan, took: Duration) -> String {
    let machine: Vec<_> = std::iter::once(vec![String::new(), String::new()])
        .chain(machine::describe().into_iter().map(|(name, value)| vec![name.to_owned(), value]))
        .collect();
    let skipped = match &plan.skip[..] {
        [] => String::new(),
        skipped => format!(" Left out by name: {}.", skipped.join(", ")),
    };
    format!(
        "# Benchmarks\n\n\
         This page is written by `cargo run --release -p zklock-bench -- all`; no figure is typed in. Medians of {} rounds with \
         {} s for each run, {} minutes in all.{skipped}\n\n\
         ## The machine\n\n{}\n",
        plan.rounds,
        plan.time.as_secs_f64(),
        took.as_secs().div_ceil(60),
        markdown(&machine)
    )
}

fn how() -> String {
    format!(
        "## How it is measured\n\n\
         - The servers are warmed up before anybody is measured: 64 tasks create and delete nodes, one by one and several in a \
         request, until that gets no quicker, for at most {WARM_UP} s ({BRIEF_WARM_UP} s on setups beside that of the targets).\n\
         {HOW}"
    )
}

const HOW: &str = "\
- All contestants of a table run once in each round, one after the other, on the same servers; who begins changes from
  round to round. Ratios are formed within a round, and the median of them is shown.
- Each is a process of its own, connected before the clock starts and warmed up; Java for some seconds, and then kept for all
  rounds. Those in Rust have two worker threads. Sessions have a timeout of 30 s.
- *Raw* makes an ephemeral sequential node and deletes it, each task in a directory of its own, or all in one: no lock, but
  what every lock of ZooKeeper needs at least.
- zklock is used as the attribute does it: the guard is dropped and nobody waits for the delete. The clock stops when the last
  delete is done.
- FIFO is checked on one path: the fencing token of each holder, which is the transaction that made its node, is larger than that of
  the holder before it. A run in which it is not ends the bench.
- A hand-over is from the call that gives back in one process to the grant in another, by the clock that all processes
  share; each holds for a millisecond, so that the queue is never empty. Two holds that overlap end the bench.
- Requests are what the servers count as received, heartbeats and the bench's own few questions included.
- Memory is the growth of the process's resident set from before the first of the held locks to after the last.
- Setups beside that of the targets are measured in at most three rounds of half the time, without kazoo, Redis, etcd and PostgreSQL.
  Redis, etcd and PostgreSQL are single servers that force what they write to the disk; they are compared on one server with
  fsync, where they are installed.
- The servers of an ensemble talk to one another through proxies of the testkit, which costs all alike.
";
