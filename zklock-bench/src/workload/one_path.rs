use super::Workload;
use crate::{bench::Bench, contestant::Contestant, protocol::Shape};

const TASKS: usize = 64;

pub(super) async fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let case = bench.case(Workload::OnePath, TASKS);
    bench
        .rounds(case, &Contestant::ALL, async |bench, contestant| {
            bench.cycles(contestant, 1, Shape::Shared, TASKS).await
        })
        .await
}
