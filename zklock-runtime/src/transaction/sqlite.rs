use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, SqlSafeStr, Sqlite, SqliteConnection, query, query_scalar,
    raw_sql,
    sqlite::{SqliteConnectOptions, SqliteTransactionManager},
};
use sqlx_core::transaction::TransactionManager;
use uuid::Uuid;

use super::{
    database::{Database, GUARD, Limits, MayRun, Options, Verdict, code, sealed::Sealed},
    fence::{FLOOR, Row, Stored},
};

/// How a transaction is told to stop: it runs in this process, and asks.
pub struct Mark {
    may_run: MayRun,
    stopped: Arc<AtomicBool>,
    /// The session's own `busy_timeout`.
    patience: Mutex<Option<i64>>,
}

impl Sealed for Sqlite {}

impl Database for Sqlite {
    type Mark = Mark;

    const FENCE_TABLE: &'static str = "CREATE TABLE IF NOT EXISTS zklock_fence (
    path text NOT NULL PRIMARY KEY,
    ensemble blob NOT NULL,
    token blob NOT NULL,
    attempt blob NOT NULL,
    writer blob NOT NULL,
    updated_at integer NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS integer))
) WITHOUT ROWID";

    const COUNTS_AT_ONCE: bool = false;
    const IN_PROCESS: bool = true;
    const ONE_WRITER: bool = true;

    fn mark(_: Uuid, may_run: MayRun) -> Mark {
        Mark { may_run, stopped: Arc::default(), patience: Mutex::new(None) }
    }

    async fn begin(connection: &mut SqliteConnection, mark: &Mark, limits: Limits) -> sqlx::Result<()> {
        let own: i64 = query_scalar("PRAGMA busy_timeout").fetch_one(&mut *connection).await?;
        *mark.patience() = Some(own);
        {
            let (stopped, may_run) = (mark.stopped.clone(), mark.may_run.clone());
            let mut handle = connection.lock_handle().await?;
            handle.set_progress_handler(STEPS, move || !stopped.load(Ordering::Relaxed) && may_run());
        }
        let millis =
            limits.millis().unwrap_or_else(|| own.unsigned_abs()).min(i32::MAX.unsigned_abs().into());
        // A wait for the write lock cannot be interrupted, so it is made of short ones.
        let text = format!(
            "PRAGMA busy_timeout = {}; BEGIN IMMEDIATE; PRAGMA busy_timeout = {millis}; SAVEPOINT {GUARD}",
            millis.min(100),
        );
        let mut waited = 0;
        loop {
            let text = AssertSqlSafe(text.clone()).into_sql_str();
            match SqliteTransactionManager::begin(connection, Some(text)).await {
                Err(error) if is_busy(&error) && waited < millis && mark.may_run() => waited += 100,
                outcome => return outcome,
            }
        }
    }

    async fn raise(connection: &mut SqliteConnection, _: Option<&Mark>, row: &Row) -> sqlx::Result<bool> {
        query(
            "UPDATE zklock_fence SET token = $3, attempt = $4, writer = $5, \
             updated_at = CAST((julianday('now') - 2440587.5) * 86400000 AS integer) \
             WHERE path = $1 AND ensemble = $2 AND (token < $3 OR (token = $3 AND attempt = $4))",
        )
        .bind(&row.key)
        .bind(&row.ensemble[..])
        .bind(&row.token[..])
        .bind(&row.attempt[..])
        .bind(&row.writer[..])
        .execute(connection)
        .await
        .map(|done| done.rows_affected() == 1)
    }

    async fn identify(_: &mut SqliteConnection, _: &Mark) -> sqlx::Result<()> {
        Ok(())
    }

    async fn release_guard(
        connection: &mut SqliteConnection,
        remaining: Option<Duration>,
    ) -> sqlx::Result<()> {
        let mut text = String::new();
        if let Some(remaining) = remaining {
            // COMMIT waits for readers, and that wait cannot be interrupted either.
            text = format!(
                "PRAGMA busy_timeout = {}; ",
                remaining.as_millis().min(i32::MAX.unsigned_abs().into())
            );
        }
        text.push_str("RELEASE SAVEPOINT zklock_guard");
        raw_sql(AssertSqlSafe(text)).execute(connection).await.map(drop)
    }

    async fn return_to(connection: &mut SqliteConnection, savepoint: &str) -> sqlx::Result<()> {
        let text = format!("ROLLBACK TO SAVEPOINT {savepoint}");
        raw_sql(AssertSqlSafe(text)).execute(connection).await.map(drop)
    }

    fn is_no_savepoint(error: &sqlx::Error) -> bool {
        error.as_database_error().is_some_and(|error| error.message().contains("no such savepoint"))
    }

    fn interrupt(mark: &Mark) {
        mark.stopped.store(true, Ordering::Relaxed);
    }

    async fn let_run(connection: &mut SqliteConnection) -> sqlx::Result<()> {
        connection.lock_handle().await?.remove_progress_handler();
        Ok(())
    }

    async fn settle(connection: &mut SqliteConnection) -> sqlx::Result<()> {
        connection.ping().await
    }

    async fn plain_rollback(connection: &mut SqliteConnection) -> sqlx::Result<()> {
        match raw_sql("ROLLBACK").execute(connection).await {
            // No transaction is active: the database has rolled back by itself, or there never was one.
            Err(error) if code(&error).is_some_and(|code| code == "1") => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    async fn restore(connection: &mut SqliteConnection, mark: &Mark) -> sqlx::Result<()> {
        Self::let_run(connection).await?;
        let patience = *mark.patience();
        if let Some(patience) = patience {
            let text = format!("PRAGMA busy_timeout = {patience}");
            raw_sql(AssertSqlSafe(text)).execute(connection).await?;
        }
        Ok(())
    }

    async fn stop(options: &SqliteConnectOptions, mark: &Mark, _: Option<&Row>) -> sqlx::Result<bool> {
        Self::interrupt(mark);
        // There is one writer at a time: to be it means that the other is over. Its owner has to let go of the
        // connection for that; no hand can be laid on a connection that somebody else has borrowed.
        let mut connection = options.clone().busy_timeout(WAIT).connect().await?;
        raw_sql("BEGIN IMMEDIATE; ROLLBACK").execute(&mut connection).await?;
        let _ = connection.close().await;
        Ok(true)
    }

    async fn resolve(options: &SqliteConnectOptions, _: &Mark, row: &Row) -> sqlx::Result<Option<Verdict>> {
        let mut connection = options.clone().busy_timeout(WAIT).connect().await?;
        raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await?;
        let stored = Self::look(&mut connection, &row.key).await?;
        let _ = connection.close().await;
        // To be the one writer shows the end, whatever became of the row.
        Ok(Some(stored.map_or(Verdict::Unknown, |stored| row.verdict(&stored))))
    }

    fn is_same_place(one: &SqliteConnectOptions, other: &SqliteConnectOptions) -> bool {
        if !is_shared(one) || !is_shared(other) {
            return false;
        }
        let (one, other) = (one.get_filename(), other.get_filename());
        // By whatever way the file is reached. A name in memory is no file, and is the same or not.
        one == other
            || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
    }

    fn is_refusal(error: &sqlx::Error) -> bool {
        // 10, an I/O error, may strike on either side of the point at which a transaction is committed.
        primary(error).is_some_and(|code| code != 10)
    }

    fn is_conflict(_: &sqlx::Error) -> bool {
        false
    }

    fn is_missing_table(error: &sqlx::Error) -> bool {
        error.as_database_error().is_some_and(|error| error.message().contains("no such table: zklock_fence"))
    }

    async fn create_table(connection: &mut SqliteConnection) -> sqlx::Result<()> {
        raw_sql(Self::FENCE_TABLE).execute(connection).await.map(drop)
    }

    async fn create_floor(
        connection: &mut SqliteConnection,
        floor: &str,
        ensemble: &[u8],
    ) -> sqlx::Result<()> {
        query(
            "INSERT INTO zklock_fence (path, ensemble, token, attempt, writer) VALUES ($1, $2, x'', x'', x'') \
             ON CONFLICT (path) DO NOTHING",
        )
        .bind(floor)
        .bind(ensemble)
        .execute(connection)
        .await
        .map(drop)
    }

    async fn create_row(connection: &mut SqliteConnection, row: &Row) -> sqlx::Result<bool> {
        query(
            "INSERT INTO zklock_fence (path, ensemble, token, attempt, writer) \
             SELECT $1, $2, token, x'', x'' FROM zklock_fence WHERE path = $3 ON CONFLICT (path) DO NOTHING",
        )
        .bind(&row.key)
        .bind(&row.ensemble[..])
        .bind(&row.floor)
        .execute(connection)
        .await
        .map(|done| done.rows_affected() == 1)
    }

    async fn look(connection: &mut SqliteConnection, key: &str) -> sqlx::Result<Option<Stored>> {
        query("SELECT ensemble, token, attempt, writer FROM zklock_fence WHERE path = $1")
            .bind(key)
            .fetch_optional(connection)
            .await?
            .as_ref()
            .map(Stored::read)
            .transpose()
    }

    async fn clean_up(
        connection: &mut SqliteConnection,
        floor: &str,
        ensemble: &[u8],
        older_than: Duration,
    ) -> sqlx::Result<u64> {
        // One transaction, so that no writer comes in between.
        raw_sql("BEGIN IMMEDIATE").execute(&mut *connection).await?;
        let before: i64 =
            query_scalar("SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS integer) - $1")
                .bind(i64::try_from(older_than.as_millis()).unwrap_or(i64::MAX / 2))
                .fetch_one(&mut *connection)
                .await?;
        query(
            "UPDATE zklock_fence SET token = max(token, coalesce((SELECT max(token) FROM zklock_fence \
             WHERE ensemble = $2 AND path <> $1 AND updated_at <= $3), x'')) WHERE path = $1",
        )
        .bind(floor)
        .bind(ensemble)
        .bind(before)
        .execute(&mut *connection)
        .await?;
        let deleted =
            query("DELETE FROM zklock_fence WHERE ensemble = $2 AND path <> $1 AND updated_at <= $3")
                .bind(floor)
                .bind(ensemble)
                .bind(before)
                .execute(&mut *connection)
                .await?;
        raw_sql("COMMIT").execute(connection).await?;
        Ok(deleted.rows_affected())
    }

    async fn adopt(
        connection: &mut SqliteConnection,
        floor: &str,
        ensemble: &[u8],
        key: Option<&str>,
    ) -> sqlx::Result<u64> {
        raw_sql("BEGIN IMMEDIATE").execute(&mut *connection).await?;
        let length = i64::try_from(FLOOR.len()).unwrap_or(0);
        query(
            "INSERT INTO zklock_fence (path, ensemble, token, attempt, writer) \
             SELECT $3 || lower(hex(ensemble)), ensemble, max(token), x'', x'' FROM zklock_fence \
             WHERE ensemble <> $1 AND substr(path, 1, $2) <> $3 AND ($4 IS NULL OR path = $4) GROUP BY ensemble \
             ON CONFLICT (path) DO UPDATE SET token = max(token, excluded.token)",
        )
        .bind(ensemble)
        .bind(length)
        .bind(FLOOR)
        .bind(key)
        .execute(&mut *connection)
        .await?;
        let adopted = query(
            "UPDATE zklock_fence SET ensemble = $2, token = (SELECT token FROM zklock_fence WHERE path = $1), \
             attempt = x'', writer = x'' \
             WHERE ensemble <> $2 AND substr(path, 1, $3) <> $4 AND ($5 IS NULL OR path = $5)",
        )
        .bind(floor)
        .bind(ensemble)
        .bind(length)
        .bind(FLOOR)
        .bind(key)
        .execute(&mut *connection)
        .await?;
        raw_sql("COMMIT").execute(connection).await?;
        Ok(adopted.rows_affected())
    }
}

/// How many steps of a statement pass between two questions whether it may go on: some microseconds.
const STEPS: i32 = 1000;

/// How long connections of ours wait for the write lock.
const WAIT: Duration = Duration::from_secs(5);

/// Whether two connections with these options see one database: one in memory is each connection's own, if it is not
/// said otherwise.
fn is_shared(options: &Options<Sqlite>) -> bool {
    let name = options.get_filename();
    if name.as_os_str().is_empty() || name == Path::new(":memory:") {
        return false;
    }
    let url = options.to_url_lossy();
    let says = |key: &str, value: &str| url.query_pairs().any(|(k, v)| k == key && v == value);
    !says("mode", "memory") || says("cache", "shared")
}

fn primary(error: &sqlx::Error) -> Option<u32> {
    // The low byte; the rest says more of the same.
    code(error)?.parse::<u32>().ok().map(|code| code & 0xff)
}

fn is_busy(error: &sqlx::Error) -> bool {
    matches!(primary(error), Some(5 | 6))
}

impl Mark {
    fn patience(&self) -> std::sync::MutexGuard<'_, Option<i64>> {
        self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_run(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed) && (self.may_run)()
    }
}

impl std::fmt::Debug for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mark").field("stopped", &self.stopped).finish_non_exhaustive()
    }
}
