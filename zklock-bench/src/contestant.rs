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
    /// Curator's `InterProcessMutex`, an object for each thread.
    CuratorEach,
    /// The same, one object for all threads.
    CuratorShared,
    Kazoo,
    Redis,
    Etcd,
    PostgresAdvisory,
    /// A function that does next to nothing.
    Plain,
    /// Its body under a lock that is taken and given back by hand.
    ByHand,
    /// The same function with the attribute.
    Annotated,
    /// sqlx's begin and commit around a body, with no lock.
    PlainTransaction,
    /// The same within a function that has the attribute without `transactional`.
    PlainTransactionUnderLock,
    /// The attribute with it: fenced, with all that guards a transaction.
    Transactional,
}

/// The two uses of Curator: which of them is better depends on what is done.
pub(crate) const CURATOR: [Contestant; 2] = [Contestant::CuratorEach, Contestant::CuratorShared];

impl Contestant {
    pub(crate) const ALL: [Self; 16] = [
        Self::Raw,
        Self::Zklock,
        Self::ZklockUnfair,
        Self::ClientLock,
        Self::CuratorEach,
        Self::CuratorShared,
        Self::Kazoo,
        Self::Redis,
        Self::Etcd,
        Self::PostgresAdvisory,
        Self::Plain,
        Self::ByHand,
        Self::Annotated,
        Self::PlainTransaction,
        Self::PlainTransactionUnderLock,
        Self::Transactional,
    ];

    /// In tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw create + delete",
            Self::Zklock => "zklock, fair",
            Self::ZklockUnfair => "zklock, unfair",
            Self::ClientLock => "zookeeper-client's lock",
            Self::CuratorEach => "Curator, a mutex each",
            Self::CuratorShared => "Curator, one mutex",
            Self::Kazoo => "kazoo",
            Self::Redis => "Redis SET NX",
            Self::Etcd => "etcd",
            Self::PostgresAdvisory => "PostgreSQL advisory lock",
            Self::Plain => "plain function",
            Self::ByHand => "lock by hand",
            Self::Annotated => "annotated function",
            Self::PlainTransaction => "sqlx begin, body, commit",
            Self::PlainTransactionUnderLock => "annotated, sqlx begin, body, commit",
            Self::Transactional => "annotated, transactional",
        }
    }

    /// On the command line; the two uses of Curator are left out together.
    pub(crate) fn peer(self) -> Option<&'static str> {
        match self {
            Self::ClientLock => Some("client-lock"),
            Self::CuratorEach | Self::CuratorShared => Some("curator"),
            Self::Kazoo => Some("kazoo"),
            Self::Redis => Some("redis"),
            Self::Etcd => Some("etcd"),
            Self::PostgresAdvisory => Some("postgres"),
            _ => None,
        }
    }

    /// For processes and nodes.
    pub(crate) fn word(self) -> String {
        let letters = self.name().chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == ' ');
        letters.collect::<String>().to_lowercase().replace(' ', "-")
    }

    /// Whether it uses the servers that all others use.
    pub(crate) fn is_on_zookeeper(self) -> bool {
        !matches!(self, Self::Redis | Self::Etcd | Self::PostgresAdvisory)
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_share_a_word() {
        let mut words = Contestant::ALL.map(Contestant::word).to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Contestant::ALL.len());
        assert!(words.contains(&"curator-one-mutex".into()), "{words:?}");
    }
}
