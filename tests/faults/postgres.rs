use std::time::Duration;

use zklock::sqlx::{
    self, Pool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use zklock_testkit::Postgres;

use crate::support::Outcome;

#[path = "cases/commits.rs"]
mod commits;
#[path = "cases/fences.rs"]
mod fences;
#[path = "cases/shop.rs"]
pub(crate) mod shop;

type Database = sqlx::Postgres;
pub(crate) type Connection = sqlx::PgConnection;
type Options = PgConnectOptions;

/// Its word for a whole number, in a cast.
const INTEGER: &str = "BIGINT";
/// How many transactions wait for another one.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event_type = 'Lock'";
/// A transaction does not end without an error that stays until its end.
const ENDS_SILENTLY: bool = false;

/// A database of its own.
async fn create() -> Outcome<Options> {
    Ok(Postgres::shared().await?.create_database("faults").await?.parse()?)
}

fn pool(options: Options, size: u32, patience: Duration) -> Pool<Database> {
    PgPoolOptions::new().max_connections(size).acquire_timeout(patience).connect_lazy_with(options)
}

/// Whether no transaction is open but the one that asks.
async fn is_idle(observer: &mut Connection) -> Result<bool, sqlx::Error> {
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND xact_start IS NOT NULL AND pid <> pg_backend_pid()";
    let open: i64 = sqlx::query_scalar(open).fetch_one(observer).await?;
    Ok(open == 0)
}
