use std::{convert::Infallible, error::Error as StdError, fmt, sync::Arc, time::Duration};

use crate::path::LockPath;

/// Why a locked call did not do its work, or may not have done it.
///
/// Each message says what happened, to which path, and what to do next. The variants that decide what a caller
/// may do are few: [`is_retryable`](Error::is_retryable) is true where the same call may simply be made again
/// because it surely had no effect.
///
/// [`CommitUnknown`](Error::CommitUnknown) and [`TransactionEnded`](Error::TransactionEnded) leave it open whether what
/// the body wrote took effect; [`Overrun`](Error::Overrun) and [`Lost`](Error::Lost) say whether it was rolled back.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The lock was not granted within `wait`. The body did not run.
    Busy {
        /// The path that was waited for.
        path: LockPath,
        /// How long it was waited for.
        waited: Duration,
        /// Who held it last, as far as that is known.
        holder: Option<String>,
    },
    /// The body ran into its hold limit (`timeout`). It was stopped, its transaction, if it had one, ended, and the
    /// lock released.
    Overrun {
        /// The path that was held.
        path: LockPath,
        /// How long it was held.
        held: Duration,
        /// Whether all that the body did was in a transaction that is known to be rolled back. Else what it did before it
        /// was stopped stands, or may: where it had no transaction or had ended it by itself, where a call inside of it
        /// had one of its own, where the database did not answer in time.
        rolled_back: bool,
    },
    /// The lock was lost while the body ran. The body was stopped, and its transaction, if it had one, ended.
    Lost {
        /// The path that was held.
        path: LockPath,
        /// What took it.
        reason: LostReason,
        /// As of [`Overrun`](Self::Overrun).
        rolled_back: bool,
    },
    /// A newer holder of the path has already written; this transaction came too late and was rolled back.
    Fenced {
        /// The path that was held.
        path: LockPath,
    },
    /// The fence row of the path was written under another ensemble, whose tokens do not compare with ours.
    ForeignFence {
        /// The path that was held.
        path: LockPath,
        /// The ensemble that wrote the row.
        theirs: String,
        /// The ensemble that this process is connected to.
        ours: String,
    },
    /// The transaction is known not to have been committed.
    NotCommitted {
        /// The path that was held.
        path: LockPath,
        /// Why.
        source: Cause,
    },
    /// COMMIT was sent and no answer came: it may or may not have happened. Look before you repeat the call.
    CommitUnknown {
        /// The path that was held.
        path: LockPath,
        /// What cut the answer off.
        source: Cause,
    },
    /// The transaction had ended, or may have, before its COMMIT was sent: the body ended it with a COMMIT of its own or
    /// with DDL, or the database rolled it back and more statements followed, each of which took effect by itself. Look
    /// before you repeat the call.
    TransactionEnded {
        /// The path that was held.
        path: LockPath,
        /// How it was noticed.
        source: Cause,
    },
    /// The path, or a value put into it, cannot name a lock.
    InvalidPath {
        /// The path, template or value.
        path: String,
        /// The argument whose value is to blame, as it is written in the template.
        argument: Option<String>,
        /// What is wrong with it.
        reason: String,
    },
    /// The path is in use by another kind of lock (`fair` against `fair = false`).
    WrongKind {
        /// The path asked for.
        path: LockPath,
        /// What was found there.
        found: String,
    },
    /// Waiting would never end: the holder waits, itself or through others, for a lock that this call chain holds.
    Deadlock {
        /// The path asked for.
        path: LockPath,
        /// The paths in the circle, in order.
        cycle: Vec<LockPath>,
    },
    /// A transactional function was called inside a transaction of another one in the same database.
    NestedTransaction {
        /// The path asked for.
        path: LockPath,
        /// The function whose transaction is open.
        outer: &'static str,
        /// Why that is not possible as written, and what is.
        reason: &'static str,
    },
    /// No [`Locks`](crate::Locks) is installed, and the annotation names none.
    NotInstalled {
        /// What is missing: a `Locks`, or a pool for the type of database.
        what: &'static str,
    },
    /// No server answered in time.
    Unavailable {
        /// The servers that were tried.
        servers: String,
        /// For how long.
        waited: Duration,
        /// What the last one said.
        source: Option<Cause>,
    },
    /// The servers answered, and refused: a wrong password, a missing right.
    Refused {
        /// The path asked for, where it was about one.
        path: Option<LockPath>,
        /// Which right is missing or which proof was not taken.
        reason: String,
    },
    /// This `Locks` was closed.
    Closed,
    /// An address or an option that cannot work.
    Config {
        /// What is wrong, and what is possible.
        reason: String,
    },
    /// The lock server answered something that zklock cannot go on from.
    Backend {
        /// The path asked for, where it was about one.
        path: Option<LockPath>,
        /// What it answered.
        source: Cause,
    },
    /// The fence table could not be cleaned up or adopted.
    FenceTable {
        /// What the database answered.
        source: Cause,
    },
    /// The database refused, failed, or kept us waiting for the whole hold limit before the body ran; nothing was written.
    Database {
        /// The path that was held.
        path: LockPath,
        /// What it answered.
        source: Cause,
    },
}

