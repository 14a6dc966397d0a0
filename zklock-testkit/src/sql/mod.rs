//! Database servers.

mod client;
mod mariadb;
mod postgres;
mod server;

pub use self::mariadb::{MariaDb, MariaDbBuilder};
pub use self::postgres::{Postgres, PostgresBuilder, Shutdown};
