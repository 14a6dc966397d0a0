use crate::{
    bench::Bench,
    contestant::Contestant::{
        self, ClientLock, CuratorEach, CuratorShared, Kazoo, Raw, Zklock, ZklockUnfair,
    },
    protocol::Shape,
    results::Topic,
};

const CONTESTANTS: [Contestant; 7] =
    [Raw, Zklock, ZklockUnfair, ClientLock, CuratorEach, CuratorShared, Kazoo];

const PROCESSES: usize = 4;
const TASKS: usize = 8;

pub(crate) const SIZE: usize = PROCESSES * TASKS;

pub(super) async fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let case = bench.case(Topic::Processes, SIZE);
    bench
        .rounds(case, &CONTESTANTS, async |bench, contestant| {
            bench.cycles(contestant, PROCESSES, Shape::Shared, TASKS).await
        })
        .await
}
