mod mysql;
mod postgres;
mod sqlite;

use std::{fmt::Display, time::Duration};

use axum::Router;
use tokio::time::timeout;
use zklock::{
    Locks, LocksBuilder,
    sqlx::{ConnectOptions, Connection, pool::PoolOptions},
};

const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the database at `url` and then to the locks, which open transactions there. Gives the routes of
/// `orders.rs` for that type of database.
pub(crate) async fn open(url: &str, locks: LocksBuilder) -> Result<(Locks, Router), String> {
    // The three do the same, each with types of its own.
    macro_rules! open {
        ($database:ident) => {{
            let options = $database::options(url).map_err(|error| unusable(url, &error))?;
            // A pool goes on trying; whoever mistyped the address wants to hear of it.
            let tried = timeout(PATIENCE, options.connect()).await;
            let tried =
                tried.map_err(|_| unusable(url, &"no answer"))?.map_err(|error| unusable(url, &error))?;
            tried.close().await.map_err(|error| unusable(url, &error))?;
            let pool =
                PoolOptions::<$database::Db>::new().acquire_timeout(PATIENCE).connect_lazy_with(options);
            let locks = locks.pool(pool.clone()).connect().await.map_err(|error| error.to_string())?;
            let guard = locks.mutex("/orders-table").acquire().await.map_err(|error| error.to_string())?;
            let created = guard.run($database::orders::create_table(&pool)).await;
            created.map_err(|error| error.to_string())?.map_err(|error| unusable(url, &error))?;
            Ok((locks, $database::orders::routes(pool)))
        }};
    }

    match url.split(':').next() {
        Some("sqlite") => open!(sqlite),
        Some("postgres" | "postgresql") => open!(postgres),
        Some("mysql" | "mariadb") => open!(mysql),
        _ => Err(format!(
            "{:?} is not the address of a database; write \"postgres://user@host/name\", \
             \"mysql://user@host/name\" or \"sqlite:file\"",
            without_password(url)
        )),
    }
}

fn unusable(url: &str, error: &dyn Display) -> String {
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
