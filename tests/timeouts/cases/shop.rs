use std::{sync::mpsc, time::Duration};

use tokio::sync::oneshot;
use zklock::{
    Locks,
    sqlx::{self, AssertSqlSafe, Connection as _, Pool},
    zk_lock,
};

use super::{Connection, Database, HASTE, LONG, Options, create, pool};
use crate::support::{Outcome, Problem};

/// A service that writes orders under a lock, and an observer who looks into its database from outside.
pub(super) struct Shop {
    pub(super) locks: Locks,
    pub(super) pool: Pool<Database>,
    options: Options,
}

/// What the body does after it has written.
pub(super) enum Then {
    Return,
    /// Waits for something that never comes.
    Await,
    /// Blocks its thread until it is told to go on.
    Block(mpsc::Receiver<()>),
    /// Runs a statement that takes a minute.
    Long,
    Fail,
    Panic,
}

impl Shop {
    /// With so many connections, all of which the shop's own functions use.
    pub(super) async fn open(connections: u32) -> Outcome<Self> {
        let options = create().await?;
        Self::open_on(options.clone(), pool(options, connections)).await
    }

    /// With the shop's own connections in `pool`, and the observer's by `options`.
    pub(super) async fn open_on(options: Options, pool: Pool<Database>) -> Outcome<Self> {
        Self::open_with(options, pool, Duration::from_secs(1)).await
    }

    pub(super) async fn open_with(options: Options, pool: Pool<Database>, grace: Duration) -> Outcome<Self> {
        let mut connection = pool.acquire().await?;
        sqlx::query("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, written_by INT NOT NULL)")
            .execute(&mut *connection)
            .await?;
        drop(connection);
        let locks = Locks::builder("memory:")
            .grace(grace)
            .default_timeout(None)
            .default_wait(None)
            .pool(pool.clone());
        Ok(Self { locks: locks.connect().await?, pool, options })
    }

    /// Writes an order, and does not come to an end. `written` is told when it is written. The limit is longer than
    /// BEGIN and one INSERT take, however slow the machine.
    #[zk_lock(path = "/orders", timeout = "1500ms", locks = self.locks, transactional)]
    pub(super) async fn hang(
        &self,
        id: i64,
        by: i64,
        written: oneshot::Sender<()>,
        then: Then,
        #[tx] tx: &mut Connection,
    ) -> Result<i64, Problem> {
        write_and(tx, id, by, written, then).await
    }

    #[zk_lock(path = "/orders", timeout = "1500ms", locks = self.locks, transactional(unfenced))]
    pub(super) async fn hang_unfenced(
        &self,
        id: i64,
        by: i64,
        written: oneshot::Sender<()>,
        then: Then,
        #[tx] tx: &mut Connection,
    ) -> Result<i64, Problem> {
        write_and(tx, id, by, written, then).await
    }

    /// The same with a limit that is never reached.
    #[zk_lock(path = "/orders", timeout = "60s", locks = self.locks, transactional)]
    pub(super) async fn write(
        &self,
        id: i64,
        by: i64,
        then: Then,
        #[tx] tx: &mut Connection,
    ) -> Result<i64, Problem> {
        write_and(tx, id, by, oneshot::channel().0, then).await
    }

    /// Who wrote an order, as the rest of the world sees it.
    pub(super) async fn writer(&self, id: i64) -> Outcome<Option<i64>> {
        let mut observer = self.observer().await?;
        let writer = writer(&mut observer, id).await?;
        observer.close().await?;
        Ok(writer)
    }

    /// Whether a newcomer could write that order at this very moment, waiting for nobody. It is not written.
    pub(super) async fn is_writable_at_once(&self, id: i64) -> Outcome<Result<(), sqlx::Error>> {
        let mut observer = self.observer().await?;
        sqlx::query(HASTE).execute(&mut observer).await?;
        let mut attempt = observer.begin().await?;
        let inserted = insert(&mut attempt, id, 99).await;
        attempt.rollback().await?;
        observer.close().await?;
        Ok(inserted)
    }

    async fn observer(&self) -> Outcome<Connection> {
        Ok(Connection::connect_with(&self.options).await?)
    }

    /// All connections of the pool are there, in no transaction, and good for new ones.
    pub(super) async fn pool_is_clean(&self) -> Outcome {
        let mut connections = Vec::new();
        for number in 0..i64::from(self.pool.options().get_max_connections()) {
            let mut connection = self.pool.acquire().await?;
            // Were a transaction left open on it, nobody else would see this.
            insert(&mut connection, 1_000 + number, 7).await?;
            assert_eq!(
                self.writer(1_000 + number).await?,
                Some(7),
                "a stale transaction swallowed the write"
            );
            let mut transaction = connection.begin().await?;
            insert(&mut transaction, 2_000 + number, 7).await?;
            transaction.rollback().await?;
            assert_eq!(self.writer(2_000 + number).await?, None);
            connections.push(connection);
        }
        for (number, mut connection) in (0_i64..).zip(connections) {
            let clean = format!("DELETE FROM orders WHERE id = {}", 1_000 + number);
            sqlx::query(AssertSqlSafe(clean)).execute(&mut *connection).await?;
        }
        Ok(())
    }
}

async fn write_and(
    tx: &mut Connection,
    id: i64,
    by: i64,
    written: oneshot::Sender<()>,
    then: Then,
) -> Result<i64, Problem> {
    let before = writer(tx, id).await?;
    insert(tx, id, by).await?;
    let _ = written.send(());
    match then {
        Then::Return => {}
        Then::Await => std::future::pending().await,
        Then::Block(blocked) => drop(blocked.recv()),
        Then::Long => {
            sqlx::query(LONG).execute(&mut *tx).await?;
        }
        Then::Fail => return Err(Problem::Own("the body failed")),
        Then::Panic => panic!("as a body may"),
    }
    Ok(before.unwrap_or(0))
}

pub(super) async fn insert(connection: &mut Connection, id: i64, by: i64) -> Result<(), sqlx::Error> {
    let text = format!("INSERT INTO orders (id, written_by) VALUES ({id}, {by})");
    sqlx::query(AssertSqlSafe(text)).execute(connection).await.map(drop)
}

pub(super) async fn writer(connection: &mut Connection, id: i64) -> Result<Option<i64>, sqlx::Error> {
    let text = format!("SELECT CAST(written_by AS {}) FROM orders WHERE id = {id}", super::INTEGER);
    sqlx::query_scalar(AssertSqlSafe(text)).fetch_optional(connection).await
}
