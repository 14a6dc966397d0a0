use std::{
    fmt::Write,
    future::Future,
    mem::ManuallyDrop,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, Postgres, Row as _, SqlSafeStr, Transaction,
    postgres::{PgConnectOptions, PgDatabaseError, PgSeverity, PgTransactionManager},
    query, query_as, query_scalar, raw_sql,
};
use sqlx_core::transaction::TransactionManager;
use uuid::Uuid;

use super::{
    Isolation,
    database::{Database, GUARD, Limits, MayRun, Verdict, code, sealed::Sealed},
    fence::{FLOOR, Row, Stored},
};

/// How a transaction is found again: by an advisory lock that it takes before anything that others could wait for, and
/// holds for as long as it holds that, whoever's process it runs in. Unlike a process id it cannot mean another
/// transaction, and it is known before the server has answered.
#[derive(Debug)]
pub struct Mark {
    key: i64,
    /// At SERIALIZABLE, who reads a table as a whole depends on all that others write to it, and the planner reads a small one
    /// so: told not to, until the row is raised, transactions of different paths have nothing to do with each other.
    by_index: AtomicBool,
    origin: Mutex<Option<Origin>>,
}

/// Where a transaction runs, as far as it has been told.
#[derive(Clone, Debug)]
struct Origin {
    /// When the server was started: tells it from another one behind the same address.
    server: i64,
    database: String,
    /// `None` without a fence: an id is given with the first write.
    xid: Option<i64>,
    /// The fence table. The search path of a pool's connections may be another than that of a fresh one.
    table: Option<i64>,
}

impl Sealed for Postgres {}

impl Database for Postgres {
    type Mark = Mark;

