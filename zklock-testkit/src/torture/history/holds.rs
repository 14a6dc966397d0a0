use std::collections::{BTreeMap, BTreeSet};

use super::{Excuse, History, Violation, Work, ensemble_of, process_of, same_ensemble};

/// One holder at a time, in the order of the tokens, nobody past one who waits.
pub(super) fn check(history: &History, works: &BTreeMap<&str, Work<'_>>, violations: &mut Vec<Violation>) {
    let mut paths: BTreeMap<&str, Vec<Hold<'_>>> = BTreeMap::new();
    for (op, work) in works {
        if let (Some((begin, end)), Some((_, token))) = (work.hold(), work.granted) {
            paths.entry(work.path).or_default().push(Hold { op, fair: work.fair, token, begin, end });
        }
    }
    for (path, mut holds) in paths {
        holds.sort_by_key(|hold| hold.begin);
        overlaps(path, &holds, history, violations);
        order(path, &holds, violations);
    }
    overtaken(works, violations);
}

/// The lock was surely held from begin to end.
struct Hold<'h> {
    op: &'h str,
    fair: bool,
    token: &'h str,
    begin: u64,
    end: u64,
}

fn overlaps(path: &str, holds: &[Hold<'_>], history: &History, violations: &mut Vec<Violation>) {
    let mut longest: Option<&Hold<'_>> = None;
    for hold in holds {
        if let Some(earlier) = longest
            && hold.begin < earlier.end
            && !expired(earlier, history)
            && !expired(hold, history)
        {
            violations.push(Violation::Overlap {
                path: path.to_owned(),
                first: earlier.op.to_owned(),
                second: hold.op.to_owned(),
                nanos: earlier.end.min(hold.end) - hold.begin,
            });
        }
        if longest.is_none_or(|earlier| hold.end > earlier.end) {
            longest = Some(hold);
        }
    }
}

/// Somebody ended its session behind its back, while it held the lock.
fn expired(hold: &Hold<'_>, history: &History) -> bool {
    history.faults.iter().any(|fault| {
        matches!(&fault.excuse, Excuse::Expired(process) if process == process_of(hold.op))
            && fault.begin <= hold.end
            && fault.end >= hold.begin
    })
}

fn order(path: &str, holds: &[Hold<'_>], violations: &mut Vec<Violation>) {
    let mut highest: Option<&Hold<'_>> = None;
    let mut gone = BTreeSet::new();
    for hold in holds {
        if let Some(earlier) = highest.filter(|earlier| !same_ensemble(earlier.token, hold.token)) {
            gone.insert(ensemble_of(earlier.token));
            if gone.contains(ensemble_of(hold.token)) {
                let (path, earlier, later) = (path.to_owned(), earlier.op.to_owned(), hold.op.to_owned());
                violations.push(Violation::OldEnsemble { path, earlier, later });
            }
            highest = Some(hold);
            continue;
        }
        if let Some(earlier) = highest.filter(|earlier| hold.token <= earlier.token) {
            let (path, earlier, later) = (path.to_owned(), earlier.op.to_owned(), hold.op.to_owned());
            // On a fair path a token is the place in the queue.
            violations.push(if hold.fair {
                Violation::OutOfOrder { path, earlier, later }
            } else {
                Violation::TokenRegression { path, earlier, later }
            });
        } else {
            highest = Some(hold);
        }
    }
}

/// Who was granted a fair lock while the server had somebody in front of him who waited, and went on to wait.
fn overtaken(works: &BTreeMap<&str, Work<'_>>, violations: &mut Vec<Violation>) {
    for (op, work) in works {
        let (Some((asked, ahead)), Some((_, held))) = (work.queue, work.hold()) else { continue };
        if held < asked {
            continue;
        }
        for waiter in ahead {
            let Some(other) = works.get(waiter.as_str()) else { continue };
            let had_it = other.granted.is_some_and(|(granted, _)| granted < held);
            let left = other.over.is_some_and(|over| over < held);
            if !had_it && !left {
                violations.push(Violation::Overtaken {
                    path: work.path.to_owned(),
                    waiter: waiter.clone(),
                    by: (*op).to_owned(),
                });
            }
        }
    }
}
