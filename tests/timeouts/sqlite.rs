use std::{
    fs, process,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use zklock::sqlx::{
    self, Pool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};

use crate::support::Outcome;

#[path = "cases/joining.rs"]
mod joining;
#[path = "cases/order.rs"]
mod order;
#[path = "cases/overrun.rs"]
mod overrun;
#[path = "cases/rollback.rs"]
mod rollback;
#[path = "cases/shop.rs"]
mod shop;
#[path = "cases/stuck.rs"]
mod stuck;
#[path = "cases/told.rs"]
mod told;

type Database = sqlx::Sqlite;
type Connection = sqlx::SqliteConnection;
type Options = SqliteConnectOptions;

/// Runs for minutes, or until somebody ends it.
const LONG: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000000) \
                    SELECT count(*) FROM n";
/// Its word for a whole number, in a cast.
const INTEGER: &str = "INTEGER";
/// From here on, wait for no lock.
const HASTE: &str = "PRAGMA busy_timeout = 0";
/// The database is in this process: a connection is ended by whoever has it, and by nobody else.
const ENDS_OVER_A_BLOCKED_OWNER: bool = false;
/// There is one writer at a time.
const WRITES_SIDE_BY_SIDE: bool = false;

/// A database of its own.
async fn create() -> Outcome<Options> {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("timeouts-{}-{}.db", process::id(), FILES.fetch_add(1, Ordering::Relaxed));
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    for suffix in ["", "-wal", "-shm"] {
        // Of an earlier process with this number.
        let _ = fs::remove_file(format!("{}{suffix}", file.display()));
    }
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    Ok(options.journal_mode(SqliteJournalMode::Wal).busy_timeout(Duration::from_secs(10)))
}

fn pool(options: Options, size: u32) -> Pool<Database> {
    SqlitePoolOptions::new()
        .max_connections(size)
        .acquire_timeout(Duration::from_mins(1))
        .connect_lazy_with(options)
}
