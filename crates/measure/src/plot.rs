//! Charts as SVG, readable on light and dark pages alike, on paper, and by those who see fewer colours.
//!
//! In: named points or bars. Out: SVG, as a file of its own or as a part of a page: [`Figure`] and [`Bars`] are one
//! picture each, [`svg`] joins plain line charts in two columns with one legend below.

mod axis;
mod bars;
mod figure;
mod svg;

pub use axis::{Ruler, Scale, short};
pub use bars::{Bar, Bars, Group};
pub use figure::{Figure, Layer, Line, Point};
pub use svg::{COLORS, escape, style};

use figure::Frame;
use svg::Svg;

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

/// Draws all charts under one heading, as a file of its own.
pub fn svg(heading: &str, charts: &[Chart]) -> String {
    let names = series_names(charts);
    let rows = charts.len().div_ceil(COLUMNS);
    let legend_rows = names.len().div_ceil(LEGEND_COLUMNS);
    let width = CHART_WIDTH * COLUMNS.min(charts.len().max(1)) as f64;
    let legend_top = HEADER_HEIGHT + rows as f64 * CHART_HEIGHT;
    let height = legend_top + LEGEND_ROW_HEIGHT * (legend_rows as f64 + 1.0);

    let mut out = Svg::new(width, height, heading, true);
    out.text(16.0, 24.0, "start", "title", heading);
    for (index, chart) in charts.iter().enumerate() {
        out.open_at(CHART_WIDTH * (index % COLUMNS) as f64, HEADER_HEIGHT + CHART_HEIGHT * (index / COLUMNS) as f64);
        out.text(58.0, 18.0, "start", "title", &chart.title);
        let frame = Frame { left: 58.0, top: 50.0, right: CHART_WIDTH - 16.0, bottom: CHART_HEIGHT - 48.0 };
        figure_of(chart, &names).draw(&mut out, &frame);
        out.close();
    }
    for (index, (name, dashed)) in names.iter().enumerate() {
        let x = 16.0 + (width - 32.0) / LEGEND_COLUMNS as f64 * (index % LEGEND_COLUMNS) as f64;
        let y = legend_top + LEGEND_ROW_HEIGHT * ((index / LEGEND_COLUMNS) as f64 + 0.5);
        out.open_colored(index, "");
        out.line("line", *dashed, &[(x, y), (x + 26.0, y)]);
        out.mark(index, false, (x + 13.0, y), "");
        out.close();
        out.text(x + 34.0, y + 4.0, "start", "", name);
    }
    out.finish()
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

fn figure_of(chart: &Chart, names: &[(&str, bool)]) -> Figure {
    let layers = chart.series.iter().map(|series| Layer {
        name: series.name.clone(),
        slot: names.iter().position(|(name, _)| *name == series.name).unwrap_or(0),
        line: if series.dashed { Line::Dashed } else { Line::Solid },
        has_marks: true,
        points: series.points.iter().map(|&(x, y)| Point { x, y, ..Point::default() }).collect(),
    });
    Figure {
        title: chart.title.clone(),
        note: String::new(),
        x: Ruler::new(chart.x_label.as_str(), chart.x_scale),
        y: Ruler::new(chart.y_label.as_str(), chart.y_scale),
        layers: layers.collect(),
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
    fn one_point_zeros_and_no_points_still_make_a_picture() {
        for points in [vec![], vec![(1.0, 5.0)], vec![(0.0, 0.0), (10.0, -1.0)], vec![(1.0, f64::NAN)]] {
            let svg = svg("heading", &[chart(points)]);
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert!(!svg.contains("NaN") && !svg.contains("\"inf"), "{svg}");
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
