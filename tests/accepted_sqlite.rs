//! The transactional shapes of functions, on a real database.
#![deny(warnings, clippy::pedantic)]
#![allow(missing_docs, clippy::missing_errors_doc, clippy::unwrap_used)]

use std::{fs, path::Path, sync::Arc};

use async_trait::async_trait;
use tracing::instrument;
use zklock::{
    Error, Guard, Locks,
    sqlx::{
        self, Connection as _, Sqlite, SqliteConnection, SqlitePool, Transaction,
        sqlite::{SqliteConnectOptions, SqliteJournalMode},
    },
    zk_lock,
};

#[derive(Debug)]
#[expect(dead_code, reason = "shown where a test fails")]
enum AppError {
    Lock(Error),
    Database(sqlx::Error),
    Refused,
}

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl From<sqlx::Error> for AppError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// A new database with a table, and locks that know it.
async fn database(name: &str) -> (SqlitePool, Locks) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).with_extension("db");
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{suffix}", file.display()));
    }
    let options = SqliteConnectOptions::new()
        .filename(&file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    sqlx::query("CREATE TABLE paid (id INTEGER, amount INTEGER)").execute(&pool).await.unwrap();
    let locks = Locks::builder("memory:").pool(pool.clone()).connect().await.unwrap();
    (pool, locks)
}

async fn insert(tx: &mut SqliteConnection, id: i64, amount: i64) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO paid VALUES (?, ?)").bind(id).bind(amount).execute(tx).await.map(drop)
}

/// All of the table.
async fn paid(pool: &SqlitePool) -> Vec<(i64, i64)> {
    sqlx::query_as("SELECT id, amount FROM paid ORDER BY id").fetch_all(pool).await.unwrap()
}

const fn send<T: Send>(value: T) -> T {
    value
}

#[zk_lock(path = "/orders/{id}", fair = true, timeout = "5s", transactional)]
async fn pay(id: i64, amount: i64, #[tx] tx: &mut SqliteConnection) -> Result<i64, AppError> {
    insert(tx, id, amount).await?;
    if amount < 0 {
        return Err(AppError::Refused);
    }
    Ok(amount)
}

#[tokio::test]
async fn ok_commits_and_err_rolls_back() {
    let (pool, locks) = database("commits").await;
    locks
        .scope(async {
            assert_eq!(send(pay(1, 10)).await.unwrap(), 10);
            assert!(matches!(pay(2, -1).await, Err(AppError::Refused)));
        })
        .await;
    assert_eq!(paid(&pool).await, [(1, 10)]);
}

fn fail(error: Error) -> u16 {
    drop(error);
    500
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_success(status: &u16) -> bool {
    *status < 300
}

#[zk_lock(path = "/orders/{id}", on_error = fail, transactional(commit_if = is_success))]
async fn handle(id: i64, status: u16, #[tx] tx: &mut SqliteConnection) -> u16 {
    if insert(tx, id, 1).await.is_err() {
        return 501;
    }
    status
}

#[tokio::test]
async fn a_status_commits_or_not() {
    let (pool, locks) = database("status").await;
    locks
        .scope(async {
            assert_eq!(handle(1, 200).await, 200);
            assert_eq!(handle(2, 404).await, 404);
        })
        .await;
    assert_eq!(paid(&pool).await, [(1, 1)]);
    assert_eq!(handle(3, 200).await, 500, "nothing is installed");
}

struct Service {
    db: SqlitePool,
    shared: Arc<SqlitePool>,
    locks: Locks,
}

impl Service {
    #[zk_lock(path = "/service/{id}", locks = self.locks, transactional(pool = self.db))]
    async fn owned(
        &self,
        id: i64,
        #[tx] tx: &mut Transaction<'_, Sqlite>,
        #[guard] guard: &Guard,
    ) -> Result<String, AppError> {
        insert(tx, id, 1).await?;
        // A savepoint of the user's.
        let mut inner = tx.begin().await?;
        insert(&mut inner, id, 2).await?;
        inner.rollback().await?;
        Ok(guard.path().to_string())
    }

    #[zk_lock(path = "/service/{id}", locks = self.locks, transactional(pool = self.shared, isolation = "serializable"))]
    async fn shared<'c>(&mut self, id: i64, #[tx] tx: &mut Transaction<'c, Sqlite>) -> Result<(), AppError> {
        insert(tx, id, 3).await?;
        Ok(())
    }

    #[zk_lock(path = "/service", locks = self.locks, transactional(pool = &*self.shared))]
    async fn by_value<T: Into<i64> + Send>(
        self,
        id: T,
        #[tx] tx: &mut SqliteConnection,
    ) -> Result<impl Send, AppError> {
        insert(tx, id.into(), 4).await?;
        Ok(self.db)
    }
}

#[zk_lock(path = "/pool/{id}", locks = locks, transactional(pool = pool, unfenced))]
async fn on_argument(
    id: i64,
    pool: &SqlitePool,
    locks: &Locks,
    #[tx] tx: &mut SqliteConnection,
) -> Result<(), AppError> {
    let _ = pool;
    insert(tx, id, 5).await?;
    Ok(())
}

