use std::time::{Duration, Instant};

use crate::{
    bench::Bench,
    contestant::Contestant::{self, ClientLock, CuratorEach, Kazoo, Raw, Zklock, ZklockUnfair},
    protocol::{COLD_FOLDER, Shape},
    results::{Metric, Topic},
};

const CONTESTANTS: [Contestant; 6] = [Raw, Zklock, ZklockUnfair, ClientLock, CuratorEach, Kazoo];

/// How long after the run nodes may still be on their way out.
const SOON: Duration = Duration::from_secs(1);

pub(super) async fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let case = bench.case(Topic::Cold, 1);
    bench
        .rounds(case, &CONTESTANTS, async |bench, contestant| {
            let mut sample = bench.cycles(contestant, 1, Shape::Cold, 1).await?;
            // Raw nodes are made where others were.
            if contestant != Raw {
                sample.push((Metric::LeftBehind, left_behind(bench, contestant).await? as f64));
            }
            Ok(sample)
        })
        .await
}

async fn left_behind(bench: &mut Bench<'_>, contestant: Contestant) -> anyhow::Result<usize> {
    let address = bench.team(contestant, 1).await?.address.clone();
    let ended = Instant::now();
    loop {
        let left = bench.servers.children(&address, COLD_FOLDER).await?.len();
        if left == 0 || ended.elapsed() > SOON {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
