use std::str::FromStr;

use zklock::sqlx::{
    self,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

pub(crate) type Db = sqlx::Sqlite;
pub(crate) type Connection = sqlx::SqliteConnection;
pub(crate) type Pool = sqlx::SqlitePool;

#[path = "../orders.rs"]
pub(crate) mod orders;

/// With a write-ahead log one can read while another writes.
pub(crate) fn options(url: &str) -> Result<SqliteConnectOptions, sqlx::Error> {
    Ok(SqliteConnectOptions::from_str(url)?.create_if_missing(true).journal_mode(SqliteJournalMode::Wal))
}
