use crate::{
    bench::Bench,
    contestant::Contestant::{
        self, ClientLock, CuratorEach, CuratorShared, Etcd, Kazoo, PostgresAdvisory, Raw, Redis, Zklock,
        ZklockUnfair,
    },
    protocol::Shape,
    results::Topic,
};

const CONTESTANTS: [Contestant; 10] =
    [Raw, Zklock, ZklockUnfair, ClientLock, CuratorEach, CuratorShared, Kazoo, Redis, Etcd, PostgresAdvisory];

pub(crate) const TASKS: usize = 64;

pub(super) async fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let case = bench.case(Topic::OnePath, TASKS);
    bench
        .rounds(case, &CONTESTANTS, async |bench, contestant| {
            bench.cycles(contestant, 1, Shape::Shared, TASKS).await
        })
        .await
}
