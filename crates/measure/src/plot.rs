//! Charts as SVG, readable on light and dark pages alike, on paper, and by those who see fewer colours.
//!
//! In: named points or bars. Out: SVG, as a file of its own or as a part of a page: [`Figure`] and [`Bars`] are one
//! picture each, [`svg`] joins line charts in two columns.

mod axis;
mod bars;
mod figure;
mod svg;

pub use axis::{Ruler, Scale, short};
pub use bars::{Bar, Bars, Group};
pub use figure::{Figure, Layer, Line, Point};
pub use svg::{COLORS, escape, style};

use figure::{HEIGHT, WIDTH};
use svg::Svg;

const COLUMNS: usize = 2;
const HEADER_HEIGHT: f64 = 36.0;

/// Draws all figures under one heading, as a file of its own. Lines of the same name have the same colour in all.
pub fn svg(heading: &str, mut figures: Vec<Figure>) -> String {
    let mut names: Vec<String> = Vec::new();
    for layer in figures.iter_mut().flat_map(|figure| &mut figure.layers) {
        let known = names.iter().position(|name| *name == layer.name);
        layer.slot = known.unwrap_or(names.len());
        if known.is_none() {
            names.push(layer.name.clone());
        }
    }
    let (columns, rows) = (COLUMNS.min(figures.len().max(1)), figures.len().div_ceil(COLUMNS));
    let mut out = Svg::new(WIDTH * columns as f64, HEADER_HEIGHT + HEIGHT * rows as f64, heading, true);
    out.text(16.0, 24.0, "start", "title", heading);
    for (index, figure) in figures.iter().enumerate() {
        out.open_at(WIDTH * (index % COLUMNS) as f64, HEADER_HEIGHT + HEIGHT * (index / COLUMNS) as f64);
        figure.write(&mut out);
        out.close();
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_name_have_one_colour_in_all_charts() {
        let figure = |names: &[&'static str]| {
            let points = names.iter().map(|name| (*name, Line::Solid, 1.0, 1.0));
            Figure::of_lines("a < b".to_owned(), "x", "y", points)
        };
        let svg = svg("x & y", vec![figure(&["two", "one"]), figure(&["one"]), figure(&[])]);
        assert!(svg.contains("a &lt; b") && svg.contains("x &amp; y"));
        // In two charts the line, and its name at its end.
        assert_eq!(svg.matches(">one</text>").count(), 2);
        assert_eq!(svg.matches("<g class=\"c1\">").count(), 4);
    }
}
