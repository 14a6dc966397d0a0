use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use zklock::{
    Locks, LocksBuilder,
    sqlx::{self, AssertSqlSafe, ConnectOptions as _, Connection as _, Pool},
    zk_lock,
};
use zklock_testkit::Proxy;

use super::{Connection, Database, INTEGER, Options, WAITING, create, is_idle, pool};
use crate::support::{Outcome, Pause, Problem, queued, soon, until};

/// A service that writes orders under the lock `/orders`, and an observer who looks into its database from outside.
pub(crate) struct Shop {
    pub(crate) locks: Locks,
    pub(crate) pool: Pool<Database>,
    /// The database, past every proxy.
    pub(crate) direct: Options,
}

/// What the body does after it has written.
#[allow(dead_code, reason = "some are for one database only")]
pub(crate) enum Then {
    Return,
    Pause(Pause),
    Panic,
}

/// The database of a test, with the tables of the shop.
pub(crate) async fn database() -> Outcome<Options> {
    let options = create().await?;
    let mut connection = options.connect().await?;
    for text in [
        "CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY)",
        "CREATE TABLE counter (value BIGINT NOT NULL)",
        "INSERT INTO counter VALUES (0)",
    ] {
        sqlx::query(text).execute(&mut connection).await?;
    }
    connection.close().await?;
    Ok(options)
}

/// By way of a proxy.
pub(crate) fn via(options: &Options, proxy: &Proxy) -> Options {
    options.clone().host("127.0.0.1").port(proxy.addr().port())
}

impl Shop {
    /// With a database of its own.
    pub(crate) async fn open(locks: LocksBuilder, connections: u32) -> Outcome<Self> {
        let options = database().await?;
        Self::over(locks, options.clone(), options, connections).await
    }

    /// With a database of its own, and a proxy before it. It is connected, and the fence row is there.
    pub(crate) async fn behind(locks: LocksBuilder, connections: u32) -> Outcome<(Self, Proxy)> {
        let direct = database().await?;
        let proxy = Proxy::start(direct.to_url_lossy().as_str()).await?;
        let way = via(&direct, &proxy);
        let shop = Self::over(locks, way, direct, connections).await?;
        soon("a first call", shop.write(0, Then::Return)).await?;
        Ok((shop, proxy))
    }

    pub(crate) async fn over(
        locks: LocksBuilder,
        way: Options,
        direct: Options,
        connections: u32,
    ) -> Outcome<Self> {
        let pool = pool(way, connections, Duration::from_mins(1));
        let locks = locks.pool(pool.clone()).connect().await?;
        Ok(Self { locks, pool, direct })
    }

    /// The same database, with locks and a pool of its own: another process.
    pub(crate) async fn beside(&self, locks: LocksBuilder) -> Outcome<Self> {
        Self::over(locks, self.direct.clone(), self.direct.clone(), 4).await
    }

    #[zk_lock(path = "/orders", timeout = "120s", locks = self.locks, transactional)]
    pub(crate) async fn write(&self, id: i64, then: Then, #[tx] tx: &mut Connection) -> Result<(), Problem> {
        write_and(tx, id, then).await
    }

    #[zk_lock(path = "/orders", timeout = "120s", locks = self.locks, transactional(unfenced))]
    pub(crate) async fn write_unfenced(
        &self,
        id: i64,
        then: Then,
        #[tx] tx: &mut Connection,
    ) -> Result<(), Problem> {
        write_and(tx, id, then).await
    }

    /// With a limit that is reached, but not before BEGIN and one INSERT are through, however slow the machine.
    #[zk_lock(path = "/orders", timeout = "3s", locks = self.locks, transactional)]
    pub(crate) async fn write_briefly(
        &self,
        id: i64,
        then: Then,
        #[tx] tx: &mut Connection,
    ) -> Result<(), Problem> {
        write_and(tx, id, then).await
    }

    #[zk_lock(path = "/orders", timeout = "3s", locks = self.locks, transactional(unfenced))]
    pub(crate) async fn write_briefly_unfenced(
        &self,
        id: i64,
        then: Then,
        #[tx] tx: &mut Connection,
    ) -> Result<(), Problem> {
        write_and(tx, id, then).await
    }

    /// Whether an order is there, as the rest of the world sees it.
    pub(crate) async fn is_written(&self, id: i64) -> Outcome<bool> {
        let text = format!("SELECT count(*) FROM orders WHERE id = {id}");
        Ok(self.number(text).await? == 1)
    }

    /// How many transactions wait for another one.
    pub(crate) async fn waiting(&self) -> Outcome<i64> {
        self.number(WAITING.to_owned()).await
    }

    /// The number that a query gives, on a connection of its own.
    pub(crate) async fn number(&self, query: String) -> Outcome<i64> {
        let mut observer = self.direct.connect().await?;
        let number: i64 = sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut observer).await?;
        observer.close().await?;
        Ok(number)
    }

    /// Nobody stands in the queue, no transaction is open, and each connection of the pool is there and good for a
    /// new one.
    pub(crate) async fn is_clean(&self) -> Outcome {
        queued(&self.locks, "/orders", 0).await?;
        let mut last = None;
        let idle = until("no transaction to be open", async || {
            let idle = self.is_idle().await;
            let is_so = matches!(idle, Ok(true));
            last = Some(idle);
            is_so
        });
        idle.await.map_err(|error| format!("{error}; the last look gave {last:?}"))?;
        self.pool_is_clean().await
    }

    /// Whether no transaction is open.
    pub(crate) async fn is_idle(&self) -> Outcome<bool> {
        let mut observer = self.direct.connect().await?;
        let idle = is_idle(&mut observer).await?;
        observer.close().await?;
        Ok(idle)
    }

    pub(crate) async fn pool_is_clean(&self) -> Outcome {
        static IDS: AtomicI64 = AtomicI64::new(1_000_000);
        let mut connections = Vec::new();
        for _ in 0..self.pool.options().get_max_connections() {
            connections.push(soon("a connection of the pool", self.pool.acquire()).await?);
        }
        for mut connection in connections {
            let id = IDS.fetch_add(1, Ordering::Relaxed);
            insert(&mut connection, id).await?;
            // Were a transaction left open on it, nobody else would see this.
            assert!(self.is_written(id).await?, "a stale transaction swallowed a write");
        }
        Ok(())
    }
}

async fn write_and(tx: &mut Connection, id: i64, then: Then) -> Result<(), Problem> {
    insert(tx, id).await?;
    match then {
        Then::Return => {}
        Then::Pause(pause) => pause.here().await,
        Then::Panic => panic!("as a body may"),
    }
    Ok(())
}

pub(crate) async fn insert(connection: &mut Connection, id: i64) -> Result<(), sqlx::Error> {
    let text = format!("INSERT INTO orders (id) VALUES ({id})");
    sqlx::query(AssertSqlSafe(text)).execute(connection).await.map(drop)
}

/// Reads, and writes what was read plus one: what only a lock, or the fence, keeps apart.
pub(crate) async fn increment(connection: &mut Connection) -> Result<(), sqlx::Error> {
    let text = format!("SELECT CAST(value AS {INTEGER}) FROM counter");
    let value: i64 = sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&mut *connection).await?;
    let text = format!("UPDATE counter SET value = {}", value + 1);
    sqlx::query(AssertSqlSafe(text)).execute(connection).await.map(drop)
}
