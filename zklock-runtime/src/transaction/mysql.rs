use std::{
    fmt::Write,
    future::poll_fn,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Either, MySql, MySqlConnection, Row as _, SqlSafeStr,
    mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlTransactionManager},
    query, query_scalar, raw_sql,
};
use sqlx_core::transaction::TransactionManager;
use uuid::Uuid;

use super::{
    database::{Database, GUARD, Limits, MayRun, Verdict, sealed::Sealed},
    fence::{FLOOR, Row, Stored},
};

/// How a transaction is found again: by its connection, which nobody else gets while it may be killed.
#[derive(Debug)]
pub struct Mark {
    origin: Mutex<Option<Origin>>,
}

#[derive(Clone, Debug)]
struct Origin {
    connection: u64,
    /// Which server it is a connection of, as far as a server without an id for the whole world says.
    server: String,
    /// In which second it was started, together with its number.
    started: u64,
    /// The one that the fence table was found in: a pool's connections may be told to use another than fresh ones.
    database: Option<String>,
    /// When it was asked for: a server that has been up for less is not the one that answered.
    since: Instant,
}

impl Sealed for MySql {}

impl Database for MySql {
    type Mark = Mark;

    const FENCE_TABLE: &'static str = "CREATE TABLE IF NOT EXISTS zklock_fence (
    path varbinary(512) NOT NULL PRIMARY KEY,
    ensemble binary(16) NOT NULL,
    token varbinary(14) NOT NULL,
    attempt varbinary(16) NOT NULL,
    writer varbinary(16) NOT NULL,
    updated_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP
) ENGINE = InnoDB";

    fn mark(_: Uuid, _: MayRun) -> Mark {
        Mark { origin: Mutex::new(None) }
    }

    async fn begin(connection: &mut MySqlConnection, mark: &Mark, limits: Limits) -> sqlx::Result<()> {
        *mark.origin() = None;
        let mut text = String::with_capacity(512);
        // Before START TRANSACTION, so that nothing is open should one of them be refused; and always, so that what
        // is restored is never a value of an earlier transaction.
        text.push_str(
            "SET @zklock_lock_wait = @@innodb_lock_wait_timeout\
             /*M!100300 , @zklock_idle = @@idle_transaction_timeout, @zklock_statement = @@max_statement_time */\
             /*!50708 , @zklock_idle = @@wait_timeout, @zklock_statement = @@max_execution_time */",
        );
        // Writing to a string does not fail.
        if let Some(millis) = limits.millis() {
            // MySQL has no limit for idle transactions, only one for idle connections, and none for writing
            // statements. The longest that each takes.
            let seconds = millis.div_ceil(1000).min(31_536_000);
            let millis = millis.min(31_536_000_000);
            let _ = write!(
                text,
                ", SESSION innodb_lock_wait_timeout = {seconds}\
                 /*M!100300 , SESSION idle_transaction_timeout = {seconds}, \
                 SESSION max_statement_time = {}.{:03} */\
                 /*!50708 , SESSION wait_timeout = {seconds}, SESSION max_execution_time = {} */",
                millis / 1000,
                millis % 1000,
                millis.min(u32::MAX.into()),
            );
        }
        if let Some(isolation) = limits.isolation {
            let _ = write!(text, "; SET TRANSACTION ISOLATION LEVEL {}", isolation.sql());
        }
        let _ = write!(text, "; START TRANSACTION; SAVEPOINT {GUARD}");
        MySqlTransactionManager::begin(connection, Some(AssertSqlSafe(text).into_sql_str())).await
    }

    async fn raise(connection: &mut MySqlConnection, mark: Option<&Mark>, row: &Row) -> sqlx::Result<bool> {
        let (token, attempt) = (Hex(&row.token), Hex(&row.attempt));
        // Who we are is answered before the update waits for its row: only then can it be stopped while it waits.
        let text = format!(
            "{IDENTIFY}; UPDATE zklock_fence SET token = {token}, attempt = {attempt}, writer = {} \
             WHERE path = {} AND ensemble = {} AND (token < {token} OR (token = {token} AND attempt = {attempt}))",
            Hex(&row.writer),
            Hex(row.key.as_bytes()),
            Hex(&row.ensemble),
        );
        identify(connection, mark, text).await.map(|matched| matched == 1)
    }

    async fn identify(connection: &mut MySqlConnection, mark: &Mark) -> sqlx::Result<()> {
        identify(connection, Some(mark), IDENTIFY.to_owned()).await.map(drop)
    }

    async fn release_guard(connection: &mut MySqlConnection, _: Option<Duration>) -> sqlx::Result<()> {
        raw_sql("RELEASE SAVEPOINT zklock_guard").execute(connection).await.map(drop)
    }

    async fn return_to(connection: &mut MySqlConnection, savepoint: &str) -> sqlx::Result<()> {
        let text = format!("ROLLBACK TO SAVEPOINT {savepoint}");
        raw_sql(AssertSqlSafe(text)).execute(connection).await.map(drop)
    }

    fn is_no_savepoint(error: &sqlx::Error) -> bool {
        number(error) == Some(1305)
    }

    async fn plain_rollback(connection: &mut MySqlConnection) -> sqlx::Result<()> {
        raw_sql("ROLLBACK").execute(connection).await.map(drop)
    }

    async fn restore(connection: &mut MySqlConnection, _: &Mark) -> sqlx::Result<()> {
        raw_sql(
            "SET SESSION innodb_lock_wait_timeout = @zklock_lock_wait\
             /*M!100300 , SESSION idle_transaction_timeout = @zklock_idle, \
             SESSION max_statement_time = @zklock_statement */\
             /*!50708 , SESSION wait_timeout = @zklock_idle, SESSION max_execution_time = @zklock_statement */",
        )
        .execute(connection)
        .await
        .map(drop)
    }

    async fn cancel(options: &MySqlConnectOptions, mark: &Mark) -> sqlx::Result<()> {
        let Some(origin) = mark.origin().clone() else { return Ok(()) };
        let mut connection = connect(options).await?;
        if is_same_server(&mut connection, &origin).await? {
            raw_sql(AssertSqlSafe(format!("KILL QUERY {}", origin.connection)))
                .execute(&mut connection)
                .await?;
        }
        let _ = connection.close().await;
        Ok(())
    }

    async fn stop(options: &MySqlConnectOptions, mark: &Mark, row: Option<&Row>) -> sqlx::Result<bool> {
        let mut connection = connect(options).await?;
        let origin = mark.origin().clone();
        let mut confirmed = false;
        if let Some(origin) = &origin {
            // Elsewhere, or started since, the number is that of somebody else's connection.
            if is_same_server(&mut connection, origin).await? {
                let killed = raw_sql(AssertSqlSafe(format!("KILL {}", origin.connection)));
                match killed.execute(&mut connection).await {
                    // 1094: it was gone already.
                    Err(error) if number(&error) != Some(1094) => return Err(error),
                    _ => {}
                }
                // It is listed until all is undone, which may take a while after KILL has returned. One that is not
                // listed on its own server is over as well.
                while is_connected(&mut connection, origin.connection).await? {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                confirmed = true;
            }
        }
        if let (Some(row), false) = (row, confirmed) {
            // Whatever server it is on, the row is locked from the first statement to the end.
            let database = origin.and_then(|origin| origin.database);
            confirmed = locked(&mut connection, row, database.as_deref()).await?.is_some();
        }
        let _ = connection.close().await;
        Ok(confirmed)
    }

    async fn resolve(options: &MySqlConnectOptions, mark: &Mark, row: &Row) -> sqlx::Result<Option<Verdict>> {
        let Some(origin) = mark.origin().clone() else { return Ok(None) };
        let mut connection = connect(options).await?;
        let stored = locked(&mut connection, row, origin.database.as_deref()).await?;
        let _ = connection.close().await;
        // A row that is not found, as in another database, was not waited for either.
        Ok(stored.map(|stored| row.verdict(&stored)))
    }

    fn is_same_place(one: &MySqlConnectOptions, other: &MySqlConnectOptions) -> bool {
        let place = |options: &MySqlConnectOptions| {
            let (socket, host) = (options.get_socket().cloned(), options.get_host().to_owned());
            // A proxy in between may choose the server by the user.
            let user = options.get_username().to_owned();
            (socket, host, options.get_port(), options.get_database().map(str::to_owned), user)
        };
        place(one) == place(other)
    }

    fn is_same_database(one: &Mark, other: &Mark) -> bool {
        let told = |mark: &Mark| {
            let origin = mark.origin();
            origin.as_ref().map(|told| (told.server.clone(), told.started, told.database.clone()))
        };
        told(one).is_some_and(|one| told(other) == Some(one))
    }

    fn is_refusal(error: &sqlx::Error) -> bool {
        // 1213: a cluster that certifies at COMMIT has chosen another transaction. Of all else it is not certain
        // whether it came before the commit or after.
        number(error) == Some(1213)
    }

    fn is_conflict(error: &sqlx::Error) -> bool {
        // Deadlock; or changed since the snapshot was taken, for servers with `innodb_snapshot_isolation`.
        matches!(number(error), Some(1213 | 1020))
    }

    fn is_missing_table(error: &sqlx::Error) -> bool {
        number(error) == Some(1146)
    }

    async fn create_table(connection: &mut MySqlConnection) -> sqlx::Result<()> {
        raw_sql(Self::FENCE_TABLE).execute(connection).await.map(drop)
    }

    async fn create_floor(
        connection: &mut MySqlConnection,
        floor: &str,
        ensemble: &[u8],
    ) -> sqlx::Result<()> {
        query(
            "INSERT IGNORE INTO zklock_fence (path, ensemble, token, attempt, writer) VALUES (?, ?, '', '', '')",
        )
        .bind(floor.as_bytes())
        .bind(ensemble)
        .execute(connection)
        .await
        .map(drop)
    }

    async fn create_row(connection: &mut MySqlConnection, row: &Row) -> sqlx::Result<bool> {
        // Locked while it is read: a clean-up must not lift it between the look and the insert.
        query(
            "INSERT IGNORE INTO zklock_fence (path, ensemble, token, attempt, writer) \
             SELECT ?, ?, floor.token, '', '' FROM zklock_fence floor WHERE floor.path = ? LOCK IN SHARE MODE",
        )
        .bind(row.key.as_bytes())
        .bind(&row.ensemble[..])
        .bind(row.floor.as_bytes())
        .execute(connection)
        .await
        .map(|done| done.rows_affected() == 1)
    }

    async fn look(connection: &mut MySqlConnection, key: &str) -> sqlx::Result<Option<Stored>> {
        query("SELECT ensemble, token, attempt, writer FROM zklock_fence WHERE path = ?")
            .bind(key.as_bytes())
            .fetch_optional(connection)
            .await?
            .as_ref()
            .map(Stored::read)
            .transpose()
    }

    async fn clean_up(
        connection: &mut MySqlConnection,
        floor: &str,
        ensemble: &[u8],
        older_than: Duration,
    ) -> sqlx::Result<u64> {
        let (floor, ensemble) = (Hex(floor.as_bytes()), Hex(ensemble));
        // A row that is raised meanwhile is too young to be deleted, and one above the new floor is left alone. Rows
        // that are in use must not be waited for with the floor locked, so the old ones are picked out first.
        let text = format!(
            "SET SESSION innodb_lock_wait_timeout = 2; \
             SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; \
             SELECT NOW() - INTERVAL {} MICROSECOND INTO @zklock_before; \
             SELECT token INTO @zklock_floor FROM zklock_fence WHERE path = {floor} FOR UPDATE; \
             SELECT MAX(token) INTO @zklock_highest FROM zklock_fence \
             WHERE ensemble = {ensemble} AND path <> {floor} AND updated_at <= @zklock_before; \
             UPDATE zklock_fence SET token = @zklock_highest \
             WHERE path = {floor} AND token < @zklock_highest; \
             DELETE f FROM zklock_fence f JOIN (SELECT DISTINCT path FROM zklock_fence \
             WHERE ensemble = {ensemble} AND path <> {floor} AND updated_at <= @zklock_before) old \
             ON old.path = f.path WHERE f.updated_at <= @zklock_before AND f.token <= @zklock_highest; \
             SELECT ROW_COUNT() INTO @zklock_deleted; COMMIT; \
             SELECT CAST(@zklock_deleted AS SIGNED)",
            older_than.as_micros().min(1 << 60),
        );
        let deleted: Option<i64> = raw_sql(AssertSqlSafe(text)).fetch_one(connection).await?.try_get(0)?;
        Ok(deleted.unwrap_or(0).max(0).unsigned_abs())
    }

    async fn adopt(
        connection: &mut MySqlConnection,
        floor: &str,
        ensemble: &[u8],
        key: Option<&str>,
    ) -> sqlx::Result<u64> {
        let (floor, ensemble, prefix) = (Hex(floor.as_bytes()), Hex(ensemble), Hex(FLOOR.as_bytes()));
        let mut taken = format!("f.ensemble <> {ensemble} AND LEFT(f.path, {}) <> {prefix}", FLOOR.len());
        if let Some(key) = key {
            // Writing to a string does not fail.
            let _ = write!(taken, " AND f.path = {}", Hex(key.as_bytes()));
        }
        // Locked first: what is lifted to must be what is taken.
        let text = format!(
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION; \
             SELECT COUNT(*) INTO @zklock_taken FROM zklock_fence f WHERE {taken} FOR UPDATE; \
             INSERT INTO zklock_fence (path, ensemble, token, attempt, writer) \
             SELECT CONCAT({prefix}, LOWER(HEX(donor.ensemble))), donor.ensemble, donor.highest, '', '' \
             FROM (SELECT f.ensemble, MAX(f.token) AS highest FROM zklock_fence f WHERE {taken} \
             GROUP BY f.ensemble) donor \
             ON DUPLICATE KEY UPDATE token = GREATEST(zklock_fence.token, donor.highest); \
             UPDATE zklock_fence f JOIN zklock_fence floor ON floor.path = {floor} \
             SET f.ensemble = {ensemble}, f.token = floor.token, f.attempt = '', f.writer = '' WHERE {taken}; \
             COMMIT; SELECT CAST(@zklock_taken AS SIGNED)",
        );
        let adopted: Option<i64> = raw_sql(AssertSqlSafe(text)).fetch_one(connection).await?.try_get(0)?;
        Ok(adopted.unwrap_or(0).max(0).unsigned_abs())
    }
}

