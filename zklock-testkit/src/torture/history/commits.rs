use std::collections::{BTreeMap, BTreeSet};

use super::{Excuse, History, Increment, Outcome, Violation, Work, ensemble_of, is_below, same_ensemble};

/// Each increment once, in the order of the tokens, under its lock, and as its caller was told.
pub(super) fn check(history: &History, works: &BTreeMap<&str, Work<'_>>, violations: &mut Vec<Violation>) {
    let mut paths: BTreeMap<&str, Vec<&Increment>> = BTreeMap::new();
    for increment in &history.increments {
        paths.entry(&increment.path).or_default().push(increment);
    }
    for (path, counter) in &history.counters {
        let none = Vec::new();
        lost_updates(path, *counter, paths.get(path.as_str()).unwrap_or(&none), violations);
    }
    for (path, increments) in &paths {
        stale(path, increments, violations);
        late(increments, path, history, works, violations);
    }
    honest(history, works, violations);
}

/// Each increment must have seen all others: the values are 1, 2, 3.. up to what the counter is.
fn lost_updates(path: &str, counter: i64, increments: &[&Increment], violations: &mut Vec<Violation>) {
    let mut values: BTreeMap<i64, &Increment> = BTreeMap::new();
    for increment in increments {
        if let Some(other) = values.insert(increment.value, increment) {
            violations.push(Violation::LostUpdate {
                path: path.to_owned(),
                value: increment.value,
                first: other.op.clone(),
                second: increment.op.clone(),
            });
        }
    }
    if usize::try_from(counter) != Ok(increments.len()) {
        violations.push(Violation::WrongCount {
            path: path.to_owned(),
            counter,
            increments: increments.len(),
        });
    }
}

fn stale(path: &str, increments: &[&Increment], violations: &mut Vec<Violation>) {
    let mut gone = BTreeSet::new();
    for pair in increments.windows(2) {
        // Of two ensembles the later one is that of the later commits: rows are given from one to the next.
        let stale = if same_ensemble(&pair[0].token, &pair[1].token) {
            pair[1].token < pair[0].token
        } else {
            gone.insert(ensemble_of(&pair[0].token));
            gone.contains(ensemble_of(&pair[1].token))
        };
        if stale {
            violations.push(Violation::StaleCommit {
                path: path.to_owned(),
                newer: pair[0].op.clone(),
                stale: pair[1].op.clone(),
            });
        }
    }
}

/// Who has the lock must see all that was done under it before.
fn late(
    increments: &[&Increment],
    path: &str,
    history: &History,
    works: &BTreeMap<&str, Work<'_>>,
    violations: &mut Vec<Violation>,
) {
    for (reader, work) in works.iter().filter(|(_, work)| work.path == path) {
        let (Some((at, seen)), Some((_, held)), Some((_, token))) = (work.read, work.hold(), work.granted)
        else {
            continue;
        };
        if held < at {
            continue;
        }
        for increment in increments.iter().filter(|increment| increment.value > seen) {
            let writer = works.get(increment.op.as_str());
            let since = writer.and_then(|writer| writer.granted).map_or(0, |(granted, _)| granted);
            if is_below(&increment.token, token) && !excused(history, since, at) {
                violations.push(Violation::CommitAfterRelease {
                    path: path.to_owned(),
                    writer: increment.op.clone(),
                    reader: (*reader).to_owned(),
                });
            }
        }
    }
}

fn excused(history: &History, begin: u64, end: u64) -> bool {
    let mut faults = history.faults.iter().filter(|fault| fault.begin <= end && fault.end >= begin);
    faults.any(|fault| fault.excuse != Excuse::None)
}

fn honest(history: &History, works: &BTreeMap<&str, Work<'_>>, violations: &mut Vec<Violation>) {
    let mut committed = BTreeSet::new();
    for Increment { op, token, .. } in &history.increments {
        if !committed.insert(op.as_str()) {
            violations.push(Violation::Twice { op: op.clone() });
        }
        if works.get(op.as_str()).and_then(|work| work.granted).is_none_or(|(_, granted)| granted != token) {
            violations.push(Violation::NotGranted { op: op.clone() });
        }
    }
    for (op, work) in works {
        let Some((outcome, detail)) = work.end else { continue };
        if outcome == Outcome::Unexpected {
            violations.push(Violation::Unexpected { op: (*op).to_owned(), error: detail.to_owned() });
        }
        let is = committed.contains(op);
        if work.increments && outcome.committed().is_some_and(|told| told != is) {
            violations.push(Violation::Dishonest { op: (*op).to_owned(), outcome, committed: is });
        }
    }
}
