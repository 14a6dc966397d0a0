//! What the cases do to a database, in the words of each.

use std::{future::Future, time::Duration};

use sqlx::{AssertSqlSafe, query, query_scalar, raw_sql};

use crate::transaction::database::{Database, Options};

/// A row, all of the table `t (id, v)`, which starts with the row 0.
pub(super) const SHARED: i64 = 0;

pub(super) trait Bench: Database {
    /// A database of its own, with the table `t`, and a user in it who may no more than applications usually may.
    fn create() -> impl Future<Output = Options<Self>> + Send;

    fn insert(connection: &mut Self::Connection, id: i64) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Changes the row [`SHARED`], and so locks it.
    fn touch(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send;

    fn ids(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<Vec<i64>>> + Send;

    /// Fails at once, without much waiting, when somebody has the row [`SHARED`] locked.
    fn is_free(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// A statement that runs for a minute.
    fn minute(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// A statement that fails, and with it, as far as the database does so, the transaction.
    fn fail(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// The settings that BEGIN changes, as text.
    fn settings(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<String>> + Send;

    /// The same database by another way.
    fn by_way_of(options: &Options<Self>, port: u16) -> Options<Self>;

    /// Counts those who wait, in this database, for somebody else's transaction to let the fence row go.
    const WAITING_FOR_THE_FENCE: &'static str;

    /// Whether somebody does.
    fn waits_for_the_fence(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// Whether the fate of a COMMIT can be told when its fence row no longer shows it.
    const REMEMBERS: bool = false;

    /// Runs any text.
    fn run(
        connection: &mut Self::Connection,
        text: &'static str,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;
}

macro_rules! common {
    ($connection:ty) => {
        async fn insert(connection: &mut $connection, id: i64) -> sqlx::Result<()> {
            raw_sql(AssertSqlSafe(format!("INSERT INTO t (id, v) VALUES ({id}, 0)")))
                .execute(connection)
                .await
                .map(drop)
        }

        async fn touch(connection: &mut $connection) -> sqlx::Result<()> {
            query("UPDATE t SET v = v + 1 WHERE id = 0").execute(connection).await.map(drop)
        }

        async fn ids(connection: &mut $connection) -> sqlx::Result<Vec<i64>> {
            query_scalar("SELECT id FROM t ORDER BY id").fetch_all(connection).await
        }

        async fn waits_for_the_fence(connection: &mut $connection) -> sqlx::Result<bool> {
            let count: i64 = query_scalar(Self::WAITING_FOR_THE_FENCE).fetch_one(connection).await?;
            Ok(count > 0)
        }

        async fn run(connection: &mut $connection, text: &'static str) -> sqlx::Result<()> {
            raw_sql(text).execute(connection).await.map(drop)
        }
    };
}

#[cfg(feature = "postgres")]
impl Bench for sqlx::Postgres {
    async fn create() -> Options<Self> {
        let server = zklock_testkit::Postgres::shared().await.unwrap();
        let url = server.create_database("transactions").await.unwrap();
        let ours = "CREATE TABLE t (id bigint PRIMARY KEY, v bigint); INSERT INTO t VALUES (0, 0); \
                    DO $$ BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$; \
                    ALTER TABLE t OWNER TO app; GRANT ALL ON SCHEMA public TO app";
        server.sql(&url, ours).await.unwrap();
        url.parse::<Options<Self>>().unwrap().username("app")
    }

    common!(sqlx::PgConnection);

    const WAITING_FOR_THE_FENCE: &'static str = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'UPDATE zklock_fence%'";

    const REMEMBERS: bool = true;

    fn by_way_of(options: &Options<Self>, port: u16) -> Options<Self> {
        options.clone().host("127.0.0.1").port(port)
    }

    async fn is_free(connection: &mut sqlx::PgConnection) -> sqlx::Result<()> {
        query("SELECT 1 FROM t WHERE id = 0 FOR UPDATE NOWAIT").execute(connection).await.map(drop)
    }

    async fn minute(connection: &mut sqlx::PgConnection) -> sqlx::Result<()> {
        query("SELECT pg_sleep(60)").execute(connection).await.map(drop)
    }

    async fn fail(connection: &mut sqlx::PgConnection) -> sqlx::Result<()> {
        query("SELECT 1 / 0").execute(connection).await.map(drop)
    }

    async fn settings(connection: &mut sqlx::PgConnection) -> sqlx::Result<String> {
        query_scalar(
            "SELECT concat_ws(' ', current_setting('statement_timeout'), current_setting('lock_timeout'), \
             current_setting('idle_in_transaction_session_timeout'), \
             current_setting('client_connection_check_interval'), current_setting('transaction_isolation'))",
        )
        .fetch_one(connection)
        .await
    }
}

#[cfg(feature = "mysql")]
impl Bench for sqlx::MySql {
    async fn create() -> Options<Self> {
        let server = zklock_testkit::MariaDb::shared().await.unwrap();
        let url = server.create_database("transactions").await.unwrap();
        let (_, name) = url.rsplit_once('/').unwrap();
        let ours = format!(
            "CREATE TABLE t (id bigint PRIMARY KEY, v bigint) ENGINE = InnoDB; INSERT INTO t VALUES (0, 0); \
             CREATE USER IF NOT EXISTS app IDENTIFIED BY 'app'; GRANT ALL ON `{name}`.* TO app",
        );
        server.sql(&url, &ours).await.unwrap();
        url.parse::<Options<Self>>().unwrap().username("app").password("app")
    }

    common!(sqlx::MySqlConnection);

    // Who has not begun to wait yet does so next.
    const WAITING_FOR_THE_FENCE: &'static str = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
        WHERE DB = DATABASE() AND INFO LIKE 'UPDATE zklock_fence%'";

    fn by_way_of(options: &Options<Self>, port: u16) -> Options<Self> {
        options.clone().host("127.0.0.1").port(port)
    }

    async fn is_free(connection: &mut sqlx::MySqlConnection) -> sqlx::Result<()> {
        query("SELECT 1 FROM t WHERE id = 0 FOR UPDATE NOWAIT").execute(connection).await.map(drop)
    }

    async fn minute(connection: &mut sqlx::MySqlConnection) -> sqlx::Result<()> {
        query("SELECT SLEEP(60)").execute(connection).await.map(drop)
    }

    async fn fail(connection: &mut sqlx::MySqlConnection) -> sqlx::Result<()> {
        // Nothing less ends a transaction here: what follows commits by itself, one by one.
        query("ROLLBACK").execute(&mut *connection).await?;
        query("SELECT nothing FROM nowhere").execute(connection).await.map(drop)
    }

    async fn settings(connection: &mut sqlx::MySqlConnection) -> sqlx::Result<String> {
        query_scalar(
            "SELECT CONCAT_WS(' ', @@innodb_lock_wait_timeout, @@idle_transaction_timeout, @@max_statement_time)",
        )
        .fetch_one(connection)
        .await
    }
}

#[cfg(feature = "sqlite")]
impl Bench for sqlx::Sqlite {
    async fn create() -> Options<Self> {
        use sqlx::ConnectOptions as _;
        let file = std::env::temp_dir().join(format!("zklock-{}.sqlite", uuid::Uuid::new_v4()));
        let options = Options::<Self>::new()
            .filename(file)
            .create_if_missing(true)
            .busy_timeout(Duration::from_secs(3))
            .pragma("synchronous", "off");
        let mut connection = options.connect().await.unwrap();
        let ours = "CREATE TABLE t (id integer PRIMARY KEY, v integer); INSERT INTO t VALUES (0, 0)";
        raw_sql(ours).execute(&mut connection).await.unwrap();
        options
    }

    common!(sqlx::SqliteConnection);

    /// They wait before.
    const WAITING_FOR_THE_FENCE: &'static str = "SELECT 0";

    fn by_way_of(options: &Options<Self>, _: u16) -> Options<Self> {
        options.clone()
    }

    async fn is_free(connection: &mut sqlx::SqliteConnection) -> sqlx::Result<()> {
        // Not quite at once: a stop locks it too, for a moment, to see that it is free.
        raw_sql("PRAGMA busy_timeout = 500; BEGIN IMMEDIATE; ROLLBACK").execute(connection).await.map(drop)
    }

    async fn minute(connection: &mut sqlx::SqliteConnection) -> sqlx::Result<()> {
        let counting = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000000) \
                        SELECT count(*) FROM n";
        query(counting).execute(connection).await.map(drop)
    }

    async fn fail(connection: &mut sqlx::SqliteConnection) -> sqlx::Result<()> {
        query("INSERT OR ROLLBACK INTO t (id, v) VALUES (0, 0)").execute(connection).await.map(drop)
    }

    async fn settings(connection: &mut sqlx::SqliteConnection) -> sqlx::Result<String> {
        query_scalar::<_, i64>("PRAGMA busy_timeout")
            .fetch_one(connection)
            .await
            .map(|value| value.to_string())
    }
}