#[tokio::test]
async fn pools_come_from_where_the_annotation_says() {
    let (pool, _) = database("pools").await;
    let mut service = Service { db: pool.clone(), shared: Arc::new(pool.clone()), locks: Locks::memory() };
    assert_eq!(send(service.owned(1)).await.unwrap(), "/service/1");
    send(service.shared(2)).await.unwrap();
    send(on_argument(3, &pool, &service.locks)).await.unwrap();
    tokio::spawn(async move { service.by_value(4).await.map(drop) }).await.unwrap().unwrap();
    assert_eq!(paid(&pool).await, [(1, 1), (2, 3), (3, 5), (4, 4)]);
}

#[zk_lock(path = "/outer/{id}", transactional)]
async fn outer(id: i64, fails: bool, #[tx] tx: &mut Transaction<'_, Sqlite>) -> Result<(), AppError> {
    insert(tx, id, 1).await?;
    joins(id, tx).await?;
    joins_connection(id, tx).await?;
    assert!(matches!(pay(id, 1).await, Err(AppError::Lock(Error::NestedTransaction { .. }))));
    if fails { Err(AppError::Refused) } else { Ok(()) }
}

#[zk_lock(path = "/inner/{id}", transactional(pool = outer))]
async fn joins(
    id: i64,
    outer: &mut Transaction<'_, Sqlite>,
    #[tx] tx: &mut SqliteConnection,
) -> Result<(), AppError> {
    insert(tx, id, 2).await?;
    Ok(())
}

#[zk_lock(path = "/inner/of/{id}", transactional(pool = &mut *outer))]
async fn joins_connection(
    id: i64,
    outer: &mut SqliteConnection,
    #[tx] tx: &mut Transaction<'_, Sqlite>,
) -> Result<(), AppError> {
    insert(tx, id, 3).await?;
    Ok(())
}

#[tokio::test]
async fn a_function_joins_the_transaction_it_is_given() {
    let (pool, locks) = database("joins").await;
    locks
        .scope(async {
            send(outer(1, false)).await.unwrap();
            assert!(matches!(outer(2, true).await, Err(AppError::Refused)));
        })
        .await;
    assert_eq!(paid(&pool).await, [(1, 1), (1, 2), (1, 3)]);
}

#[async_trait]
trait Payments {
    async fn pay(&self, id: i64, note: &str) -> Result<String, AppError>;
    async fn traced(&mut self, id: i64) -> Result<i64, AppError>;
}

#[async_trait]
impl Payments for Service {
    #[zk_lock(path = "/payments/{id}/{note}", locks = self.locks, transactional(pool = self.db))]
    async fn pay(
        &self,
        id: i64,
        #[tx] tx: &mut Transaction<'_, Sqlite>,
        note: &str,
    ) -> Result<String, AppError> {
        insert(tx, id, 1).await?;
        Ok(note.to_owned())
    }

    #[instrument(skip_all, err(Debug))]
    #[zk_lock(path = "/payments/{id}", locks = self.locks, transactional(pool = self.db))]
    async fn traced(&mut self, id: i64, #[tx] tx: &mut SqliteConnection) -> Result<i64, AppError> {
        insert(tx, id, 2).await?;
        Ok(id)
    }
}

#[tokio::test]
async fn async_traits_have_transactions() {
    let (pool, locks) = database("traits").await;
    let mut service = Service { db: pool.clone(), shared: Arc::new(pool.clone()), locks };
    assert_eq!(Payments::pay(&service, 1, "a/b").await.unwrap(), "a/b");
    let traced = tokio::spawn(async move { service.traced(2).await });
    assert_eq!(traced.await.unwrap().unwrap(), 2);
    assert_eq!(paid(&pool).await, [(1, 1), (2, 2)]);
}

mod size {
    use super::*;

    /// Kept over an await, so that it is part of the future.
    type Large = [u8; 4096];

    async fn plain(id: i64, tx: &mut SqliteConnection) -> Result<u8, AppError> {
        let mut large: Large = [0; 4096];
        insert(tx, id, 1).await?;
        large[1] = 2;
        Ok(large[2])
    }

    #[zk_lock(path = "/size/{id}", transactional)]
    async fn locked(id: i64, #[tx] tx: &mut SqliteConnection) -> Result<u8, AppError> {
        let mut large: Large = [0; 4096];
        insert(tx, id, 1).await?;
        large[1] = 2;
        Ok(large[2])
    }

    #[zk_lock(path = "/size/{id}", transactional)]
    async fn in_transaction(id: i64, #[tx] tx: &mut Transaction<'_, Sqlite>) -> Result<u8, AppError> {
        let mut large: Large = [0; 4096];
        insert(tx, id, 1).await?;
        large[1] = 2;
        Ok(large[2])
    }

    #[tokio::test]
    #[allow(clippy::large_futures)]
    async fn at_most_512_bytes_are_added() {
        let (pool, locks) = database("size").await;
        let mut connection = pool.acquire().await.unwrap();
        let allowed = size_of_val(&plain(1, &mut connection)) + 512;
        for size in [size_of_val(&locked(1)), size_of_val(&in_transaction(1))] {
            assert!(size <= allowed, "{size} bytes, and {allowed} are allowed");
            println!("{size} bytes, and {allowed} are allowed");
        }
        drop(plain(1, &mut connection).await);
        locks.scope(async { locked(2).await.unwrap() + in_transaction(3).await.unwrap() }).await;
    }
}
