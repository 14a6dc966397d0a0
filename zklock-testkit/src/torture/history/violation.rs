use std::fmt;

use super::Outcome;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are pieces of work, paths and numbers, as `Display` says")]
pub enum Violation {
    /// G1: two guards of one path said that they hold it at one time.
    Overlap { path: String, first: String, second: String, nanos: u64 },
    /// G2: a later grant got a lower token.
    TokenRegression { path: String, earlier: String, later: String },
    /// G9: a fair lock was granted against the order of the queue.
    OutOfOrder { path: String, earlier: String, later: String },
    /// G9: a fair lock was granted past one who waited before.
    Overtaken { path: String, waiter: String, by: String },
    /// G1 or G2: two transactions made the same number of the counter.
    LostUpdate { path: String, value: i64, first: String, second: String },
    /// G1 or G2: the counter is not the number of increments.
    WrongCount { path: String, counter: i64, increments: usize },
    /// G2: a transaction was committed after one of a newer holder.
    StaleCommit { path: String, newer: String, stale: String },
    /// G4: who got the lock did not see what its earlier holder then committed.
    CommitAfterRelease { path: String, writer: String, reader: String },
    /// G3: an increment without a grant, or with another token than that of the grant.
    NotGranted { op: String },
    /// G12: one piece of work was committed twice.
    Twice { op: String },
    /// G12: the caller was told otherwise than it is.
    Dishonest { op: String, outcome: Outcome, committed: bool },
    /// G7, G12: a failure that was told, of a kind that no fault of that time may cause.
    NoCause { op: String, outcome: Outcome, detail: String },
    /// G2: an ensemble's tokens were seen again after those of the next one.
    OldEnsemble { path: String, earlier: String, later: String },
    /// An error that nothing in the run accounts for.
    Unexpected { op: String, error: String },
    /// G8: a contender without a task behind it.
    Orphan { node: String, owner: String },
    /// G5: a transaction that nobody ends.
    OpenTransaction { what: String },
    /// G13: after all faults were over, something did not come to its end.
    NoProgress { what: String },
}

impl Violation {
    /// The kind, for counting.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Overlap { .. } => "overlap",
            Self::TokenRegression { .. } => "token regression",
            Self::OutOfOrder { .. } => "out of order",
            Self::Overtaken { .. } => "overtaken",
            Self::LostUpdate { .. } => "lost update",
            Self::WrongCount { .. } => "wrong count",
            Self::StaleCommit { .. } => "stale commit",
            Self::CommitAfterRelease { .. } => "commit after release",
            Self::NotGranted { .. } => "commit without grant",
            Self::Twice { .. } => "committed twice",
            Self::Dishonest { .. } => "dishonest outcome",
            Self::NoCause { .. } => "failure without a cause",
            Self::OldEnsemble { .. } => "old ensemble",
            Self::Unexpected { .. } => "unexpected error",
            Self::Orphan { .. } => "orphan",
            Self::OpenTransaction { .. } => "open transaction",
            Self::NoProgress { .. } => "no progress",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name())?;
        match self {
            Self::Overlap { path, first, second, nanos } => {
                let millis = nanos / 1_000_000;
                write!(f, "{first} and {second} both held {path}, for at least {millis} ms")
            }
            Self::TokenRegression { path, earlier, later } => {
                write!(f, "{later} held {path} after {earlier}, with a token that is not higher")
            }
            Self::OutOfOrder { path, earlier, later } => {
                write!(f, "{later} held {path} after {earlier}, and stood before it in the queue")
            }
            Self::Overtaken { path, waiter, by } => {
                write!(f, "{by} was granted {path} while {waiter} waited in front of it")
            }
            Self::LostUpdate { path, value, first, second } => {
                write!(f, "{first} and {second} both made {value} of the counter of {path}")
            }
            Self::WrongCount { path, counter, increments } => {
                write!(f, "the counter of {path} is {counter} after {increments} increments")
            }
            Self::StaleCommit { path, newer, stale } => {
                write!(f, "{stale} committed on {path} after {newer}, whose token is higher")
            }
            Self::CommitAfterRelease { path, writer, reader } => {
                write!(
                    f,
                    "{reader} held {path} and did not see what {writer}, an earlier holder, committed then"
                )
            }
            Self::NotGranted { op } => write!(f, "{op} committed without a grant of that token"),
            Self::Twice { op } => write!(f, "{op} is in the database more than once"),
            Self::Dishonest { op, outcome, committed: true } => {
                write!(f, "{op} was told {outcome:?}, and is committed")
            }
            Self::Dishonest { op, outcome, committed: false } => {
                write!(f, "{op} was told {outcome:?}, and is not committed")
            }
            Self::NoCause { op, outcome, detail } => {
                write!(f, "{op} was told {outcome:?} while nothing was wrong that causes it: {detail}")
            }
            Self::OldEnsemble { path, earlier, later } => {
                write!(f, "{later} held {path} after {earlier}, with a token of the ensemble before")
            }
            Self::Unexpected { op, error } => write!(f, "{op} got: {error}"),
            Self::Orphan { node, owner } => write!(f, "{node} of {owner} is left over"),
            Self::OpenTransaction { what } | Self::NoProgress { what } => f.write_str(what),
        }
    }
}
