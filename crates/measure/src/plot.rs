//! Line charts as SVG, readable on light and dark pages alike.
//!
//! In: charts of several named series, with linear or logarithmic axes. Out: one SVG document with the charts in two
//! columns and one legend below. Values that a logarithmic axis cannot show (0 and less) are left out.

use std::fmt::Write;

/// How numbers become places on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Linear,
    Log,
}

/// One chart.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub x_scale: Scale,
    pub y_scale: Scale,
    pub series: Vec<Series>,
}

/// One line. Series of the same name have the same colour in all charts.
#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub dashed: bool,
    pub points: Vec<(f64, f64)>,
}

const COLUMNS: usize = 2;
const CHART_WIDTH: f64 = 480.0;
const CHART_HEIGHT: f64 = 340.0;
const HEADER_HEIGHT: f64 = 36.0;
const LEGEND_ROW_HEIGHT: f64 = 20.0;
const LEGEND_COLUMNS: usize = 4;

/// Space around a chart's plotting area: left, top, right, bottom.
const MARGIN: (f64, f64, f64, f64) = (64.0, 34.0, 16.0, 48.0);

/// Told apart also by those who see fewer colours (Okabe and Ito's palette, its yellow and black replaced).
const COLORS: [&str; 8] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f"];

const STYLE: &str = "<style>\
    .page{fill:#fff}.ink{fill:#1f2328}.grid{stroke:#d0d7de;stroke-width:1}.line{fill:none;stroke-width:2}\
    text{font:12px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:13px}\
    @media(prefers-color-scheme:dark){.page{fill:#0d1117}.ink{fill:#e6edf3}.grid{stroke:#30363d}text{fill:#e6edf3}}\
    </style>";

/// Draws all charts under one heading.
pub fn svg(heading: &str, charts: &[Chart]) -> String {
    let names = series_names(charts);
    let rows = charts.len().div_ceil(COLUMNS);
    let legend_rows = names.len().div_ceil(LEGEND_COLUMNS);
    let width = CHART_WIDTH * COLUMNS.min(charts.len().max(1)) as f64;
    let legend_top = HEADER_HEIGHT + rows as f64 * CHART_HEIGHT;
    let height = legend_top + LEGEND_ROW_HEIGHT * (legend_rows as f64 + 1.0);

    let mut out = Svg(String::new());
    out.add(format_args!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">"));
    out.add(format_args!("{STYLE}<title>{}</title>", escape(heading)));
    out.add(format_args!("<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>"));
    out.text(16.0, 24.0, "start", "title", heading);
    for (index, chart) in charts.iter().enumerate() {
        let left = CHART_WIDTH * (index % COLUMNS) as f64;
        let top = HEADER_HEIGHT + CHART_HEIGHT * (index / COLUMNS) as f64;
        draw_chart(&mut out, chart, &names, left, top);
    }
    for (index, (name, dashed)) in names.iter().enumerate() {
        let x = 16.0 + (width - 32.0) / LEGEND_COLUMNS as f64 * (index % LEGEND_COLUMNS) as f64;
        let y = legend_top + LEGEND_ROW_HEIGHT * ((index / LEGEND_COLUMNS) as f64 + 0.5);
        out.line(&[(x, y), (x + 24.0, y)], color(index), *dashed);
        out.text(x + 30.0, y + 4.0, "start", "", name);
    }
    out.0.push_str("</svg>\n");
    out.0
}

/// Names in the order of their first appearance, and how their lines look.
fn series_names(charts: &[Chart]) -> Vec<(&str, bool)> {
    let mut names: Vec<(&str, bool)> = Vec::new();
    for series in charts.iter().flat_map(|chart| &chart.series) {
        if !names.iter().any(|(name, _)| *name == series.name) {
            names.push((&series.name, series.dashed));
        }
    }
    names
}

fn color(index: usize) -> &'static str {
    COLORS[index % COLORS.len()]
}

fn draw_chart(out: &mut Svg, chart: &Chart, names: &[(&str, bool)], left: f64, top: f64) {
    let (x0, x1) = (left + MARGIN.0, left + CHART_WIDTH - MARGIN.2);
    let (y0, y1) = (top + CHART_HEIGHT - MARGIN.3, top + MARGIN.1);
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let x_axis = Axis::around(points().map(|point| point.0), chart.x_scale, x0, x1);
    let y_axis = Axis::around(points().map(|point| point.1), chart.y_scale, y0, y1);

    out.text(x0, top + 18.0, "start", "title", &chart.title);
    for (value, place) in x_axis.ticks() {
        out.grid((place, y0), (place, y1));
        out.text(place, y0 + 16.0, "middle", "", &short(value));
    }
    for (value, place) in y_axis.ticks() {
        out.grid((x0, place), (x1, place));
        out.text(x0 - 6.0, place + 4.0, "end", "", &short(value));
    }
    out.text((x0 + x1) / 2.0, y0 + 36.0, "middle", "", &chart.x_label);
    out.text(x0 - 6.0, y1 - 10.0, "end", "", &chart.y_label);

    for series in &chart.series {
        let index = names.iter().position(|(name, _)| *name == series.name).unwrap_or(0);
        let places = series.points.iter().filter_map(|(x, y)| Some((x_axis.place(*x)?, y_axis.place(*y)?)));
        let places: Vec<(f64, f64)> = places.collect();
        out.line(&places, color(index), series.dashed);
        for (x, y) in places {
            out.add(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\"/>", color(index)));
        }
    }
}

