use std::fmt;

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contestant {
    /// Create and delete of a node, which is no lock.
    Raw,
    /// zklock with `fair = true`.
    Zklock,
    /// zklock with `fair = false`.
    ZklockUnfair,
    /// The lock that comes with zookeeper-client.
    ClientLock,
}

impl Contestant {
    pub(crate) const ALL: [Self; 4] = [Self::Raw, Self::Zklock, Self::ZklockUnfair, Self::ClientLock];

    /// In tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw create + delete",
            Self::Zklock => "zklock, fair",
            Self::ZklockUnfair => "zklock, unfair",
            Self::ClientLock => "zookeeper-client's lock",
        }
    }

    /// On the command line. The two uses of Curator's are left out together.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Zklock => "zklock",
            Self::ZklockUnfair => "zklock-unfair",
            Self::ClientLock => "client-lock",
        }
    }

    /// Whether it may be left out; the others are what all is about.
    pub(crate) fn is_peer(self) -> bool {
        !matches!(self, Self::Raw | Self::Zklock | Self::ZklockUnfair)
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
