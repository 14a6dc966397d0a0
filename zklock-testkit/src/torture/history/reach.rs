/// Whom a fault may disturb, and how: what a caller is told otherwise has no cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    /// Whose locks may be lost, or not be had because the lock service does not answer.
    pub locks: Whose,
    /// Whose transactions may be rolled back, refused, or left unknown.
    pub transactions: Whose,
    /// Whether fence rows may be found that were written under another ensemble.
    pub ensembles: bool,
}

/// Of which processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// None.
    Nobodys,
    /// The one of this name.
    Of(String),
    /// All.
    Everybodys,
}

impl Reach {
    /// It may disturb nobody.
    pub const NOTHING: Self = Self { locks: Whose::Nobodys, transactions: Whose::Nobodys, ensembles: false };
    /// The database or the way to it.
    pub const DATABASE: Self = Self { transactions: Whose::Everybodys, ..Self::NOTHING };
    /// The lock service or the way to it. Who has lost a lock may keep the next one's transaction waiting.
    pub const LOCKS: Self = Self { locks: Whose::Everybodys, ..Self::DATABASE };
    /// The lock service has another identity afterwards.
    pub const ENSEMBLE: Self = Self { ensembles: true, ..Self::LOCKS };

    /// One process, which may keep the transactions of the others waiting.
    pub fn process(name: &str) -> Self {
        Self { locks: Whose::Of(name.to_owned()), ..Self::DATABASE }
    }
}

impl Whose {
    pub(crate) fn include(&self, process: &str) -> bool {
        match self {
            Self::Nobodys => false,
            Self::Of(name) => name == process,
            Self::Everybodys => true,
        }
    }
}
