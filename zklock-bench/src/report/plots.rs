use super::svg::{Axis, Chart, Series};
use crate::{
    contestant::Contestant,
    results::{Case, Metric, Results, Topic},
    servers::Setup,
};

/// A picture, its file's name, and what it is about.
pub(crate) struct Plot {
    pub(crate) file: &'static str,
    pub(crate) chart: Chart,
}

/// Those for which there are figures.
pub(crate) fn plots(results: &Results) -> Vec<Plot> {
    let drawn = [
        (
            "throughput.svg",
            against(
                results,
                "Throughput, each task on a path of its own",
                &[Topic::Tasks],
                "tasks",
                Metric::CyclesPerSecond,
            ),
        ),
        (
            "latency.svg",
            against(
                results,
                "Acquire, p50, each task on a path of its own",
                &[Topic::Tasks],
                "tasks",
                Metric::AcquireP50,
            ),
        ),
        (
            "latency-p99.svg",
            against(
                results,
                "Acquire, p99, each task on a path of its own",
                &[Topic::Tasks],
                "tasks",
                Metric::AcquireP99,
            ),
        ),
        (
            "queue.svg",
            against(
                results,
                "A queue that is drained, by its length",
                &[Topic::LocalQueue, Topic::ForeignQueue],
                "waiters",
                Metric::DrainTime,
            ),
        ),
        (
            "queueing.svg",
            against(
                results,
                "Getting into a queue, by its length",
                &[Topic::LocalQueue, Topic::ForeignQueue],
                "waiters",
                Metric::QueueTime,
            ),
        ),
        (
            "held.svg",
            against(
                results,
                "Acquire, p50, with other locks held",
                &[Topic::Held],
                "held locks",
                Metric::AcquireP50,
            ),
        ),
    ];
    drawn
        .into_iter()
        .filter(|(_, chart)| !chart.series.is_empty())
        .map(|(file, chart)| Plot { file, chart })
        .collect()
}

fn against(results: &Results, title: &str, topics: &[Topic], unit: &str, metric: Metric) -> Chart {
    let mut series = Vec::new();
    let mut marks = Vec::new();
    for &topic in topics {
        let cases = results.cases_of(topic, Setup::MAIN);
        marks.extend(cases.iter().map(|case| case.size as f64));
        for contestant in Contestant::ALL {
            let points = points(results, &cases, contestant, metric);
            if !points.is_empty() {
                let name = if topics.len() > 1 { topic.title().to_owned() } else { contestant.to_string() };
                series.push(Series { name, points });
            }
        }
    }
    // Nothing has no place among powers of ten.
    marks.retain(|&mark| mark > 0.0);
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    Chart {
        title: format!("{title} ({})", Setup::MAIN),
        x: Axis { label: unit.into(), marks },
        y: Axis { label: metric.name().into(), marks: Vec::new() },
        series,
    }
}

fn points(results: &Results, cases: &[Case], contestant: Contestant, metric: Metric) -> Vec<(f64, f64)> {
    let point = |case: &Case| Some((case.size as f64, results.median(*case, contestant, metric)?));
    cases.iter().filter_map(point).collect()
}