/// A range of values laid over a range of places.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

impl Axis {
    /// An axis that holds all values. A logarithmic one ends at 1, 2 or 5 times a power of ten; a linear one starts at 0.
    fn around(values: impl Iterator<Item = f64>, scale: Scale, start: f64, end: f64) -> Self {
        let shown = values.filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0));
        let range = shown.fold(None, |range, value| match range {
            None => Some((value, value)),
            Some((low, high)) => Some((value.min(low), value.max(high))),
        });
        let (low, high) = range.unwrap_or((1.0, 1.0));
        let (low, high) = match scale {
            Scale::Linear => (low.min(0.0), if high > low.min(0.0) { high } else { low.min(0.0) + 1.0 }),
            Scale::Log => {
                let low = steps_near(low).filter(|step| *step <= low).fold(f64::MIN_POSITIVE, f64::max);
                let high = steps_near(high).filter(|step| *step >= high && *step > low).fold(f64::MAX, f64::min);
                (low, high)
            }
        };
        Axis { scale, low, high, start, end }
    }

    fn place(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        share.is_finite().then_some(self.start + share * (self.end - self.start))
    }

    /// Values to write beside the axis, with their places.
    fn ticks(&self) -> Vec<(f64, f64)> {
        let values: Vec<f64> = match self.scale {
            Scale::Linear => (0..=4).map(|i| self.low + (self.high - self.low) * f64::from(i) / 4.0).collect(),
            Scale::Log => {
                let decades = (self.high / self.low).log10();
                let factors: &[f64] = if decades > 5.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let first = self.low.log10().floor() as i32;
                let steps = (first..=first + decades.ceil() as i32 + 1)
                    .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
                steps.filter(|step| (self.low * 0.999..=self.high * 1.001).contains(step)).collect()
            }
        };
        values.into_iter().filter_map(|value| Some((value, self.place(value)?))).collect()
    }
}

/// 1, 2 and 5 times the powers of ten around `value`.
fn steps_near(value: f64) -> impl Iterator<Item = f64> {
    let power = value.log10().floor() as i32;
    (power - 1..=power + 1).flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powi(power)))
}

/// A number in few characters.
fn short(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        magnitude if magnitude >= 1e3 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let digits = format!("{value:.3}");
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// SVG in the making.
struct Svg(String);

impl Svg {
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        self.0.write_fmt(element).expect("a String takes everything");
        self.0.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let text = escape(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    fn grid(&mut self, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!("<line class=\"grid\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"));
    }

    fn line(&mut self, places: &[(f64, f64)], color: &str, dashed: bool) {
        let mut points = String::new();
        for (x, y) in places {
            write!(points, "{x:.1},{y:.1} ").expect("a String takes everything");
        }
        let dashes = if dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        self.add(format_args!(
            "<polyline class=\"line\" stroke=\"{color}\"{dashes} points=\"{}\"/>",
            points.trim_end()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        Chart {
            title: "a < b".to_owned(),
            x_label: "x".to_owned(),
            y_label: "y".to_owned(),
            x_scale: Scale::Log,
            y_scale: Scale::Log,
            series: vec![Series { name: "one".to_owned(), dashed: false, points }],
        }
    }

    #[test]
    fn a_logarithmic_axis_ends_at_round_numbers_and_has_equal_decades() {
        let axis = Axis::around([3.0, 700.0].into_iter(), Scale::Log, 0.0, 100.0);
        assert_eq!((axis.low, axis.high), (2.0, 1_000.0));
        let step = |from: f64, to: f64| axis.place(to).unwrap() - axis.place(from).unwrap();
        assert!((step(2.0, 20.0) - step(20.0, 200.0)).abs() < 1e-9);
        let values: Vec<f64> = axis.ticks().into_iter().map(|tick| tick.0).collect();
        assert_eq!(values, [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0]);
    }

    #[test]
    fn one_point_zeros_and_no_points_still_make_a_picture() {
        for points in [vec![], vec![(1.0, 5.0)], vec![(0.0, 0.0), (10.0, -1.0)], vec![(1.0, f64::NAN)]] {
            let svg = svg("heading", &[chart(points)]);
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn text_is_escaped_and_both_colour_schemes_are_there() {
        let svg = svg("x & y", &[chart(vec![(1.0, 1.0), (10.0, 5.0)]), chart(vec![(1.0, 2.0)])]);
        assert!(svg.contains("a &lt; b") && svg.contains("x &amp; y"));
        assert!(svg.contains("prefers-color-scheme:dark"));
        assert_eq!(svg.matches(">one</text>").count(), 1, "one legend for all charts");
    }
}
