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
/// Transactions that are open in this database, but for the one that asks.
const OPEN: &str = "SELECT count(*) FROM information_schema.innodb_trx t \
                    JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
                    WHERE p.db = database() AND p.id <> connection_id()";
/// Those of them that wait for a lock.
const WAITING: &str = "SELECT count(*) FROM information_schema.innodb_trx t \
                       JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
                       WHERE p.db = database() AND t.trx_state = 'LOCK WAIT'";

/// A database of its own.
async fn create() -> Outcome<Options> {
    Ok(MariaDb::shared().await?.create_database("faults").await?.parse()?)
}

fn pool(options: Options, size: u32, patience: Duration) -> Pool<Database> {
    MySqlPoolOptions::new().max_connections(size).acquire_timeout(patience).connect_lazy_with(options)
}
