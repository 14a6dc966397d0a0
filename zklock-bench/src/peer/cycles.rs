use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use super::locker::Locker;
use crate::{
    protocol::{COLD_FOLDER, Cycles, SHARED_PATH, Shape},
    stats::percentile,
};

/// How long a task of [`Shape::Idle`] does nothing between two cycles.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) async fn run<L: Locker>(
    locker: &L,
    shape: Shape,
    tasks: usize,
    millis: u64,
) -> anyhow::Result<Cycles> {
    for task in 0..tasks {
        locker.prepare(&path(shape, task, 0, 0)).await?;
    }
    let order = (shape == Shape::Shared).then(|| Arc::new(Mutex::new(Order::default())));
    let start = Instant::now();
    // By the clock, so that no two runs use the same paths.
    let run = crate::clock::shared_nanos();
    let end = start + Duration::from_millis(millis);
    let mut set = JoinSet::new();
    for task in 0..tasks {
        let (locker, order) = (locker.clone(), order.clone());
        set.spawn(async move {
            let mut latencies = Vec::new();
            while Instant::now() < end {
                let cycle = if L::MAKES_PATHS { latencies.len() } else { 0 };
                let path = path(shape, task, cycle, if L::MAKES_PATHS { run } else { 0 });
                let asked = Instant::now();
                let held = locker.acquire(&path).await?;
                latencies.push(u64::try_from(asked.elapsed().as_nanos())?);
                if let Some(order) = &order {
                    let place = locker.place(&held);
                    order.lock().unwrap_or_else(PoisonError::into_inner).granted(place);
                }
                locker.release(held).await?;
                if shape == Shape::Idle {
                    locker.settled().await?;
                    tokio::time::sleep(PAUSE).await;
                }
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(task) = set.join_next().await {
        latencies.append(&mut task??);
    }
    locker.settled().await?;
    Ok(Cycles {
        count: latencies.len() as u64,
        nanos: u64::try_from(start.elapsed().as_nanos())?,
        acquire_p50: percentile(&mut latencies, 50),
        acquire_p99: percentile(&mut latencies, 99),
        in_order: order.and_then(|order| order.lock().unwrap_or_else(PoisonError::into_inner).verdict()),
    })
}

fn path(shape: Shape, task: usize, cycle: usize, run: u64) -> String {
    match shape {
        Shape::Own | Shape::Idle => format!("/own-{task}"),
        Shape::Shared => SHARED_PATH.into(),
        Shape::Cold => format!("{COLD_FOLDER}/{run}-{task}-{cycle}"),
    }
}

/// Whether each holder came after the one before it, by its place.
#[derive(Default)]
struct Order {
    last: Option<u128>,
    broken: bool,
}

impl Order {
    fn granted(&mut self, place: Option<u128>) {
        self.broken |= place.is_some() && place <= self.last;
        self.last = place;
    }

    fn verdict(&self) -> Option<bool> {
        self.last.map(|_| !self.broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_back_breaks_the_order() {
        let verdict = |places: &[u128]| {
            let mut order = Order::default();
            for &place in places {
                order.granted(Some(place));
            }
            order.verdict()
        };
        assert_eq!(verdict(&[]), None);
        assert_eq!(verdict(&[1, 2, 5]), Some(true));
        assert_eq!(verdict(&[1, 5, 2, 6]), Some(false));
        assert_eq!(verdict(&[1, 1]), Some(false));
    }
}
