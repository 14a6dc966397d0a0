use crate::{
    bench::Bench,
    contestant::Contestant::{self, ClientLock, Raw, Zklock, ZklockUnfair},
    protocol::{Kept, Order},
    results::{Metric, Topic},
};

/// Those whose memory is not that of a Java machine or of Python.
const CONTESTANTS: [Contestant; 4] = [Raw, Zklock, ZklockUnfair, ClientLock];

pub(crate) const LOCKS: usize = 10_000;

pub(super) async fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let case = bench.case(Topic::Memory, LOCKS);
    bench
        .rounds(case, &CONTESTANTS, async |bench, contestant| {
            // A process of its own each time: what was given back may stay with it.
            let mut team = bench.start(contestant, 1).await?;
            let kept: Kept = team.ask_first(Order::Keep { locks: LOCKS }).await?;
            Ok(vec![(Metric::MemoryGrowth, kept.after.saturating_sub(kept.before) as f64 / 1e6)])
        })
        .await
}
