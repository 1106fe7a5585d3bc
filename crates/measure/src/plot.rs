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

const COLUMNS: usize = 2;
const CHART_WIDTH: f64 = 480.0;
const CHART_HEIGHT: f64 = 340.0;
const HEADER_HEIGHT: f64 = 36.0;
const LEGEND_ROW_HEIGHT: f64 = 20.0;
const LEGEND_COLUMNS: usize = 4;

/// Draws all figures under one heading, as a file of its own. Lines of the same name have the same colour in all.
pub fn svg(heading: &str, mut figures: Vec<Figure>) -> String {
    let mut names: Vec<(String, Line)> = Vec::new();
    for layer in figures.iter_mut().flat_map(|figure| &mut figure.layers) {
        let known = names.iter().position(|(name, _)| *name == layer.name);
        layer.slot = known.unwrap_or(names.len());
        if known.is_none() {
            names.push((layer.name.clone(), layer.line));
        }
    }
    let rows = figures.len().div_ceil(COLUMNS);
    let legend_rows = names.len().div_ceil(LEGEND_COLUMNS);
    let width = CHART_WIDTH * COLUMNS.min(figures.len().max(1)) as f64;
    let legend_top = HEADER_HEIGHT + rows as f64 * CHART_HEIGHT;
    let height = legend_top + LEGEND_ROW_HEIGHT * (legend_rows as f64 + 1.0);

    let mut out = Svg::new(width, height, heading, true);
    out.text(16.0, 24.0, "start", "title", heading);
    for (index, figure) in figures.iter().enumerate() {
        out.open_at(CHART_WIDTH * (index % COLUMNS) as f64, HEADER_HEIGHT + CHART_HEIGHT * (index / COLUMNS) as f64);
        out.text(58.0, 18.0, "start", "title", &figure.title);
        let frame = Frame { left: 58.0, top: 50.0, right: CHART_WIDTH - 16.0, bottom: CHART_HEIGHT - 48.0 };
        figure.draw(&mut out, &frame);
        out.close();
    }
    for (index, (name, line)) in names.iter().enumerate() {
        let x = 16.0 + (width - 32.0) / LEGEND_COLUMNS as f64 * (index % LEGEND_COLUMNS) as f64;
        let y = legend_top + LEGEND_ROW_HEIGHT * ((index / LEGEND_COLUMNS) as f64 + 0.5);
        out.open_colored(index, "");
        out.line("line", *line == Line::Dashed, &[(x, y), (x + 26.0, y)]);
        out.mark(index, false, (x + 13.0, y), "");
        out.close();
        out.text(x + 34.0, y + 4.0, "start", "", name);
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_name_have_one_colour_and_one_place_in_the_legend() {
        let figure = |names: &[&'static str]| {
            let points = names.iter().map(|name| (*name, Line::Solid, 1.0, 1.0));
            Figure::of_lines("a < b".to_owned(), "x", "y", points)
        };
        let svg = svg("x & y", vec![figure(&["two", "one"]), figure(&["one"]), figure(&[])]);
        assert!(svg.contains("a &lt; b") && svg.contains("x &amp; y"));
        assert_eq!(svg.matches(">one</text>").count(), 1, "one legend for all");
        // Two charts and the legend.
        assert_eq!(svg.matches("<g class=\"c1\">").count(), 3);
    }
}
