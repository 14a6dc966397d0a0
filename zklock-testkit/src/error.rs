use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

/// Why a server, a proxy or a helper of this crate could not do what was asked.
///
/// Every message says what is missing and what to do about it. A server that is not installed is an
/// error like any other: nothing in this crate skips silently.
///
/// `Debug` prints the same message, since that is what a test prints that returns an error.
#[non_exhaustive]
pub enum Error {
    /// A program that is needed is not on this machine.
    NotInstalled {
        /// What is missing, for people: `ZooKeeper`.
        what: &'static str,
        /// How to get it, or how to point at it where it is in an unusual place.
        how: &'static str,
    },
    /// The server is there but did not come up.
    Start {
        /// Which server.
        server: &'static str,
        /// What was seen.
        reason: String,
        /// The end of the server's own log.
        log: String,
    },
    /// The server was given by an environment variable, so it is not ours to pause, kill or wipe.
    NotOurs {
        /// Which server.
        server: &'static str,
        /// The variable that gave it.
        variable: &'static str,
    },
    /// The condition did not hold within its time.
    Deadline {
        /// What was waited for.
        waited_for: String,
        /// For how long.
        waited: Duration,
    },
    /// A server answered with an error, or with something that makes no sense.
    Answer {
        /// What was asked, of whom.
        asked: String,
        /// What came back.
        answer: String,
    },
    /// The operating system refused.
    Io {
        /// What was attempted.
        doing: String,
        /// Its answer.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInstalled { what, how } => write!(f, "{what} is not installed: {how}"),
            Self::Start { server, reason, log } => {
                write!(f, "{server} did not start: {reason}; its log ends with:\n{log}")
            }
            Self::NotOurs { server, variable } => write!(
                f,
                "{server} was given by {variable}, so it can be used but not paused, killed or wiped: \
                 unset {variable} to let the tests start one of their own"
            ),
            Self::Deadline { waited_for, waited } => {
                write!(f, "waited {waited:?} in vain for: {waited_for}")
            }
            Self::Answer { asked, answer } => write!(f, "{asked} was answered with: {answer}"),
            Self::Io { doing, source } => write!(f, "{doing}: {source}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
