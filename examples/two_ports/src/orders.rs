//! Read this first: the locked functions, which are axum handlers as they stand.
//!
//! A payment is made in two halves with some work in between, so that one sees what a transaction is for: with one, an
//! order never shows half a payment, whatever happens in the middle. Both ports run the same functions, and for
//! one order only one of them runs at a time.
//!
//! The parameter marked `#[tx]` comes from the annotation; the callers, here axum, do not see it. `Connection` is sqlx's
//! (`database.rs` compiles this file once for each type of database, which your service will not need).

use std::{thread, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use zklock::{
    sqlx::{self, QueryBuilder},
    zk_lock,
};

use super::{Connection, Db, Pool};
use crate::failure::Failure;

/// First come, first served, all or nothing: `curl -X POST localhost:8080/orders/42/pay?ms=2000`, and the same on 8081.
#[zk_lock(path = "/orders/{id}", fair = true, timeout = "5s", transactional)]
async fn pay(Path(id): Path<i64>, Query(work): Query<Work>, #[tx] tx: &mut Connection) -> Answer {
    add(tx, id, HALF).await?;
    work.done().await;
    add(tx, id, HALF).await?;
    receipt(tx, id).await
}

/// Whoever is quickest: fewer steps on the lock server, no order among those who wait.
#[zk_lock(path = "/orders/{id}", fair = false, timeout = "5s", transactional)]
async fn pay_unfair(Path(id): Path<i64>, Query(work): Query<Work>, #[tx] tx: &mut Connection) -> Answer {
    add(tx, id, HALF).await?;
    work.done().await;
    add(tx, id, HALF).await?;
    receipt(tx, id).await
}

/// Does not wait: who comes second is told at once that somebody is at it (423).
#[zk_lock(path = "/orders/{id}", wait = "0s", timeout = "5s", transactional)]
async fn pay_or_leave(Path(id): Path<i64>, Query(work): Query<Work>, #[tx] tx: &mut Connection) -> Answer {
    add(tx, id, HALF).await?;
    work.done().await;
    add(tx, id, HALF).await?;
    receipt(tx, id).await
}

/// Fails in the middle: `Err` takes the first half back (402).
#[zk_lock(path = "/orders/{id}", timeout = "5s", transactional)]
async fn declined(Path(id): Path<i64>, Query(work): Query<Work>, #[tx] tx: &mut Connection) -> Answer {
    add(tx, id, HALF).await?;
    work.done().await;
    Err(Failure::Declined)
}

/// Waits for somebody who never answers. After two seconds it is stopped and rolled back, its caller gets a 504, and the
/// next in line goes on.
#[zk_lock(path = "/orders/{id}", timeout = "2s", transactional)]
async fn hangs(Path(id): Path<i64>, #[tx] tx: &mut Connection) -> Answer {
    add(tx, id, HALF).await?;
    std::future::pending::<()>().await;
    receipt(tx, id).await
}

/// Blocks its thread, so that nobody can stop it. After two seconds, and the grace time, its transaction is ended from
/// outside and the lock is taken from it; when it wakes, its commit is refused (504). (On SQLite no hand
/// can be laid on the connection that it has: there the next one's transaction waits for it to wake.)
#[zk_lock(path = "/orders/{id}", timeout = "2s", transactional)]
async fn blocks(Path(id): Path<i64>, #[tx] tx: &mut Connection) -> Answer {
    add(tx, id, HALF).await?;
    thread::sleep(Duration::from_secs(5));
    add(tx, id, HALF).await?;
    receipt(tx, id).await
}

/// A lock alone: one at a time, but the first half can be seen before the second is there.
#[zk_lock(path = "/orders/{id}", timeout = "5s")]
async fn pay_bare(State(pool): State<Pool>, Path(id): Path<i64>, Query(work): Query<Work>) -> Answer {
    let db = &mut *pool.acquire().await?;
    add(db, id, HALF).await?;
    work.done().await;
    add(db, id, HALF).await?;
    receipt(db, id).await
}

/// The same, and whoever is quickest.
#[zk_lock(path = "/orders/{id}", fair = false, timeout = "5s")]
async fn pay_bare_unfair(State(pool): State<Pool>, Path(id): Path<i64>, Query(work): Query<Work>) -> Answer {
    let db = &mut *pool.acquire().await?;
    add(db, id, HALF).await?;
    work.done().await;
    add(db, id, HALF).await?;
    receipt(db, id).await
}

/// Fails in the middle without a transaction: the first half stays.
#[zk_lock(path = "/orders/{id}", timeout = "5s")]
async fn declined_bare(State(pool): State<Pool>, Path(id): Path<i64>, Query(work): Query<Work>) -> Answer {
    let db = &mut *pool.acquire().await?;
    add(db, id, HALF).await?;
    work.done().await;
    Err(Failure::Declined)
}

type Answer = Result<Json<Order>, Failure>;

const HALF: i64 = 50;

/// How long the work between the two halves takes: `?ms=1000`.
#[derive(Deserialize)]
struct Work {
    #[serde(default)]
    ms: u64,
}

impl Work {
    async fn done(&self) {
        tokio::time::sleep(Duration::from_millis(self.ms)).await;
    }
}

#[derive(Serialize)]
struct Order {
    id: i64,
    paid: i64,
}

async fn add(db: &mut Connection, id: i64, amount: i64) -> Result<(), Failure> {
    let mut update = QueryBuilder::<Db>::new("UPDATE orders SET paid = paid + ");
    update.push_bind(amount).push(" WHERE id = ").push_bind(id);
    match update.build().execute(db).await?.rows_affected() {
        0 => Err(Failure::NoSuchOrder(id)),
        _ => Ok(()),
    }
}

async fn receipt(db: &mut Connection, id: i64) -> Answer {
    let mut select = QueryBuilder::<Db>::new("SELECT paid FROM orders WHERE id = ");
    let paid = select.push_bind(id).build_query_scalar().fetch_optional(db).await?;
    Ok(Json(Order { id, paid: paid.ok_or(Failure::NoSuchOrder(id))? }))
}

/// Reading takes no lock: it sees what is committed.
async fn read(State(pool): State<Pool>, Path(id): Path<i64>) -> Answer {
    receipt(&mut *pool.acquire().await?, id).await
}

async fn list(State(pool): State<Pool>) -> Result<Json<Vec<Order>>, Failure> {
    let orders = sqlx::query_as("SELECT id, paid FROM orders ORDER BY id").fetch_all(&pool).await?;
    Ok(Json(orders.into_iter().map(|(id, paid)| Order { id, paid }).collect()))
}

/// Where the functions are reached.
pub(crate) fn routes(pool: Pool) -> Router {
    Router::new()
        .route("/orders", get(list))
        .route("/orders/{id}", get(read))
        .route("/orders/{id}/pay", post(pay))
        .route("/orders/{id}/pay-unfair", post(pay_unfair))
        .route("/orders/{id}/pay-or-leave", post(pay_or_leave))
        .route("/orders/{id}/declined", post(declined))
        .route("/orders/{id}/hangs", post(hangs))
        .route("/orders/{id}/blocks", post(blocks))
        .route("/orders/{id}/pay-bare", post(pay_bare))
        .route("/orders/{id}/pay-bare-unfair", post(pay_bare_unfair))
        .route("/orders/{id}/declined-bare", post(declined_bare))
        .with_state(pool)
}

/// Two orders to pay. Run under a lock: two processes may start at once.
pub(crate) async fn create_table(pool: &Pool) -> Result<(), sqlx::Error> {
    sqlx::query("CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, paid BIGINT NOT NULL)")
        .execute(pool)
        .await?;
    let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM orders").fetch_one(pool).await?;
    if count == 0 {
        sqlx::query("INSERT INTO orders (id, paid) VALUES (7, 0), (42, 0)").execute(pool).await?;
    }
    Ok(())
}
