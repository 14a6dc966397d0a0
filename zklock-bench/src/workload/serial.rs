use crate::{
    bench::Bench,
    contestant::Contestant::{
        self, ClientLock, CuratorEach, Etcd, Kazoo, PostgresAdvisory, Raw, Redis, Zklock, ZklockUnfair,
    },
    protocol::Shape,
    results::{Metric, Topic},
};

const CONTESTANTS: [Contestant; 9] =
    [Raw, Zklock, ZklockUnfair, ClientLock, CuratorEach, Kazoo, Redis, Etcd, PostgresAdvisory];

pub(super) async fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let case = bench.case(Topic::Serial, 1);
    bench
        .rounds(case, &CONTESTANTS, async |bench, contestant| {
            let idle = bench.cycles_for(bench.time() / 4, contestant, 1, Shape::Idle, 1).await?;
            let mut sample = bench.cycles(contestant, 1, Shape::Own, 1).await?;
            sample.extend(idle.into_iter().filter_map(|(metric, value)| match metric {
                Metric::AcquireP50 => Some((Metric::IdleP50, value)),
                Metric::AcquireP99 => Some((Metric::IdleP99, value)),
                _ => None,
            }));
            Ok(sample)
        })
        .await
}
