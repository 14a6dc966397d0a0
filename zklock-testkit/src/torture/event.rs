//! What a process writes down while it works, one line each.

use serde::{Deserialize, Serialize};

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of `CLOCK_BOOTTIME`, which all processes of a machine share.
    pub at: u64,
    /// Which piece of work, `<process>-<task>-<number>`, unique in a run.
    pub op: String,
    /// What happened to it.
    #[serde(flatten)]
    pub what: What,
}

/// What can happen to a piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// It is about to ask for a lock.
    Asked {
        /// The lock's path.
        path: String,
        /// Whether waiters are served in the order of their coming.
        fair: bool,
        /// Whether it is to increment the counter, in a transaction; else it reads it.
        increments: bool,
    },
    /// It has the lock.
    Granted {
        /// The ensemble and the fencing token in the form that sorts, `<ensemble>/<token>`.
        token: String,
    },
    /// The guard said that the lock is held, when asked after this time.
    Held,
    /// What the server has in front of it in the queue, asked after the grant.
    Queue {
        /// The works that stand there, as far as they give their names.
        ahead: Vec<String>,
    },
    /// What it read from the counter under the lock, outside of any transaction of zklock.
    Read {
        /// The value.
        value: i64,
    },
    /// It is about to be cancelled from outside.
    Leaving,
    /// It is over for its caller.
    End {
        /// How.
        outcome: Outcome,
        /// The error, for people.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        detail: String,
    },
}

/// What the caller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Done; if it had a transaction, that is committed.
    Ok,
    /// The body itself gave an error, so its transaction is rolled back.
    RolledBack,
    /// The body panicked.
    Panicked,
    /// The caller went away.
    Cancelled,
    /// `Error::Busy`.
    Busy,
    /// `Error::Unavailable`.
    Unavailable,
    /// `Error::Overrun`.
    Overrun,
    /// `Error::Lost`.
    Lost,
    /// `Error::Fenced`.
    Fenced,
    /// `Error::ForeignFence`.
    ForeignFence,
    /// `Error::NotCommitted`.
    NotCommitted,
    /// `Error::TransactionEnded`: for all that zklock knows the body has ended it, and some of it stands. Ours never do,
    /// so nothing does.
    TransactionEnded,
    /// `Error::CommitUnknown`.
    CommitUnknown,
    /// `Error::Database`, before the body.
    Database,
    /// `Error::Backend` or `Error::Closed`: servers that go away.
    Backend,
    /// Any other error; nothing in a run should give one.
    Unexpected,
}

impl Outcome {
    /// Whether the transaction took effect, where the caller was told.
    pub(crate) fn committed(self) -> Option<bool> {
        match self {
            Self::Ok => Some(true),
            Self::CommitUnknown | Self::Cancelled => None,
            _ => Some(false),
        }
    }
}