impl Error {
    /// Whether the same call may be made again as it is: it surely had no effect, and a later try may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Busy { .. }
            | Self::Lost { rolled_back: true, .. }
            | Self::Fenced { .. }
            | Self::NotCommitted { .. }
            | Self::Deadlock { .. }
            | Self::Unavailable { .. }
            | Self::Database { .. } => true,
            Self::Overrun { .. }
            | Self::Lost { rolled_back: false, .. }
            | Self::ForeignFence { .. }
            | Self::CommitUnknown { .. }
            | Self::TransactionEnded { .. }
            | Self::InvalidPath { .. }
            | Self::WrongKind { .. }
            | Self::NestedTransaction { .. }
            | Self::NotInstalled { .. }
            | Self::Refused { .. }
            | Self::Closed
            | Self::Config { .. }
            | Self::FenceTable { .. }
            | Self::Backend { .. } => false,
        }
    }

    /// The variant in one or two words, for logs and metrics: these do not change, whatever the messages do.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::Overrun { .. } => "overrun",
            Self::Lost { .. } => "lost",
            Self::Fenced { .. } => "fenced",
            Self::ForeignFence { .. } => "foreign fence",
            Self::NotCommitted { .. } => "not committed",
            Self::CommitUnknown { .. } => "commit unknown",
            Self::TransactionEnded { .. } => "transaction ended",
            Self::InvalidPath { .. } => "invalid path",
            Self::WrongKind { .. } => "wrong kind",
            Self::Deadlock { .. } => "deadlock",
            Self::NestedTransaction { .. } => "nested transaction",
            Self::NotInstalled { .. } => "not installed",
            Self::Unavailable { .. } => "unavailable",
            Self::Refused { .. } => "refused",
            Self::Closed => "closed",
            Self::Config { .. } => "config",
            Self::Backend { .. } => "backend",
            Self::FenceTable { .. } => "fence table",
            Self::Database { .. } => "database",
        }
    }

    /// Tells whether all that the body did is known to be rolled back, where the error says so.
    #[cfg(feature = "sqlx")]
    pub(crate) fn with_rolled_back(mut self, known: bool) -> Self {
        if let Self::Overrun { rolled_back, .. } | Self::Lost { rolled_back, .. } = &mut self {
            *rolled_back = known;
        }
        self
    }

    /// Nothing that was done in the transaction stands.
    #[cfg(feature = "sqlx")]
    pub(crate) fn says_undone(&self) -> bool {
        matches!(
            self,
            Self::Overrun { rolled_back: true, .. }
                | Self::Lost { rolled_back: true, .. }
                | Self::NotCommitted { .. }
                | Self::Fenced { .. }
        )
    }

    /// The path that the error is about, where it is about one.
    pub fn path(&self) -> Option<&LockPath> {
        match self {
            Self::Busy { path, .. }
            | Self::Overrun { path, .. }
            | Self::Lost { path, .. }
            | Self::Fenced { path }
            | Self::ForeignFence { path, .. }
            | Self::NotCommitted { path, .. }
            | Self::CommitUnknown { path, .. }
            | Self::TransactionEnded { path, .. }
            | Self::WrongKind { path, .. }
            | Self::Deadlock { path, .. }
            | Self::NestedTransaction { path, .. }
            | Self::Database { path, .. } => Some(path),
            Self::Refused { path, .. } | Self::Backend { path, .. } => path.as_ref(),
            Self::InvalidPath { .. }
            | Self::NotInstalled { .. }
            | Self::Unavailable { .. }
            | Self::Closed
            | Self::FenceTable { .. }
            | Self::Config { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { path, waited, holder } => {
                if *waited < Duration::from_millis(1) {
                    write!(f, "lock \"{path}\" is not free")?;
                } else {
                    write!(f, "lock \"{path}\" was not granted within {waited:.1?}")?;
                }
                if let Some(holder) = holder {
                    write!(f, ", held by {holder}")?;
                }
                f.write_str("; try again later or allow a longer `wait`")
            }
            Self::Overrun { path, held, rolled_back } => write!(
                f,
                "lock \"{path}\" was held for {held:.1?}, past its `timeout`, so the body was stopped{}; do less under \
                 the lock or allow a longer `timeout`",
                stopped(*rolled_back)
            ),
            Self::Lost { path, reason, rolled_back } => write!(
                f,
                "lock \"{path}\" was lost ({reason}), so the body was stopped{}{}",
                stopped(*rolled_back),
                if *rolled_back { "; the call may be repeated" } else { "; look before you repeat the call" }
            ),
            Self::Fenced { path } => write!(
                f,
                "a newer holder of lock \"{path}\" has already written, so this transaction was rolled back; \
                 the call may be repeated"
            ),
            Self::ForeignFence { path, theirs, ours } => write!(
                f,
                "the fence row of lock \"{path}\" was written under ensemble {theirs}, and this is {ours}: if the \
                 locks have moved for good, adopt the row, else connect to the ensemble that the others use"
            ),
            Self::NotCommitted { path, source } => {
                write!(
                    f,
                    "the transaction under lock \"{path}\" was not committed: {source}; the call may be repeated"
                )
            }
            Self::CommitUnknown { path, source } => write!(
                f,
                "the answer to the COMMIT under lock \"{path}\" was lost ({source}): it may have happened, look before \
                 you repeat the call"
            ),
            Self::TransactionEnded { path, source } => write!(
                f,
                "the transaction under lock \"{path}\" had ended before its COMMIT (by a COMMIT, by DDL, or by the \
                 database's own rollback followed by more statements), so some of what the body wrote may stand and \
                 some not; look before you repeat the call: {source}"
            ),
            Self::InvalidPath { path, argument: Some(argument), reason } => {
                write!(f, "the value {path:?} of `{argument}` cannot be put into a lock path: {reason}")
            }
            Self::InvalidPath { path, argument: None, reason } => {
                write!(f, "{path:?} is not a lock path: {reason}")
            }
            Self::WrongKind { path, found } => write!(
                f,
                "lock \"{path}\" is in use as another kind: {found}; use the same `fair` for a path everywhere"
            ),
            Self::Deadlock { path, cycle } => {
                write!(f, "waiting for lock \"{path}\" would never end: ")?;
                for step in cycle {
                    write!(f, "\"{step}\" waits for ")?;
                }
                write!(f, "\"{path}\"; take the locks in one order everywhere")
            }
            Self::NestedTransaction { path, outer, reason } => {
                write!(f, "lock \"{path}\" asks for a transaction inside the one of `{outer}`: {reason}")
            }
            Self::NotInstalled { what } => write!(f, "{what}"),
            Self::Unavailable { servers, waited, source } => {
                write!(f, "no answer from {servers} within {waited:.1?}")?;
                if let Some(source) = source {
                    write!(f, " ({source})")?;
                }
                f.write_str("; check the address and that a server runs there")
            }
            Self::Refused { path: Some(path), reason } => write!(f, "lock \"{path}\" was refused: {reason}"),
            Self::Refused { path: None, reason } => write!(f, "the lock server refused: {reason}"),
            Self::Closed => f.write_str("this `Locks` is closed; connect a new one"),
            Self::Config { reason } => f.write_str(reason),
            Self::Backend { path: Some(path), source } => {
                write!(f, "the lock server failed on lock \"{path}\": {source}")
            }
            Self::Backend { path: None, source } => write!(f, "the lock server failed: {source}"),
            Self::FenceTable { source } => write!(f, "the fence table could not be maintained: {source}"),
            Self::Database { path, source } => {
                write!(f, "the database failed before the body of lock \"{path}\" ran: {source}")
            }
        }
    }
}

