use std::{hint::black_box, time::Instant};

use zklock::{Error, Locks, zk_lock};

use crate::{
    bench::Bench,
    contestant::Contestant::{Annotated, ByHand, Plain},
    results::{Metric, Topic},
};

#[expect(clippy::unused_async, reason = "the annotated one is async, and this is what it is compared with")]
async fn plain(order: u64) -> Result<u64, Error> {
    Ok(black_box(order) + 1)
}

#[zk_lock(path = "/orders/{order}")]
async fn annotated(order: u64) -> Result<u64, Error> {
    Ok(black_box(order) + 1)
}

async fn by_hand(locks: &Locks, order: u64) -> Result<u64, Error> {
    let guard = locks.mutex(format!("/orders/{order}")).acquire().await?;
    guard.run(plain(order)).await?
}

/// A run is made of so many parts, and the quickest of them counts: what else the machine does only adds.
const PARTS: u32 = 20;

pub(super) async fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let locks = Locks::memory();
    locks.install();
    let case = bench.case(Topic::Macro, 1);
    bench
        .rounds(case, &[Plain, ByHand, Annotated], async |bench, contestant| {
            let mut quickest = f64::INFINITY;
            for _ in 0..PARTS {
                let (begun, time, mut calls) = (Instant::now(), bench.time() / PARTS, 0_u64);
                while begun.elapsed() < time {
                    for _ in 0..100 {
                        calls += 1;
                        let order = calls % 1_000;
                        match contestant {
                            ByHand => by_hand(&locks, order).await?,
                            Annotated => annotated(order).await?,
                            _ => plain(order).await?,
                        };
                    }
                }
                quickest = quickest.min(begun.elapsed().as_nanos() as f64 / calls as f64);
            }
            Ok(vec![(Metric::CallTime, quickest)])
        })
        .await?;
    locks.close().await;
    Ok(())
}
