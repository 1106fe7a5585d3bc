//! Lines and dots over two axes.
//!
//! In: layers of points, some with an interval, some hollow. Out: one picture, every line named at its end, so that no
//! legend has to be looked up. What an axis cannot show (0 and less on a logarithmic one) is left out.

use super::axis::{Axis, Ruler, Scale};
use super::svg::{Svg, text_width};

/// One picture.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What is shown.
    pub title: String,
    /// What is seen, in one line below the title.
    pub note: String,
    /// The axis below.
    pub x: Ruler,
    /// The axis on the left.
    pub y: Ruler,
    /// From back to front.
    pub layers: Vec<Layer>,
}

/// Points that belong together. Layers of the same slot have the same colour and shape.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Stands beside its last point, or in the legend.
    pub name: String,
    /// Which colour and shape it has, as in [`COLORS`](super::COLORS).
    pub slot: usize,
    /// What joins its points.
    pub line: Line,
    /// Whether its points are drawn.
    pub has_marks: bool,
    /// From left to right.
    pub points: Vec<Point>,
}

/// What joins the points of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line, for what was measured.
    Solid,
    /// A dashed line, for what it is compared with.
    Dashed,
}

/// One value and where it stands.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// By the axis below.
    pub x: f64,
    /// By the axis on the left.
    pub y: f64,
    /// Drawn as a whisker.
    pub interval: Option<(f64, f64)>,
    /// Seen, but not counted: drawn as an outline, and no line goes through it.
    pub is_hollow: bool,
    /// Shown beside the pointer.
    pub tip: String,
}

pub const WIDTH: f64 = 600.0;
pub const HEIGHT: f64 = 360.0;
const LINE_HEIGHT: f64 = 15.0;

impl Figure {
    /// A line for each name that is among the points, over logarithmic axes.
    pub fn of_lines<N: Into<String>>(
        title: String,
        x_label: &str,
        y_label: &str,
        points: impl Iterator<Item = (N, Line, f64, f64)>,
    ) -> Self {
        let mut layers: Vec<Layer> = Vec::new();
        for (name, line, x, y) in points {
            let (name, point) = (name.into(), Point { x, y, ..Point::default() });
            match layers.iter_mut().find(|layer| layer.name == name) {
                Some(layer) => layer.points.push(point),
                None => layers.push(Layer { name, slot: layers.len(), line, has_marks: true, points: vec![point] }),
            }
        }
        let [x, y] = [x_label, y_label].map(|label| Ruler::new(label, Scale::Log));
        Figure { title, note: String::new(), x, y, layers }
    }

    /// The picture; with its colours inside for a file of its own.
    pub fn svg(&self, with_style: bool) -> String {
        let mut out = Svg::new(WIDTH, HEIGHT, &self.title, with_style);
        self.write(&mut out);
        out.finish()
    }

    /// Writes everything that is in the picture.
    pub(super) fn write(&self, out: &mut Svg) {
        let names = self.layers.iter().filter(|layer| layer.is_named()).map(|layer| text_width(&layer.name));
        let right = names.fold(0.0, f64::max).min(WIDTH / 3.0) + 24.0;
        out.text(16.0, 24.0, "start", "title", &self.title);
        out.text(16.0, 43.0, "start", "soft", &self.note);
        let frame = Frame { left: 58.0, top: 78.0, right: WIDTH - right, bottom: HEIGHT - 48.0 };
        let points = || self.layers.iter().flat_map(|layer| &layer.points);
        let heights = points().flat_map(|point| {
            let (low, high) = point.interval.unwrap_or((point.y, point.y));
            [point.y, low, high]
        });
        let x_axis = Axis::around(points().map(|point| point.x), &self.x, frame.left, frame.right);
        let y_axis = Axis::around(heights, &self.y, frame.bottom, frame.top);
        frame.draw_axes(out, &x_axis, &y_axis, &self.x.label, &self.y.label);
        let drawn = self.layers.iter().filter_map(|layer| {
            let place = layer.draw(out, &x_axis, &y_axis)?;
            layer.is_named().then_some(End { name: &layer.name, slot: layer.slot, place })
        });
        let ends = drawn.collect();
        write_names(out, &frame, ends);
    }
}

impl Layer {
    fn is_named(&self) -> bool {
        !self.name.is_empty() && !self.points.is_empty()
    }

    /// Returns the place of the last point.
    fn draw(&self, out: &mut Svg, x_axis: &Axis, y_axis: &Axis) -> Option<(f64, f64)> {
        let place = |x, y| Some((x_axis.place(x)?, y_axis.place(y)?));
        let shown: Vec<(&Point, (f64, f64))> =
            self.points.iter().filter_map(|point| Some((point, place(point.x, point.y)?))).collect();
        out.open_colored(self.slot, &self.name);
        let solid: Vec<(f64, f64)> =
            shown.iter().filter(|(point, _)| !point.is_hollow).map(|(_, place)| *place).collect();
        if solid.len() > 1 {
            out.line("line", self.line == Line::Dashed, &solid);
        }
        for (point, (x, _)) in &shown {
            let ends = point.interval.and_then(|(low, high)| y_axis.place_inside(low).zip(y_axis.place_inside(high)));
            if let Some((low, high)) = ends {
                out.line(
                    "whisker",
                    false,
                    &[(x - 3.0, low), (x + 3.0, low), (*x, low), (*x, high), (x - 3.0, high), (x + 3.0, high)],
                );
            }
        }
        if self.has_marks {
            for (point, place) in &shown {
                out.mark(self.slot, point.is_hollow, *place, &point.tip);
            }
        }
        out.close();
        solid.last().copied().or_else(|| shown.last().map(|(_, place)| *place))
    }
}