    const FENCE_TABLE: &'static str = r#"CREATE TABLE IF NOT EXISTS zklock_fence (
    path text COLLATE "C" PRIMARY KEY,
    ensemble bytea NOT NULL,
    token bytea NOT NULL,
    attempt bytea NOT NULL,
    writer bytea NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50)"#;

    const ENDS_SILENTLY: bool = false;

    fn mark(writer: Uuid, _: MayRun) -> Mark {
        let (high, low) = writer.as_u64_pair();
        // Both halves have bits that are the same in every id.
        let key = (high ^ low.rotate_left(32)).cast_signed();
        Mark { key, by_index: AtomicBool::new(false), origin: Mutex::new(None) }
    }

    async fn begin(connection: &mut PgConnection, mark: &Mark, limits: Limits) -> sqlx::Result<()> {
        *mark.origin() = None;
        let by_index = limits.fenced && limits.isolation == Some(Isolation::Serializable);
        mark.by_index.store(by_index, Ordering::Relaxed);
        let version = connection.server_version_num().unwrap_or(0);
        let checked = version >= 14_00_00 && !CHECK_IS_REFUSED.load(Ordering::Relaxed);
        match begin(connection, mark, limits, checked).await {
            Err(error) if checked && code(&error).is_some_and(|code| code == "22023") => {
                CHECK_IS_REFUSED.store(true, Ordering::Relaxed);
                raw_sql("ROLLBACK").execute(&mut *connection).await?;
                begin(connection, mark, limits, false).await
            }
            outcome => outcome,
        }
    }

    async fn raise(connection: &mut PgConnection, mark: Option<&Mark>, row: &Row) -> sqlx::Result<bool> {
        // The condition is looked at before the row is waited for, so that it can be stopped while it waits. It does not
        // wait itself: whoever has the lock of the mark already is about to stop us. A SELECT of its own in the batch of
        // BEGIN would cost a tenth of a transaction, to be parsed and planned each time.
        let by_index = mark.is_some_and(|mark| mark.by_index.load(Ordering::Relaxed));
        let raised = query(if by_index { RAISE_BY_INDEX } else { RAISE })
            .bind(&row.key)
            .bind(&row.ensemble[..])
            .bind(&row.token[..])
            .bind(&row.attempt[..])
            .bind(&row.writer[..])
            .bind(mark.map(|mark| mark.key))
            .fetch_optional(connection)
            .await?;
        let Some(raised) = raised else { return Ok(false) };
        if let Some(mark) = mark {
            *mark.origin() = Some(Origin {
                server: raised.try_get(0)?,
                xid: Some(raised.try_get(1)?),
                table: Some(raised.try_get(2)?),
                database: raised.try_get(3)?,
            });
        }
        Ok(true)
    }

    async fn identify(connection: &mut PgConnection, mark: &Mark) -> sqlx::Result<()> {
        let (server, database) = query_as(
            "SELECT (date_part('epoch', pg_postmaster_start_time()) * 1000000)::int8, current_database()::text",
        )
        .fetch_one(connection)
        .await?;
        *mark.origin() = Some(Origin { server, database, xid: None, table: None });
        Ok(())
    }

    async fn release_guard(connection: &mut PgConnection, _: Option<Duration>) -> sqlx::Result<()> {
        raw_sql("RELEASE SAVEPOINT zklock_guard").execute(connection).await.map(drop)
    }

    async fn return_to(connection: &mut PgConnection, savepoint: &str) -> sqlx::Result<()> {
        let text = format!("ROLLBACK TO SAVEPOINT {savepoint}");
        raw_sql(AssertSqlSafe(text)).execute(connection).await.map(drop)
    }

    fn is_no_savepoint(error: &sqlx::Error) -> bool {
        // No such savepoint; no transaction at all.
        code(error).is_some_and(|code| code == "3B001" || code == "25P01")
    }

    async fn plain_rollback(connection: &mut PgConnection) -> sqlx::Result<()> {
        raw_sql("ROLLBACK").execute(connection).await.map(drop)
    }

    async fn savepoint(connection: &mut PgConnection) -> sqlx::Result<()> {
        // One that has failed refuses this. Were it the driver's savepoint that is refused, the driver would roll back
        // the whole outer transaction, and what its owner writes then would commit by itself.
        raw_sql("SELECT").execute(&mut *connection).await?;
        or_forgotten(PgTransactionManager::begin(connection, None)).await
    }

    async fn nested(connection: &mut PgConnection) -> sqlx::Result<Transaction<'_, Self>> {
        or_forgotten(Transaction::begin(connection, None)).await
    }

    async fn cancel(options: &PgConnectOptions, mark: &Mark) -> sqlx::Result<()> {
        let mut connection = connect(options).await?;
        signal(&mut connection, "pg_cancel_backend", mark).await?;
        let _ = connection.close().await;
        Ok(())
    }

    async fn stop(options: &PgConnectOptions, mark: &Mark, row: Option<&Row>) -> sqlx::Result<bool> {
        let mut connection = connect(options).await?;
        let found = signal(&mut connection, "pg_terminate_backend", mark).await?;
        // Granted when the transaction is over, and not before.
        query("SELECT pg_advisory_xact_lock($1)").bind(mark.key).execute(&mut connection).await?;
        let origin = mark.origin().clone();
        let confirmed = if found > 0 {
            true
        } else if let Some(Origin { server, .. }) = origin {
            server == query_scalar::<_, i64>(SERVER).fetch_one(&mut connection).await?
        } else {
            // Its first statement was not answered: whatever server it is on, the row says whether it is over.
            match row {
                Some(row) => locked(&mut connection, row, None).await?.is_some(),
                None => false,
            }
        };
        let _ = connection.close().await;
        Ok(confirmed)
    }

    async fn resolve(options: &PgConnectOptions, mark: &Mark, row: &Row) -> sqlx::Result<Option<Verdict>> {
        let Some(origin) = mark.origin().clone() else { return Ok(None) };
        let mut connection = connect(options).await?;
        let stored = locked(&mut connection, row, origin.table).await?;
        // A row that is not found, as with another search path, was not waited for either.
        let mut verdict = stored.map(|stored| row.verdict(&stored));
        // An id means something to the server that gave it, and to no other.
        if matches!(verdict, None | Some(Verdict::Unknown))
            && origin.server == query_scalar::<_, i64>(SERVER).fetch_one(&mut connection).await?
        {
            let status: Option<String> =
                query_scalar("SELECT txid_status($1)").bind(origin.xid).fetch_one(&mut connection).await?;
            verdict = match status.as_deref() {
                Some("committed") => Some(Verdict::Committed),
                Some("aborted") => Some(Verdict::NotCommitted),
                Some("in progress") => None,
                _ => verdict,
            };
        }
        let _ = connection.close().await;
        Ok(verdict)
    }

    fn is_same_place(one: &PgConnectOptions, other: &PgConnectOptions) -> bool {
        let place = |options: &PgConnectOptions| {
            let (socket, host) = (options.get_socket().cloned(), options.get_host().to_owned());
            // A pooler in between may choose the server by the user.
            let user = options.get_username().to_owned();
            (socket, host, options.get_port(), options.get_database().map(str::to_owned), user)
        };
        place(one) == place(other)
    }

    fn is_same_database(one: &Mark, other: &Mark) -> bool {
        let told =
            |mark: &Mark| mark.origin().as_ref().map(|origin| (origin.server, origin.database.clone()));
        told(one).is_some_and(|one| told(other) == Some(one))
    }

    fn is_refusal(error: &sqlx::Error) -> bool {
        let Some(error) = error.as_database_error() else { return false };
        // What ends the connection may come after the commit as well as before.
        error.try_downcast_ref::<PgDatabaseError>().is_some_and(|error| error.severity() == PgSeverity::Error)
    }

    fn is_conflict(error: &sqlx::Error) -> bool {
        code(error).is_some_and(|code| code == "40001" || code == "40P01")
    }

    fn is_missing_table(error: &sqlx::Error) -> bool {
        code(error).is_some_and(|code| code == "42P01")
    }

    async fn create_table(connection: &mut PgConnection) -> sqlx::Result<()> {
        raw_sql(Self::FENCE_TABLE).execute(connection).await.map(drop)
    }

    async fn create_floor(connection: &mut PgConnection, floor: &str, ensemble: &[u8]) -> sqlx::Result<()> {
        query(
            "INSERT INTO zklock_fence (path, ensemble, token, attempt, writer) VALUES ($1, $2, '', '', '') \
             ON CONFLICT (path) DO NOTHING",
        )
        .bind(floor)
        .bind(ensemble)
        .execute(connection)
        .await
        .map(drop)
    }

    async fn create_row(connection: &mut PgConnection, row: &Row) -> sqlx::Result<bool> {
        // Locked while it is read: a clean-up must not lift it between the look and the insert.
        query(
            "WITH floor AS (SELECT token FROM zklock_fence WHERE path = $3 FOR SHARE) \
             INSERT INTO zklock_fence (path, ensemble, token, attempt, writer) \
             SELECT $1, $2, token, '', '' FROM floor ON CONFLICT (path) DO NOTHING",
        )
        .bind(&row.key)
        .bind(&row.ensemble[..])
        .bind(&row.floor)
        .execute(connection)
        .await
        .map(|done| done.rows_affected() == 1)
    }

    async fn look(connection: &mut PgConnection, key: &str) -> sqlx::Result<Option<Stored>> {
        query("SELECT ensemble, token, attempt, writer FROM zklock_fence WHERE path = $1")
            .bind(key)
            .fetch_optional(connection)
            .await?
            .as_ref()
            .map(Stored::read)
            .transpose()
    }

    async fn clean_up(
        connection: &mut PgConnection,
        floor: &str,
        ensemble: &[u8],
        older_than: Duration,
    ) -> sqlx::Result<u64> {
        // Rows that are in use are left alone: their holders would have to wait for us, and we for them.
        let deleted: i64 = query_scalar(
            "WITH floor AS (SELECT path FROM zklock_fence WHERE path = $1 FOR UPDATE), \
             old AS (SELECT f.path FROM zklock_fence f, floor WHERE f.ensemble = $2 AND f.path <> $1 \
                     AND f.updated_at <= now() - $3 * interval '1 microsecond' FOR UPDATE OF f SKIP LOCKED), \
             gone AS (DELETE FROM zklock_fence f USING old WHERE f.path = old.path RETURNING f.token), \
             highest AS (SELECT token FROM gone ORDER BY token DESC LIMIT 1), \
             lifted AS (UPDATE zklock_fence f SET token = greatest(f.token, highest.token), updated_at = now() \
                        FROM highest WHERE f.path = $1) \
             SELECT count(*) FROM gone",
        )
        .bind(floor)
        .bind(ensemble)
        .bind(i64::try_from(older_than.as_micros()).unwrap_or(i64::MAX))
        .fetch_one(connection)
        .await?;
        Ok(deleted.unsigned_abs())
    }

    async fn adopt(
        connection: &mut PgConnection,
        floor: &str,
        ensemble: &[u8],
        key: Option<&str>,
    ) -> sqlx::Result<u64> {
        query(
            "WITH floor AS (SELECT token FROM zklock_fence WHERE path = $1 FOR SHARE), \
             taken AS (SELECT f.path, f.ensemble, f.token FROM zklock_fence f \
                       WHERE f.ensemble <> $2 AND NOT starts_with(f.path, $3) \
                       AND ($4::text IS NULL OR f.path = $4) FOR UPDATE), \
             highest AS (SELECT DISTINCT ON (ensemble) ensemble, token FROM taken ORDER BY ensemble, token DESC), \
             lifted AS (INSERT INTO zklock_fence (path, ensemble, token, attempt, writer) \
                        SELECT $3 || encode(ensemble, 'hex'), ensemble, token, '', '' FROM highest \
                        ON CONFLICT (path) DO UPDATE SET \
                        token = greatest(zklock_fence.token, excluded.token), updated_at = now()) \
             UPDATE zklock_fence f SET ensemble = $2, token = floor.token, attempt = '', writer = '', \
             updated_at = now() FROM floor, taken WHERE f.path = taken.path",
        )
        .bind(floor)
        .bind(ensemble)
        .bind(FLOOR)
        .bind(key)
        .execute(connection)
        .await
        .map(|done| done.rows_affected())
    }
}

