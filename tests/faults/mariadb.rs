use std::time::Duration;

use zklock::sqlx::{
    self, Pool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};
use zklock_testkit::MariaDb;

use crate::support::Outcome;

#[path = "cases/commits.rs"]
mod commits;
#[path = "cases/fences.rs"]
mod fences;
#[path = "cases/shop.rs"]
pub(crate) mod shop;

type Database = sqlx::MySql;
pub(crate) type Connection = sqlx::MySqlConnection;
type Options = MySqlConnectOptions;

/// Its word for a whole number, in a cast.
const INTEGER: &str = "SIGNED";
/// How many transactions wait for the fence row of another one. Not the server's list of transactions, which is not
/// renewed while somebody reads it more often than every 100 ms.
const WAITING: &str = "SELECT count(*) FROM information_schema.processlist WHERE db = database() \
                       AND id <> connection_id() AND info LIKE '%zklock\\_fence%' AND time_ms > 200";

/// The database may roll back by itself, and what follows takes effect statement by statement.
const ENDS_SILENTLY: bool = true;

/// A database of its own.
async fn create() -> Outcome<Options> {
    Ok(MariaDb::shared().await?.create_database("faults").await?.parse()?)
}

fn pool(options: Options, size: u32, patience: Duration) -> Pool<Database> {
    MySqlPoolOptions::new().max_connections(size).acquire_timeout(patience).connect_lazy_with(options)
}

/// Whether no transaction is open: one that is has a hold on the tables that it has used.
async fn is_idle(observer: &mut Connection) -> Result<bool, sqlx::Error> {
    let fenced = "SELECT count(*) FROM information_schema.tables \
                  WHERE table_schema = database() AND table_name = 'zklock_fence'";
    let fenced: i64 = sqlx::query_scalar(fenced).fetch_one(&mut *observer).await?;
    let lock = if fenced == 1 {
        "LOCK TABLES orders WRITE, zklock_fence WRITE NOWAIT"
    } else {
        "LOCK TABLES orders WRITE NOWAIT"
    };
    match sqlx::raw_sql(lock).execute(observer).await {
        Ok(_) => Ok(true),
        // ER_LOCK_WAIT_TIMEOUT, at once.
        Err(sqlx::Error::Database(error)) if error.message().contains("timeout exceeded") => Ok(false),
        Err(error) => Err(error),
    }
}
