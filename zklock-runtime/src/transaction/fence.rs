use std::{
    collections::{HashSet, hash_map::RandomState},
    fmt::Write,
    hash::BuildHasher,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sha2::{Digest, Sha256};
use sqlx::{ColumnIndex, Decode, Pool, Type};
use uuid::Uuid;

use super::{database::Database, databases::pool_id};
use crate::{
    hold::Hold,
    token::{Ensemble, FencingToken},
};

/// What a `Locks` remembers of the fence tables that it writes to.
#[derive(Debug)]
pub(crate) struct Fence {
    migrate: bool,
    known: Mutex<Known>,
    hasher: RandomState,
}

impl Default for Fence {
    fn default() -> Self {
        Self::new(true)
    }
}

/// The fence row of one path, as one transaction is to write it.
#[derive(Clone, Debug)]
pub struct Row {
    pub(crate) key: String,
    /// The key of the row that new rows of this ensemble start from.
    pub(crate) floor: String,
    pub(crate) ensemble: [u8; 16],
    pub(crate) token: [u8; FencingToken::LENGTH],
    /// The grant. Several transactions of one grant may follow each other.
    pub(crate) attempt: [u8; 16],
    /// The transaction.
    pub(crate) writer: [u8; 16],
}

/// A fence row as it was found.
#[derive(Clone, Debug)]
pub struct Stored {
    pub(crate) ensemble: Vec<u8>,
    pub(crate) token: Vec<u8>,
    pub(crate) attempt: Vec<u8>,
    pub(crate) writer: Vec<u8>,
}

/// Why a row could not be made ready.
#[derive(Debug)]
pub(crate) enum NotReady {
    /// There is no table, and none is to be created.
    NoTable,
    Failed(sqlx::Error),
}

impl Fence {
    /// `migrate`: create the table where it is missing.
    pub(crate) fn new(migrate: bool) -> Self {
        Self { migrate, known: Mutex::default(), hasher: RandomState::new() }
    }

    /// Sees to it that the row exists, once per path. It is created outside of the transaction that raises it: two
    /// transactions that create the same row inside would wait for each other.
    pub(crate) async fn prepare<DB: Database>(
        &self,
        connection: &mut DB::Connection,
        pool: &Pool<DB>,
        row: &Row,
    ) -> Result<(), NotReady> {
        let name = self.name(pool, row);
        if self.known().contains(name) {
            return Ok(());
        }
        create::<DB>(connection, row, Within::Nothing { migrate: self.migrate }).await?;
        self.known().insert(name);
        Ok(())
    }

    /// The row turned out not to exist.
    pub(crate) fn forget<DB: Database>(&self, pool: &Pool<DB>, row: &Row) {
        self.known().remove(self.name(pool, row));
    }

    /// That two rows may have one name, or a name outlive its pool, does no harm: what is wrongly believed to exist
    /// is found missing when it is raised.
    fn name<DB: Database>(&self, pool: &Pool<DB>, row: &Row) -> u64 {
        self.hasher.hash_one((DB::NAME, pool_id(pool), &row.key))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a row is created within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    /// No transaction. `migrate`: create the table where it is missing.
    Nothing { migrate: bool },
    /// A transaction of the caller: the table would commit it on MySQL, and a statement that has failed is not tried
    /// again, since the transaction has failed with it.
    Outer,
}

/// Creates the row where it is missing, and what it stands on.
pub(crate) async fn create<DB: Database>(
    connection: &mut DB::Connection,
    row: &Row,
    within: Within,
) -> Result<(), NotReady> {
    // Table, floor and row, and one more for each that somebody else creates or deletes meanwhile.
    let mut tries = 8;
    loop {
        tries -= 1;
        let error = match attempt::<DB>(connection, row).await {
            Ok(true) => return Ok(()),
            Ok(false) => sqlx::Error::RowNotFound,
            Err(error) if DB::is_missing_table(&error) => {
                if within != (Within::Nothing { migrate: true }) {
                    return Err(NotReady::NoTable);
                }
                // Two that create it at once may both fail on the server's own catalogue: the next look tells.
                match DB::create_table(connection).await {
                    Ok(()) => error,
                    Err(error) => error,
                }
            }
            Err(error) if DB::is_conflict(&error) && within != Within::Outer => error,
            Err(error) => return Err(NotReady::Failed(error)),
        };
        if tries == 0 || !matches!(error, sqlx::Error::Database(_) | sqlx::Error::RowNotFound) {
            return Err(NotReady::Failed(error));
        }
    }
}

async fn attempt<DB: Database>(connection: &mut DB::Connection, row: &Row) -> sqlx::Result<bool> {
    if DB::create_row(connection, row).await? || DB::look(connection, &row.key).await?.is_some() {
        return Ok(true);
    }
    // Never created together with its first row: a clean-up that runs in between must find something to lift.
    DB::create_floor(connection, &row.floor, &row.ensemble).await?;
    Ok(false)
}

/// Deletes the fence rows of `ensemble` that were not raised for `older_than`. Returns how many.
///
/// A hold that is older than that, of a path whose row was deleted or never written, is refused afterwards with
/// [`Error::Fenced`](crate::Error::Fenced): it cannot be told from one that was superseded.
pub(crate) async fn clean_up<DB: Database>(
    pool: &Pool<DB>,
    ensemble: Ensemble,
    older_than: Duration,
) -> sqlx::Result<u64> {
    let mut connection = pool.acquire().await?;
    // Until it is known to have gone well: a batch that fails half-way leaves a transaction open.
    connection.close_on_drop();
    let (floor, ensemble) = (floor(ensemble), ensemble.to_bytes());
    DB::create_floor(&mut connection, &floor, &ensemble).await?;
    DB::clean_up(&mut connection, &floor, &ensemble, older_than).await
}

/// Gives fence rows that were written under other ensembles to `ensemble`: all of them, or that of one path. Returns
/// how many. To be called by an operator who knows that nobody is served by those other ensembles any more.
pub(crate) async fn adopt<DB: Database>(
    pool: &Pool<DB>,
    ensemble: Ensemble,
    fence_key: Option<&str>,
) -> sqlx::Result<u64> {
    let mut connection = pool.acquire().await?;
    connection.close_on_drop();
    let (floor, ensemble) = (floor(ensemble), ensemble.to_bytes());
    let key = fence_key.map(key);
    DB::create_floor(&mut connection, &floor, &ensemble).await?;
    DB::adopt(&mut connection, &floor, &ensemble, key.as_deref()).await
}

impl Row {
    pub(crate) fn new(hold: &Hold, writer: Uuid) -> Self {
        let token = hold.token();
        Self {
            key: key(&hold.fence_key()),
            floor: floor(token.ensemble()),
            ensemble: token.ensemble().to_bytes(),
            token: token.to_bytes(),
            attempt: hold.attempt().into_bytes(),
            writer: writer.into_bytes(),
        }
    }

    /// Whether a row that holds this lets us pass.
    pub(crate) fn may_follow(&self, stored: &Stored) -> bool {
        stored.ensemble == self.ensemble
            && (stored.token[..] < self.token[..]
                || (stored.token == self.token && stored.attempt == self.attempt))
    }
}

impl Stored {
    /// The columns `ensemble, token, attempt, writer`.
    pub(crate) fn read<R>(row: &R) -> sqlx::Result<Self>
    where
        R: sqlx::Row,
        usize: ColumnIndex<R>,
        Vec<u8>: for<'r> Decode<'r, R::Database> + Type<R::Database>,
    {
        Ok(Self {
            ensemble: row.try_get(0)?,
            token: row.try_get(1)?,
            attempt: row.try_get(2)?,
            writer: row.try_get(3)?,
        })
    }

    /// As [`Ensemble`] shows itself.
    pub(crate) fn ensemble_name(&self) -> String {
        match Uuid::from_slice(&self.ensemble) {
            Ok(id) if id.into_bytes() == Ensemble::MEMORY.to_bytes() => Ensemble::MEMORY.to_string(),
            Ok(id) => id.to_string(),
            Err(_) => format!("{:02x?}", self.ensemble),
        }
    }
}

/// The longest key that the column of each database takes.
const LONGEST: usize = 512;

/// Paths begin with a slash, so that neither of the other forms can be mistaken for one.
fn key(path: &str) -> String {
    if path.len() <= LONGEST {
        return path.to_owned();
    }
    let mut key = String::from("sha256:");
    for byte in Sha256::digest(path.as_bytes()) {
        // Writing to a string does not fail.
        let _ = write!(key, "{byte:02x}");
    }
    key
}

pub(crate) const FLOOR: &str = "floor:";

fn floor(ensemble: Ensemble) -> String {
    format!("{FLOOR}{}", Uuid::from_bytes(ensemble.to_bytes()).simple())
}

/// Names in two generations, so that neither memory nor the work at the limit is without bound.
#[derive(Debug, Default)]
struct Known {
    young: HashSet<u64>,
    old: HashSet<u64>,
}

impl Known {
    const GENERATION: usize = 16 * 1024;

    fn contains(&self, name: u64) -> bool {
        self.young.contains(&name) || self.old.contains(&name)
    }

    fn insert(&mut self, name: u64) {
        if self.young.len() >= Self::GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name);
    }

    fn remove(&mut self, name: u64) {
        self.young.remove(&name);
        self.old.remove(&name);
    }
}
