use std::str::FromStr;

use zklock::sqlx::{self, mysql::MySqlConnectOptions};

pub(crate) type Db = sqlx::MySql;
pub(crate) type Connection = sqlx::MySqlConnection;
pub(crate) type Pool = sqlx::MySqlPool;

#[path = "../orders.rs"]
pub(crate) mod orders;

pub(crate) fn options(url: &str) -> Result<MySqlConnectOptions, sqlx::Error> {
    MySqlConnectOptions::from_str(url)
}