macro_rules! raise {
    ($and:literal) => {
        concat!(
            "UPDATE zklock_fence SET token = $3, attempt = $4, writer = $5, updated_at = now() ",
            "WHERE path = $1 AND ensemble = $2 AND (token < $3 OR (token = $3 AND attempt = $4)) ",
            "AND pg_try_advisory_xact_lock($6) IS NOT FALSE ",
            "RETURNING (date_part('epoch', pg_postmaster_start_time()) * 1000000)::int8, txid_current(), ",
            "tableoid::int8, current_database()::text",
            $and
        )
    };
}

const RAISE: &str = raise!("");
/// Gives the planner back, for the body, what BEGIN took from it.
const RAISE_BY_INDEX: &str = raise!(", set_config('enable_seqscan', NULL, true)");

const SERVER: &str = "SELECT (date_part('epoch', pg_postmaster_start_time()) * 1000000)::int8";

/// Servers on some systems cannot watch their clients. Remembered for the whole process: without it a transaction of
/// a client that is gone ends a little later, and nothing else changes.
static CHECK_IS_REFUSED: AtomicBool = AtomicBool::new(false);

async fn begin(
    connection: &mut PgConnection,
    mark: &Mark,
    limits: Limits,
    checked: bool,
) -> sqlx::Result<()> {
    let version = connection.server_version_num().unwrap_or(0);
    let mut text = String::with_capacity(320);
    text.push_str("BEGIN");
    // Writing to a string does not fail.
    if let Some(isolation) = limits.isolation {
        let _ = write!(text, " ISOLATION LEVEL {}", isolation.sql());
    }
    if let Some(millis) = limits.millis() {
        // The longest that the settings take.
        let millis = millis.min(i32::MAX.unsigned_abs().into());
        let _ = write!(
            text,
            "; SET LOCAL statement_timeout = {millis}; SET LOCAL lock_timeout = {millis}; \
             SET LOCAL idle_in_transaction_session_timeout = {millis}"
        );
        if version >= 17_00_00 {
            let _ = write!(text, "; SET LOCAL transaction_timeout = {millis}");
        }
    }
    if mark.by_index.load(Ordering::Relaxed) {
        text.push_str("; SET LOCAL enable_seqscan = off");
    }
    if checked {
        text.push_str("; SET LOCAL client_connection_check_interval = 50");
    }
    if !limits.fenced {
        let _ = write!(text, "; SELECT pg_advisory_xact_lock({})", mark.key);
    }
    let _ = write!(text, "; SAVEPOINT {GUARD}");
    PgTransactionManager::begin(connection, Some(AssertSqlSafe(text).into_sql_str())).await
}

