use std::{str::FromStr, time::Duration};

use axum::Router;
use sqlx::{
    pool::PoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};
use zklock::{Locks, LocksBuilder};

/// Connects to the database at `url` and then to the locks, which open transactions there. Gives the routes of
/// `orders.rs` for that type of database.
pub(crate) async fn open(url: &str, locks: LocksBuilder) -> Result<(Locks, Router), String> {
    // The three do the same, each with types of its own.
    macro_rules! open {
        ($database:ident, $options:expr) => {{
            let options = $options.map_err(|error| unusable(url, &error))?;
            let pool = PoolOptions::<$database::Db>::new()
                .acquire_timeout(Duration::from_secs(5))
                .connect_with(options)
                .await
                .map_err(|error| unusable(url, &error))?;
            let locks = locks.pool(pool.clone()).connect().await.map_err(|error| error.to_string())?;
            let guard = locks.mutex("/orders-table").acquire().await.map_err(|error| error.to_string())?;
            let created = guard.run($database::orders::create_table(&pool)).await;
            created.map_err(|error| error.to_string())?.map_err(|error| unusable(url, &error))?;
            Ok((locks, $database::orders::routes(pool)))
        }};
    }

    match url.split(':').next() {
        Some("sqlite") => open!(sqlite, sqlite_options(url)),
        Some("postgres" | "postgresql") => open!(postgres, FromStr::from_str(url)),
        Some("mysql" | "mariadb") => open!(mysql, FromStr::from_str(url)),
        _ => Err(format!(
            "{:?} is not the address of a database; write \"postgres://user@host/name\", \
             \"mysql://user@host/name\" or \"sqlite:file\"",
            without_password(url)
        )),
    }
}

/// `orders.rs` on SQLite.
mod sqlite {
    pub(crate) type Db = sqlx::Sqlite;
    pub(crate) type Connection = sqlx::SqliteConnection;
    pub(crate) type Pool = sqlx::SqlitePool;

    #[path = "../../orders.rs"]
    pub(crate) mod orders;
}

/// `orders.rs` on PostgreSQL.
mod postgres {
    pub(crate) type Db = sqlx::Postgres;
    pub(crate) type Connection = sqlx::PgConnection;
    pub(crate) type Pool = sqlx::PgPool;

    #[path = "../../orders.rs"]
    pub(crate) mod orders;
}

/// `orders.rs` on MySQL and MariaDB.
mod mysql {
    pub(crate) type Db = sqlx::MySql;
    pub(crate) type Connection = sqlx::MySqlConnection;
    pub(crate) type Pool = sqlx::MySqlPool;

    #[path = "../../orders.rs"]
    pub(crate) mod orders;
}

/// With a write-ahead log one can read while another writes.
fn sqlite_options(url: &str) -> Result<SqliteConnectOptions, sqlx::Error> {
    Ok(SqliteConnectOptions::from_str(url)?.create_if_missing(true).journal_mode(SqliteJournalMode::Wal))
}

fn unusable(url: &str, error: &sqlx::Error) -> String {
    format!("no database at {}: {error}", without_password(url))
}

/// A URL as it may be shown.
pub(crate) fn without_password(url: &str) -> String {
    let parts = url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)));
    match parts {
        Some((scheme, (user, place))) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{place}")
        }
        None => url.to_owned(),
    }
}
