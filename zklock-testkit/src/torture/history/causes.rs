use std::collections::BTreeMap;

use super::{History, Outcome, Reach, Violation, Work, process_of};

/// Whoever was told that something failed must have had a fault that reaches him: when nothing is wrong nothing fails,
/// but for bodies that fail by themselves or take too long, and callers who wait too long.
pub(super) fn check(history: &History, works: &BTreeMap<&str, Work<'_>>, violations: &mut Vec<Violation>) {
    for (op, work) in works {
        let Some((outcome, detail)) = work.end else { continue };
        let process = process_of(op);
        let may: Box<dyn Fn(&Reach) -> bool> = match outcome {
            Outcome::Lost | Outcome::Unavailable | Outcome::Backend => {
                Box::new(|reach| reach.locks.include(process))
            }
            Outcome::Fenced
            | Outcome::NotCommitted
            | Outcome::TransactionEnded
            | Outcome::CommitUnknown
            | Outcome::Database => Box::new(|reach| reach.transactions.include(process)),
            // A statement of the body failed; on purpose there is nothing to say about it.
            Outcome::RolledBack if !detail.is_empty() => {
                Box::new(|reach| reach.transactions.include(process))
            }
            Outcome::ForeignFence => Box::new(|reach| reach.ensembles),
            Outcome::Ok
            | Outcome::RolledBack
            | Outcome::Panicked
            | Outcome::Cancelled
            | Outcome::Busy
            | Outcome::Overrun
            | Outcome::Unexpected => continue,
        };
        let (begin, end) = (work.asked, work.over.unwrap_or(u64::MAX));
        let mut faults = history.faults.iter().filter(|fault| fault.begin <= end && fault.end >= begin);
        if !faults.any(|fault| may(&fault.reach)) {
            violations.push(Violation::NoCause { op: (*op).to_owned(), outcome, detail: detail.to_owned() });
        }
    }
}
