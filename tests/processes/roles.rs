use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use zklock::{
    Guard, Locks,
    sqlx::{self, PgConnection, PgPool, postgres::PgPoolOptions},
    zk_lock,
};

use crate::{
    child::{ROLE, hear, say},
    crowd,
    support::{Outcome, Problem, soon},
};

/// The way into a child process; by itself it is no test.
#[test]
fn child() -> Outcome {
    let Ok(role) = env::var(ROLE) else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match role.as_str() {
            "count" => count().await,
            "crowd" => crowd::wait().await,
            "hold" => hold().await,
            "write" => write().await,
            role => Err(format!("{role:?} is no role").into()),
        }
    })
}

pub(crate) const URL: &str = "ZKLOCK_TEST_CHILD_URL";
pub(crate) const DATABASE: &str = "ZKLOCK_TEST_CHILD_DATABASE";
pub(crate) const SESSION: &str = "ZKLOCK_TEST_CHILD_SESSION";
pub(crate) const MODE: &str = "ZKLOCK_TEST_CHILD_MODE";
pub(crate) const ROUNDS: &str = "ZKLOCK_TEST_CHILD_ROUNDS";

/// What each process has, the parent included.
pub(crate) struct Shop {
    pub(crate) locks: Locks,
    pub(crate) pool: PgPool,
}

impl Shop {
    pub(crate) async fn open(url: &str, database: &str, session: Duration) -> Outcome<Self> {
        let pool = PgPoolOptions::new().max_connections(4).connect(database).await?;
        let locks = Locks::builder(url).pool(pool.clone()).session_timeout(session).default_wait(None);
        Ok(Self { locks: locks.connect().await?, pool })
    }

    async fn of_child() -> Outcome<Self> {
        let session = Duration::from_millis(env::var(SESSION)?.parse()?);
        Self::open(&env::var(URL)?, &env::var(DATABASE)?, session).await
    }

    #[zk_lock(path = "/counter", timeout = "60s", locks = self.locks, transactional)]
    async fn increment_fair(
        &self,
        #[tx] tx: &mut PgConnection,
        #[guard] guard: &Guard,
    ) -> Result<(), Problem> {
        increment(self, tx, guard).await
    }

    #[zk_lock(path = "/counter", timeout = "60s", locks = self.locks, transactional(unfenced))]
    async fn increment_fair_unfenced(
        &self,
        #[tx] tx: &mut PgConnection,
        #[guard] guard: &Guard,
    ) -> Result<(), Problem> {
        increment(self, tx, guard).await
    }

    #[zk_lock(path = "/counter", fair = false, timeout = "60s", locks = self.locks, transactional(unfenced))]
    async fn increment_unfair_unfenced(
        &self,
        #[tx] tx: &mut PgConnection,
        #[guard] guard: &Guard,
    ) -> Result<(), Problem> {
        increment(self, tx, guard).await
    }

    /// Writes the row and waits for a word before it ends.
    #[zk_lock(path = "/row", timeout = "3s", locks = self.locks, transactional)]
    async fn write_and_wait(&self, by: &'static str, #[tx] tx: &mut PgConnection) -> Result<(), Problem> {
        write_and_wait(tx, by).await
    }

    #[zk_lock(path = "/row", timeout = "3s", locks = self.locks, transactional(unfenced))]
    async fn write_and_wait_unfenced(
        &self,
        by: &'static str,
        #[tx] tx: &mut PgConnection,
    ) -> Result<(), Problem> {
        write_and_wait(tx, by).await
    }

    #[zk_lock(path = "/row", timeout = "60s", locks = self.locks, transactional)]
    pub(crate) async fn write(&self, by: &'static str, #[tx] tx: &mut PgConnection) -> Result<(), Problem> {
        sqlx::query("INSERT INTO writes (writer) VALUES ($1)").bind(by).execute(&mut *tx).await?;
        sqlx::query("UPDATE counter SET value = value + 1").execute(&mut *tx).await?;
        Ok(())
    }
}

/// Reads, and writes what was read plus one: only the lock keeps two of these apart.
async fn increment(shop: &Shop, tx: &mut PgConnection, guard: &Guard) -> Result<(), Problem> {
    let value: i64 = sqlx::query_scalar("SELECT value FROM counter").fetch_one(&mut *tx).await?;
    let queue = shop.locks.inspect(guard.path()).await?;
    let holder = queue.first().map_or_else(String::new, |holder| holder.name.clone());
    sqlx::query("INSERT INTO log (value, token, node) VALUES ($1, $2, $3)")
        .bind(value)
        .bind(guard.fencing_token().to_string())
        .bind(holder)
        .execute(&mut *tx)
        .await?;
    sqlx::query("UPDATE counter SET value = $1").bind(value + 1).execute(&mut *tx).await?;
    Ok(())
}

async fn count() -> Outcome {
    let shop = Arc::new(Shop::of_child().await?);
    let (mode, rounds) = (env::var(MODE)?, env::var(ROUNDS)?.parse::<usize>()?);
    let begun = Arc::new(AtomicUsize::new(0));
    say("ready");
    hear()?;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (shop, mode, begun) = (shop.clone(), mode.clone(), begun.clone());
        tasks.push(tokio::spawn(async move {
            while begun.fetch_add(1, Ordering::Relaxed) < rounds {
                match mode.as_str() {
                    "fair" => shop.increment_fair().await?,
                    "fair unfenced" => shop.increment_fair_unfenced().await?,
                    _ => shop.increment_unfair_unfenced().await?,
                }
                say("one");
            }
            Ok::<_, Problem>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    shop.locks.close().await;
    say("done");
    Ok(())
}

async fn hold() -> Outcome {
    let shop = Shop::of_child().await?;
    let mode = env::var(MODE)?;
    let lock = shop.locks.mutex(format!("/held/{mode}")).fair(mode == "fair").timeout(None);
    let guard = soon("the lock", lock.acquire()).await?;
    say("held");
    hear()?;
    // It goes on living, so that only this can free the lock.
    shop.locks.close().await;
    say("closed");
    hear()?;
    drop(guard);
    Ok(())
}

async fn write_and_wait(tx: &mut PgConnection, by: &'static str) -> Result<(), Problem> {
    sqlx::query("INSERT INTO writes (writer) VALUES ($1)").bind(by).execute(&mut *tx).await?;
    sqlx::query("UPDATE counter SET value = value + 1").execute(&mut *tx).await?;
    say("written");
    // Blocks the task, as a stopped process is: it comes to its commit without a look at anything.
    hear().map_err(|_| Problem::Own("the parent is gone"))?;
    Ok(())
}

async fn write() -> Outcome {
    let shop = Shop::of_child().await?;
    let result = match env::var(MODE)?.as_str() {
        "fenced" => shop.write_and_wait("the stopped one").await,
        _ => shop.write_and_wait_unfenced("the stopped one").await,
    };
    say(&match result {
        Ok(()) => "committed".to_owned(),
        Err(problem) => format!("refused {problem:?}"),
    });
    // Whatever it does afterwards works again, once it has a session.
    soon("a later call", shop.write("later")).await?;
    say("wrote later");
    shop.locks.close().await;
    Ok(())
}