/// The plotting area.
struct Frame {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Frame {
    fn draw_axes(&self, out: &mut Svg, x_axis: &Axis, y_axis: &Axis, x_label: &str, y_label: &str) {
        for (place, text) in y_axis.ticks() {
            out.line("grid", false, &[(self.left, place), (self.right, place)]);
            out.text(self.left - 8.0, place + 4.0, "end", "soft", text);
        }
        out.line("axis", false, &[(self.left, self.bottom), (self.right, self.bottom)]);
        let mut free_from = f64::MIN;
        for (place, text) in x_axis.ticks() {
            out.line("axis", false, &[(place, self.bottom), (place, self.bottom + 4.0)]);
            // A text that would stand on its neighbour is left out; its tick stays.
            if place - text_width(text) / 2.0 >= free_from {
                out.text(place, self.bottom + 18.0, "middle", "soft", text);
                free_from = place + text_width(text) / 2.0 + 4.0;
            }
        }
        out.text((self.left + self.right) / 2.0, self.bottom + 38.0, "middle", "", x_label);
        out.text(self.left - 42.0, self.top - 13.0, "start", "", y_label);
    }
}

/// Where a line ends, and what it is called.
struct End<'a> {
    name: &'a str,
    slot: usize,
    place: (f64, f64),
}

/// Writes the names beside the plotting area, as near to the lines' ends as they can stand without touching.
fn write_names(out: &mut Svg, frame: &Frame, mut ends: Vec<End<'_>>) {
    ends.sort_by(|one, other| one.place.1.total_cmp(&other.place.1));
    let heights = spread(&ends.iter().map(|end| end.place.1).collect::<Vec<_>>(), frame.top, frame.bottom);
    let x = frame.right + 14.0;
    for (end, y) in ends.iter().zip(heights) {
        out.open_colored(end.slot, "");
        if end.place.0 < frame.right - 24.0 || (end.place.1 - y).abs() > 5.0 {
            out.line("whisker", true, &[(end.place.0 + 7.0, end.place.1), (x - 3.0, y)]);
        }
        out.text(x, y + 4.0, "start", "name", end.name);
        out.close();
    }
}

/// Moves rising heights apart to one line's height each, within the two limits as far as they fit.
fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut heights = wanted.to_vec();
    for index in 1..heights.len() {
        heights[index] = heights[index].max(heights[index - 1] + LINE_HEIGHT);
    }
    // Groups that were pushed down too far are taken up again, the last ones first.
    let mut limit = bottom;
    for height in heights.iter_mut().rev() {
        *height = height.min(limit).max(top.min(limit));
        limit = *height - LINE_HEIGHT;
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn figure(points: Vec<Point>) -> Figure {
        let layer = Layer { name: "<one>".into(), slot: 0, line: Line::Solid, has_marks: true, points };
        Figure {
            title: "a < b".into(),
            note: "x & y".into(),
            x: Ruler::new("x", Scale::Log),
            y: Ruler::new("y", Scale::Log),
            layers: vec![layer],
        }
    }

    #[test]
    fn text_is_escaped_and_a_file_of_its_own_has_both_colour_schemes() {
        let svg = figure(vec![Point { x: 1.0, y: 2.0, tip: "\"5\"".into(), ..Point::default() }]).svg(true);
        assert!(svg.contains("a &lt; b") && svg.contains("x &amp; y") && svg.contains("&lt;one&gt;"), "{svg}");
        assert!(svg.contains("&quot;5&quot;") && !svg.contains("<one>"), "{svg}");
        assert!(svg.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn hollow_points_are_seen_but_no_line_goes_through_them() {
        let at = |x, is_hollow| Point { x, y: x, is_hollow, ..Point::default() };
        let svg = figure(vec![at(1.0, false), at(2.0, true), at(4.0, false)]).svg(false);
        assert_eq!(svg.matches("class=\"hollow\"").count(), 1);
        let line = svg.lines().find(|line| line.contains("class=\"line\"")).unwrap();
        assert_eq!(line.matches(',').count(), 2, "{line}");
    }

    #[test]
    fn odd_numbers_and_no_points_still_make_a_picture() {
        let odd = Point { x: f64::NAN, y: 0.0, interval: Some((f64::NAN, f64::INFINITY)), ..Point::default() };
        let zero = Point { interval: Some((0.0, 9.0)), x: 3.0, y: 3.0, ..Point::default() };
        for points in [vec![], vec![odd.clone()], vec![odd, zero]] {
            let svg = figure(points).svg(true);
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
            assert!(!svg.contains("NaN") && !svg.contains("\"inf"), "{svg}");
        }
    }

    #[test]
    fn names_do_not_touch_each_other_and_stay_inside() {
        let heights = spread(&[100.0, 101.0, 102.0, 290.0, 299.0, 300.0], 50.0, 300.0);
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= LINE_HEIGHT - 1e-9), "{heights:?}");
        assert!(heights.iter().all(|height| (50.0..=300.0).contains(height)), "{heights:?}");
    }
}
