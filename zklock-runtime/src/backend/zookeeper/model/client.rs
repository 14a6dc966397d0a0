//! A process with its session: what the supervisor and the client library do.

use super::server::{SessionId, Zxid};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub(super) struct Client {
    /// The session that the connection is in.
    pub(super) session: SessionId,
    /// The session as it was when it was opened: its id is what the library tells.
    pub(super) recorded: SessionId,
    /// Whose heartbeat `valid_until` rests on.
    pub(super) valid_by: SessionId,
    /// Connected again, and not known yet whether it is the session that it was.
    pub(super) unproven: bool,
    pub(super) at_follower: bool,
    /// It has seen what the lagging follower has not, which therefore does not take it.
    pub(super) ahead: bool,
    pub(super) crashed: bool,
    /// What it knows of the directory, as [`Directories`](super::super::directories::Directories) does.
    pub(super) directory_exists: bool,
    pub(super) directory_made: Option<Zxid>,
}

impl Client {
    /// More sessions than one client goes through.
    const SESSIONS: SessionId = 5;

    pub(super) fn new(index: u8) -> Self {
        Self::in_session(index * Self::SESSIONS)
    }

    /// The same process in the session after this one, of which it knows nothing.
    pub(super) fn anew(&self) -> Self {
        Self::in_session(self.session + 1)
    }

    fn in_session(session: SessionId) -> Self {
        Self {
            session,
            recorded: session,
            valid_by: session,
            unproven: false,
            at_follower: false,
            ahead: false,
            crashed: false,
            directory_exists: false,
            directory_made: None,
        }
    }

    /// Which client a session belongs or belonged to.
    pub(super) fn of(session: SessionId) -> usize {
        usize::from(session / Self::SESSIONS)
    }

    /// Sessions of the same client from before.
    pub(super) fn earlier(session: SessionId) -> std::ops::Range<SessionId> {
        session / Self::SESSIONS * Self::SESSIONS..session
    }

    pub(super) fn directory_is_missing(&mut self) {
        self.directory_exists = false;
        self.directory_made = None;
    }
}
