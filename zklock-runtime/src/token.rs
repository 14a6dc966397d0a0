use std::fmt;

use uuid::Uuid;

/// A number that grows with every grant of a path, to be carried to whatever the lock protects.
///
/// A store that remembers the highest token it has seen for a path, and refuses lower ones, cannot be written
/// by a holder that was superseded, however long it was paused. zklock's own transactions do so; for other
/// systems send [`to_bytes`](Self::to_bytes) or the text form, which both sort as the tokens do.
///
/// Tokens compare within one ensemble only, see [`ensemble`](Self::ensemble).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use zklock_runtime as zklock;
/// use zklock::Locks;
///
/// let locks = Locks::memory();
/// let first = locks.mutex("/orders/42").acquire().await?;
/// let earlier = first.fencing_token();
/// first.release().await?;
/// let second = locks.mutex("/orders/42").acquire().await?;
/// assert!(second.fencing_token() > earlier);
/// assert!(second.fencing_token().to_string() > earlier.to_string());
/// # Ok::<_, zklock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    /// The transaction id at which the holder's node was made.
    zxid: u64,
    /// Which node of that transaction it is: several may be made in one.
    place: u16,
    /// How many times the grant was passed on in memory since.
    handover: u32,
    // Last, so that it never decides between tokens of one ensemble.
    ensemble: Ensemble,
}

impl FencingToken {
    /// The length of [`to_bytes`](Self::to_bytes).
    pub const LENGTH: usize = 14;

    pub(crate) fn new(ensemble: Ensemble, zxid: u64, place: u16, handover: u32) -> Self {
        Self { zxid, place, handover, ensemble }
    }

    /// The token as bytes that sort as the tokens do.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.zxid.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.place.to_be_bytes());
        bytes[10..].copy_from_slice(&self.handover.to_be_bytes());
        bytes
    }

    /// Whose tokens this one compares with.
    pub fn ensemble(self) -> Ensemble {
        self.ensemble
    }
}

/// 28 hexadecimal digits, which sort as the tokens do.
impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:04x}{:08x}", self.zxid, self.place, self.handover)
    }
}

/// Identifies the lock servers that a token comes from: tokens of two ensembles do not compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ensemble(Uuid);

impl Ensemble {
    /// The in-process locks. They start their tokens from the wall clock, so all of them are one ensemble.
    pub const MEMORY: Self = Self(Uuid::nil());

    #[cfg_attr(
        not(any(feature = "zookeeper", all(test, feature = "sqlx"))),
        expect(dead_code, reason = "memory is one ensemble")
    )]
    pub(crate) fn new(id: Uuid) -> Self {
        Self(id)
    }

    /// The id as bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.into_bytes()
    }
}

impl fmt::Display for Ensemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MEMORY { f.write_str("memory") } else { self.0.fmt(f) }
    }
}
