use std::{cmp::Ordering, fmt::Write as _};

/// A chart of lines, written by hand: it must be readable on light and dark ground alike, so it has no ground of its
/// own, and follows what the reader prefers where it is told.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

/// Powers of ten, evenly spaced.
#[derive(Debug)]
pub(crate) struct Axis {
    pub(crate) label: String,
    /// Values that are marked; else the powers of ten in range.
    pub(crate) marks: Vec<f64>,
}

#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;

/// Told apart by those who see no red or no green, too; readable on white and on black.
const COLOURS: [&str; 8] =
    ["#0f7fc0", "#d9700a", "#149a6c", "#c0568f", "#8a6fd1", "#b8860b", "#2fa8b5", "#808080"];
/// Told apart without colours.
const DASHES: [&str; 4] = ["none", "8 3", "2 3", "10 3 2 3"];

const STYLE: &str = "\
text { font: 13px system-ui, sans-serif; fill: #3d444d }
.title { font-size: 16px; font-weight: 600 }
.grid { stroke: #8b949e; stroke-opacity: .3 }
.axis { stroke: #8b949e }
@media (prefers-color-scheme: dark) { text { fill: #c9d1d9 } }";

impl Chart {
    /// The picture; a value that is not above zero has no place on it.
    pub(crate) fn to_svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied()).filter(is_shown);
        let x = Scale::over(points().map(|(x, _)| x), LEFT, WIDTH - RIGHT);
        let y = Scale::over(points().map(|(_, y)| y), HEIGHT - BOTTOM, TOP).into_whole_powers();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"24\">{title}</text>\n",
            title = escape(&self.title)
        );
        self.draw_axes(&mut svg, &x, &y);
        for (number, series) in self.series.iter().enumerate() {
            series.draw(&mut svg, number, &x, &y);
        }
        svg.push_str("</svg>\n");
        svg
    }

    // Writing to a String does not fail, here and below.
    fn draw_axes(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for mark in self.y.marks_on(y) {
            let at = y.place(mark);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                at + 4.0,
                short(mark)
            );
        }
        for mark in self.x.marks_on(x) {
            let at = x.place(mark);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 20.0,
                short(mark)
            );
        }
        let _ = writeln!(
            svg,
            "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 12.0,
            escape(&self.x.label),
            f64::midpoint(TOP, bottom),
            escape(&self.y.label)
        );
    }
}

impl Series {
    fn draw(&self, svg: &mut String, number: usize, x: &Scale, y: &Scale) {
        let colour = COLOURS[number % COLOURS.len()];
        let dash = DASHES[number % DASHES.len()];
        let places: Vec<_> = self
            .points
            .iter()
            .filter(|point| is_shown(point))
            .map(|&(at, value)| (x.place(at), y.place(value)))
            .collect();
        let line: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\" points=\"{}\"/>",
            line.join(" ")
        );
        for (x, y) in places {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let (left, line) = (WIDTH - RIGHT + 14.0, TOP + 12.0 + 20.0 * number as f64);
        let _ = writeln!(
            svg,
            "<path stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\" d=\"M{left} {line}h26\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left + 32.0,
            line + 4.0,
            escape(&self.name)
        );
    }
}

impl Axis {
    fn marks_on(&self, scale: &Scale) -> Vec<f64> {
        if self.marks.is_empty() { scale.powers() } else { self.marks.clone() }
    }
}

/// From values to places, by their logarithms.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values
            .map(f64::log10)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        // Nothing, or only one value.
        let (low, high) = match low.total_cmp(&high) {
            Ordering::Less => (low, high),
            Ordering::Equal => (low - 0.5, high + 0.5),
            Ordering::Greater => (0.0, 1.0),
        };
        Self { low, high, from, to }
    }

    fn into_whole_powers(self) -> Self {
        Self { low: (self.low + 1e-9).floor(), high: (self.high - 1e-9).ceil(), ..self }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value.log10() - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn powers(&self) -> Vec<f64> {
        let first = (self.low - 1e-9).ceil();
        let powers = (0..20).map(|step| first + f64::from(step));
        powers.take_while(|power| *power <= self.high + 1e-9).map(|power| 10_f64.powf(power)).collect()
    }
}

fn is_shown(&(x, y): &(f64, f64)) -> bool {
    x > 0.0 && y > 0.0
}

/// 4096 as 4,096, 100000 as 100k.
fn short(value: f64) -> String {
    if value >= 1e6 {
        format!("{}M", super::number(value / 1e6).trim_end_matches(".00"))
    } else if value >= 1e4 {
        format!("{}k", super::number(value / 1e3).trim_end_matches(".0"))
    } else {
        super::number(value).trim_end_matches(".00").trim_end_matches(".0").to_owned()
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> String {
        let axis = |label: &str| Axis { label: label.into(), marks: Vec::new() };
        let series = vec![Series { name: "a < b".into(), points }];
        Chart { title: "T & t".into(), x: axis("tasks"), y: axis("cycles/s"), series }.to_svg()
    }

    #[test]
    fn values_have_their_places() {
        let scale = Scale::over([10.0, 1_000.0].into_iter(), 0.0, 200.0);
        assert!((scale.place(100.0) - 100.0).abs() < 1e-6);
        assert_eq!(scale.powers(), [10.0, 100.0, 1_000.0]);
        let wider = Scale::over([20.0, 900.0].into_iter(), 0.0, 200.0).into_whole_powers();
        assert_eq!(wider.powers(), [10.0, 100.0, 1_000.0]);
    }

    #[test]
    fn a_chart_shows_its_points_axes_and_legend() {
        let svg = chart(vec![(1.0, 10.0), (10.0, 100.0), (0.0, 5.0)]);
        assert_eq!(svg.matches("<circle").count(), 2);
        for shown in ["T &amp; t", "a &lt; b", "tasks", "cycles/s", "prefers-color-scheme"] {
            assert!(svg.contains(shown), "{shown}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_chart_of_little_is_a_chart() {
        for points in [vec![], vec![(5.0, 5.0)]] {
            let svg = chart(points);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn marks_are_short() {
        let cases = [
            (1.0, "1"),
            (4_096.0, "4,096"),
            (10_000.0, "10k"),
            (100_000.0, "100k"),
            (1e6, "1M"),
            (0.1, "0.10"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }
}
