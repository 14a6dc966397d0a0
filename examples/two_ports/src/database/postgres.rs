use std::str::FromStr;

use zklock::sqlx::{self, postgres::PgConnectOptions};

pub(crate) type Db = sqlx::Postgres;
pub(crate) type Connection = sqlx::PgConnection;
pub(crate) type Pool = sqlx::PgPool;

#[path = "../orders.rs"]
pub(crate) mod orders;

pub(crate) fn options(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
    PgConnectOptions::from_str(url)
}
