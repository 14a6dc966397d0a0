//! Looks through what all processes wrote down for anything that must not be.

mod causes;
mod commits;
mod holds;
mod reach;
#[cfg(test)]
mod tests;
mod violation;

use std::collections::BTreeMap;

pub use self::reach::{Reach, Whose};
pub use self::violation::Violation;
use super::event::{Event, Outcome, What};

/// All that is known of a run.
#[derive(Debug, Default)]
pub struct History {
    /// The logs of all processes, in any order.
    pub events: Vec<Event>,
    /// The increments that the database has, in the order of their commits.
    pub increments: Vec<Increment>,
    /// The counters that the database has in the end, by path.
    pub counters: BTreeMap<String, i64>,
    /// What was done to the run.
    pub faults: Vec<FaultWindow>,
}

/// One committed increment of a counter, written in the transaction that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Increment {
    /// The path of the lock, which names the counter too.
    pub path: String,
    /// What the counter became.
    pub value: i64,
    /// The fencing token of the lock that it was made under.
    pub token: String,
    /// The piece of work that made it.
    pub op: String,
}

/// A fault, from when it was about to begin until it was over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultWindow {
    /// What it was, for people.
    pub fault: String,
    /// When it began, by the clock of the events.
    pub begin: u64,
    /// When it was over.
    pub end: u64,
    /// Which promise it may excuse from.
    pub excuse: Excuse,
    /// Whom it may disturb, with all promises kept.
    pub reach: Reach,
}

/// What a lock service cannot help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Excuse {
    /// Nothing: all promises hold through it.
    None,
    /// A COMMIT that was allowed may arrive late: it was kept on the wire, or its process was stopped between the
    /// last look at the clock and the sending. The fence keeps it from doing harm to transactions, not to readers.
    LateCommit,
    /// Somebody else ended the session of this process, who cannot know it before the server tells.
    Expired(String),
}

/// Gives all that is wrong, nothing if all is well.
pub fn check(history: &History) -> Vec<Violation> {
    let works = works(&history.events);
    let mut violations = Vec::new();
    holds::check(history, &works, &mut violations);
    commits::check(history, &works, &mut violations);
    causes::check(history, &works, &mut violations);
    violations
}

/// What happened to one piece of work, in its own order.
#[derive(Debug, Default)]
struct Work<'h> {
    path: &'h str,
    asked: u64,
    fair: bool,
    increments: bool,
    granted: Option<(u64, &'h str)>,
    /// The last time that the lock was surely held.
    held_until: Option<u64>,
    /// What stood in front of it, and when it was asked for.
    queue: Option<(u64, &'h [String])>,
    read: Option<(u64, i64)>,
    /// When it was cancelled or told its outcome, whichever was first.
    over: Option<u64>,
    end: Option<(Outcome, &'h str)>,
}

impl Work<'_> {
    /// From when to when the lock was surely held: from the time read after the grant to one read before a guard
    /// said that it is held, since a guard that says so has held it all the time in between.
    fn hold(&self) -> Option<(u64, u64)> {
        let (granted, _) = self.granted?;
        self.held_until.filter(|until| *until >= granted).map(|until| (granted, until))
    }
}

fn works(events: &[Event]) -> BTreeMap<&str, Work<'_>> {
    let mut works: BTreeMap<&str, Work<'_>> = BTreeMap::new();
    for Event { at, op, what } in events {
        let work = works.entry(op).or_default();
        match what {
            What::Asked { path, fair, increments } => {
                (work.path, work.fair, work.increments) = (path, *fair, *increments);
                work.asked = *at;
            }
            What::Granted { token } => work.granted = Some((*at, token)),
            What::Held => work.held_until = work.held_until.max(Some(*at)),
            What::Queue { ahead } => work.queue = Some((*at, ahead)),
            What::Read { value } => work.read = Some((*at, *value)),
            What::Leaving => work.over = work.over.or(Some(*at)),
            What::End { outcome, detail } => {
                work.over = work.over.or(Some(*at));
                work.end = Some((*outcome, detail));
            }
        }
    }
    works
}

/// The process of a piece of work.
fn process_of(op: &str) -> &str {
    op.split_once('-').map_or(op, |(process, _)| process)
}

/// Whether the token `earlier` is surely below `later`, for tokens as the logs have them, `<ensemble>/<token>`. Those of
/// two ensembles do not compare.
fn is_below(earlier: &str, later: &str) -> bool {
    same_ensemble(earlier, later) && earlier < later
}

fn same_ensemble(one: &str, other: &str) -> bool {
    ensemble_of(one) == ensemble_of(other)
}

fn ensemble_of(token: &str) -> &str {
    token.split_once('/').map_or("", |(ensemble, _)| ensemble)
}
