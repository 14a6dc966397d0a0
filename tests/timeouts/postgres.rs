use std::time::Duration;

use zklock::sqlx::{
    self, Pool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use zklock_testkit::{Postgres, Proxy};

use crate::support::Outcome;

#[path = "cases/joining.rs"]
mod joining;
#[path = "cases/network.rs"]
mod network;
#[path = "cases/order.rs"]
mod order;
#[path = "cases/overrun.rs"]
mod overrun;
#[path = "cases/rollback.rs"]
mod rollback;
#[path = "cases/shop.rs"]
mod shop;
#[path = "cases/told.rs"]
mod told;

type Database = sqlx::Postgres;
type Connection = sqlx::PgConnection;
type Options = PgConnectOptions;

/// Runs for a minute, or until somebody ends it.
const LONG: &str = "SELECT pg_sleep(60)";
/// Its word for a whole number, in a cast.
const INTEGER: &str = "BIGINT";
/// From here on, wait for no lock.
const HASTE: &str = "SET lock_timeout = '1ms'";
/// A transaction can be ended although the thread of its owner is blocked.
const ENDS_OVER_A_BLOCKED_OWNER: bool = true;
/// Two transactions may write at a time.
const WRITES_SIDE_BY_SIDE: bool = true;

/// A database of its own.
async fn create() -> Outcome<Options> {
    Ok(Postgres::shared().await?.create_database("timeouts").await?.parse()?)
}

/// The same behind a proxy: how to get there directly, how through the proxy, and the proxy.
async fn create_behind_a_proxy() -> Outcome<(Options, Options, Proxy)> {
    let url = Postgres::shared().await?.create_database("timeouts").await?;
    let proxy = Proxy::start(&url).await?;
    Ok((url.parse()?, proxy.url(&url).parse()?, proxy))
}

fn pool(options: Options, size: u32) -> Pool<Database> {
    PgPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(Duration::from_mins(1))
        .connect_lazy_with(options)
}