fn stopped(rolled_back: bool) -> &'static str {
    if rolled_back { " and rolled back" } else { ", and what it had done until then may stand" }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::NotCommitted { source, .. }
            | Self::CommitUnknown { source, .. }
            | Self::TransactionEnded { source, .. }
            | Self::Backend { source, .. }
            | Self::Database { source, .. }
            | Self::FenceTable { source }
            | Self::Unavailable { source: Some(source), .. } => Some(source.inner()),
            _ => None,
        }
    }
}

/// A ready `LockPath` cannot fail to be one.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Why a lock that was held is held no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The server did not confirm the session in time: by now it may have given the lock to another.
    Unconfirmed,
    /// The server ended the session.
    SessionExpired,
    /// The node of this holder is gone, though its session lives: somebody deleted it.
    NodeGone,
    /// The hold limit passed and the lock was taken back.
    Overrun,
    /// `Locks::close` was called.
    Closed,
    /// The guard was released.
    Released,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unconfirmed => "the server did not confirm the session in time",
            Self::SessionExpired => "the server ended the session",
            Self::NodeGone => "the holder's node was deleted by somebody else",
            Self::Overrun => "the hold limit passed",
            Self::Closed => "`Locks::close` was called",
            Self::Released => "it was released",
        })
    }
}

/// The error of a library or server below, kept as the source.
#[derive(Clone)]
pub struct Cause(Arc<dyn StdError + Send + Sync>);

impl Cause {
    /// Keeps `error` as a cause.
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self(Arc::from(error.into()))
    }

    /// The error itself, to be downcast.
    pub fn inner(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.0
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
