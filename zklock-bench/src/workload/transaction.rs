use std::time::Instant;

use zklock::{
    Locks,
    sqlx::{self, PgConnection, PgPool, postgres::PgPoolOptions, query},
    zk_lock,
};
use zklock_testkit::Postgres;

use crate::{
    bench::Bench,
    contestant::Contestant::{PlainTransaction, PlainTransactionUnderLock, Transactional, Zklock},
    results::{Metric, Topic},
    stats::percentile,
};

async fn body(connection: &mut PgConnection, order: i64) -> Result<(), sqlx::Error> {
    query("UPDATE orders SET paid = paid + 1 WHERE id = $1").bind(order).execute(connection).await.map(drop)
}

async fn plain(pool: &PgPool, order: i64) -> Result<(), sqlx::Error> {
    let mut transaction = pool.begin().await?;
    body(&mut transaction, order).await?;
    transaction.commit().await
}

#[zk_lock(path = "/orders/{order}", locks = locks)]
async fn plain_under_lock(locks: &Locks, pool: &PgPool, order: i64) -> Result<(), anyhow::Error> {
    Ok(plain(pool, order).await?)
}

#[zk_lock(path = "/orders/{order}", locks = locks, transactional)]
async fn transactional(locks: &Locks, order: i64, #[tx] tx: &mut PgConnection) -> Result<(), anyhow::Error> {
    Ok(body(tx, order).await?)
}

const ORDERS: i64 = 100;

pub(super) async fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let postgres = Postgres::builder().fsync(bench.setup.fsync).start().await?;
    let url = postgres.create_database("bench").await?;
    let table = format!(
        "CREATE TABLE orders (id bigint PRIMARY KEY, paid bigint NOT NULL); \
         INSERT INTO orders SELECT id, 0 FROM generate_series(0, {ORDERS}) id"
    );
    postgres.sql(&url, &table).await?;
    let pool = PgPoolOptions::new().max_connections(4).connect(&url).await?;
    let address = format!("zk://{}", bench.servers.chroot(Zklock).await?);
    for (topic, address) in [(Topic::Transaction, &address[..]), (Topic::TransactionInMemory, "memory:")] {
        let locks = Locks::builder(address).pool(pool.clone()).connect().await?;
        let case = bench.case(topic, 1);
        bench
            .rounds(
                case,
                &[PlainTransaction, PlainTransactionUnderLock, Transactional],
                async |bench, contestant| {
                    let (begun, time) = (Instant::now(), bench.time());
                    let mut calls = Vec::new();
                    while begun.elapsed() < time {
                        let order = i64::try_from(calls.len())? % ORDERS;
                        let called = Instant::now();
                        match contestant {
                            PlainTransactionUnderLock => plain_under_lock(&locks, &pool, order).await?,
                            Transactional => transactional(&locks, order).await?,
                            _ => plain(&pool, order).await?,
                        }
                        calls.push(u64::try_from(called.elapsed().as_nanos())?);
                    }
                    Ok(vec![
                        (Metric::CallP50, percentile(&mut calls, 50) as f64 / 1e3),
                        (Metric::CallP99, percentile(&mut calls, 99) as f64 / 1e3),
                    ])
                },
            )
            .await?;
        locks.close().await;
    }
    Ok(())
}