/// The upper part of a short id is made of the server's number and of the second in which it was started.
const IDENTIFY: &str = "SELECT CONNECTION_ID(), DATABASE(), CONCAT_WS(' ', @@hostname, @@port, @@server_id), \
                        UUID_SHORT() >> 24";

/// Runs a text that begins with [`IDENTIFY`], notes its answer as soon as it is there, and returns how many rows the
/// last statement matched.
async fn identify(connection: &mut MySqlConnection, mark: Option<&Mark>, text: String) -> sqlx::Result<u64> {
    let since = Instant::now();
    let mut matched = 0;
    let mut answers = raw_sql(AssertSqlSafe(text)).fetch_many(connection);
    while let Some(answer) = poll_fn(|context| answers.as_mut().poll_next(context)).await {
        match answer? {
            Either::Right(row) => {
                let origin = Origin {
                    connection: row.try_get(0)?,
                    database: row.try_get(1)?,
                    server: row.try_get(2)?,
                    started: row.try_get(3)?,
                    since,
                };
                if let Some(mark) = mark {
                    *mark.origin() = Some(origin);
                }
            }
            Either::Left(done) => matched = done.rows_affected(),
        }
    }
    Ok(matched)
}

/// A connection of our own, whatever the settings of the server are.
async fn connect(options: &MySqlConnectOptions) -> sqlx::Result<MySqlConnection> {
    let mut connection = options.connect().await?;
    raw_sql(
        "SET SESSION innodb_lock_wait_timeout = 5; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )
    .execute(&mut connection)
    .await?;
    Ok(connection)
}

/// Whether this is a connection of the server that `origin` was told by, and that one not started again since.
async fn is_same_server(connection: &mut MySqlConnection, origin: &Origin) -> sqlx::Result<bool> {
    let row = raw_sql(IDENTIFY).fetch_one(&mut *connection).await?;
    if row.try_get::<String, _>(2)? != origin.server {
        return Ok(false);
    }
    let row = raw_sql("SHOW GLOBAL STATUS LIKE 'Uptime'").fetch_one(connection).await?;
    let seconds = row.try_get::<String, _>(1)?.parse().unwrap_or(0);
    // It counts whole seconds.
    Ok(Duration::from_secs(seconds) + Duration::from_secs(2) >= origin.since.elapsed())
}

async fn is_connected(connection: &mut MySqlConnection, id: u64) -> sqlx::Result<bool> {
    let found: i64 = query_scalar("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = ?")
        .bind(id)
        .fetch_one(connection)
        .await?;
    Ok(found > 0)
}

/// The row, when nobody's transaction has it any more.
async fn locked(
    connection: &mut MySqlConnection,
    row: &Row,
    database: Option<&str>,
) -> sqlx::Result<Option<Stored>> {
    query(
        "SELECT ensemble, token, attempt, writer FROM zklock_fence \
         WHERE path = ? AND (? IS NULL OR DATABASE() = ?) FOR UPDATE",
    )
    .bind(row.key.as_bytes())
    .bind(database)
    .bind(database)
    .fetch_optional(connection)
    .await?
    .as_ref()
    .map(Stored::read)
    .transpose()
}

/// The number of a server's error; its five letter state is shared by many.
fn number(error: &sqlx::Error) -> Option<u16> {
    error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
}

impl Mark {
    fn origin(&self) -> MutexGuard<'_, Option<Origin>> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes as a literal of which every character is known.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("X'")?;
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("'")
    }
}
