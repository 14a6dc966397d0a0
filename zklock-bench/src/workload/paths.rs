use crate::{
    bench::Bench,
    contestant::Contestant::{
        self, ClientLock, CuratorEach, Etcd, Kazoo, PostgresAdvisory, Raw, Redis, Zklock, ZklockUnfair,
    },
    protocol::Shape,
    results::Topic,
};

const CONTESTANTS: [Contestant; 9] =
    [Raw, Zklock, ZklockUnfair, ClientLock, CuratorEach, Kazoo, Redis, Etcd, PostgresAdvisory];

pub(crate) const TASKS: usize = 64;

pub(super) async fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let case = bench.case(Topic::Paths, TASKS);
    bench
        .rounds(case, &CONTESTANTS, async |bench, contestant| {
            bench.cycles(contestant, 1, Shape::Own, TASKS).await
        })
        .await
}