/// A connection of our own, whatever the settings of the role and the database are.
async fn connect(options: &PgConnectOptions) -> sqlx::Result<PgConnection> {
    let mut connection = options.connect().await?;
    raw_sql(
        "SET statement_timeout = 0; SET lock_timeout = 5000; SET default_transaction_read_only = off; \
         SET default_transaction_isolation = 'read committed'",
    )
    .execute(&mut connection)
    .await?;
    Ok(connection)
}

/// Calls a function of the server on the process that the transaction runs in. Returns how many were found.
async fn signal(connection: &mut PgConnection, function: &str, mark: &Mark) -> sqlx::Result<i64> {
    let (class, object) = mark.halves();
    let text = format!(
        "SELECT count({function}(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND classid::int8 = $1 AND objid::int8 = $2 AND objsubid = 1"
    );
    query_scalar(AssertSqlSafe(text)).bind(class).bind(object).fetch_one(connection).await
}

/// The row, when nobody's transaction has it any more.
async fn locked(
    connection: &mut PgConnection,
    row: &Row,
    table: Option<i64>,
) -> sqlx::Result<Option<Stored>> {
    query(
        "SELECT ensemble, token, attempt, writer FROM zklock_fence \
         WHERE path = $1 AND ($2::int8 IS NULL OR tableoid::int8 = $2) FOR UPDATE",
    )
    .bind(&row.key)
    .bind(table)
    .fetch_optional(connection)
    .await?
    .as_ref()
    .map(Stored::read)
    .transpose()
}

impl Mark {
    fn origin(&self) -> std::sync::MutexGuard<'_, Option<Origin>> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As the server lists it.
    fn halves(&self) -> (i64, i64) {
        let key = self.key.cast_unsigned();
        ((key >> 32).cast_signed(), (key & u64::from(u32::MAX)).cast_signed())
    }
}

/// Sets a savepoint. When it is dropped before its end, the driver's own future rolls back a level too many, the outer
/// transaction. Forgotten instead, it leaves a savepoint that nobody returns to.
async fn or_forgotten<T>(future: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let mut savepoint = Forgotten(Some(ManuallyDrop::new(Box::pin(future))));
    let outcome = match &mut savepoint.0 {
        Some(future) => future.as_mut().await,
        // Taken by `finished` only.
        None => Err(sqlx::Error::BeginFailed),
    };
    savepoint.finished();
    outcome
}

/// A future that is forgotten when it is dropped before its end.
struct Forgotten<F>(Option<ManuallyDrop<F>>);

impl<F> Forgotten<F> {
    fn finished(mut self) {
        if let Some(future) = self.0.take() {
            drop(ManuallyDrop::into_inner(future));
        }
    }
}
