//! Horizontal bars in groups, each made of one or two parts.
//!
//! In: groups of bars whose parts add up. Out: one picture as high as it has to be, with every bar named and its sum
//! written behind it.

use super::axis::{Axis, Ruler, Scale};
use super::figure::WIDTH;
use super::svg::{Svg, text_width};

/// One picture.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What is compared.
    pub title: String,
    /// What is seen, in one line below the title.
    pub note: String,
    /// What the lengths are.
    pub unit: String,
    /// What the parts are called: the first is drawn in full colour, the second one paler.
    pub parts: Vec<String>,
    /// From top to bottom.
    pub groups: Vec<Group>,
}

/// Bars that belong together.
#[derive(Clone, Debug)]
pub struct Group {
    /// Stands above them, if it is not empty.
    pub label: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// One bar, which may be made of parts.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Stands before the bar.
    pub name: String,
    /// Which colour it has, as in [`COLORS`](super::COLORS).
    pub slot: usize,
    /// Lengths of its parts, from left to right.
    pub parts: Vec<f64>,
    /// Written behind the bar.
    pub text: String,
}

const BAR_HEIGHT: f64 = 16.0;
const BAR_STEP: f64 = 22.0;
const GROUP_LABEL_HEIGHT: f64 = 22.0;
const GROUP_GAP: f64 = 8.0;

impl Bars {
    /// The picture; with its colours inside for a file of its own.
    pub fn svg(&self, with_style: bool) -> String {
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        let widest =
            |text: fn(&Bar) -> &str| bars().map(|bar| text_width(text(bar))).fold(0.0, f64::max).min(WIDTH / 3.0);
        let (left, right) = (28.0 + widest(|bar| &bar.name), WIDTH - 20.0 - widest(|bar| &bar.text));
        let top = 62.0;
        let labels = self.groups.iter().filter(|group| !group.label.is_empty()).count() as f64;
        let bottom = top
            + labels * GROUP_LABEL_HEIGHT
            + bars().count() as f64 * BAR_STEP
            + (self.groups.len().max(1) - 1) as f64 * GROUP_GAP;

        let mut out = Svg::new(WIDTH, bottom + 48.0, &self.title, with_style);
        out.text(16.0, 24.0, "start", "title", &self.title);
        out.text(16.0, 43.0, "start", "soft", &self.note);
        self.draw_parts_legend(&mut out);
        let axis = Axis::around(bars().map(Bar::sum), &Ruler::new("", Scale::Linear), left, right);
        for (place, text) in axis.ticks() {
            out.line("grid", false, &[(place, top), (place, bottom)]);
            out.text(place, bottom + 16.0, "middle", "soft", text);
        }
        out.text((left + right) / 2.0, bottom + 36.0, "middle", "", &self.unit);

        let mut y = top;
        for group in &self.groups {
            if !group.label.is_empty() {
                out.text(16.0, y + 15.0, "start", "", &group.label);
                y += GROUP_LABEL_HEIGHT;
            }
            for bar in &group.bars {
                bar.draw(&mut out, &axis, left, y);
                y += BAR_STEP;
            }
            y += GROUP_GAP;
        }
        out.finish()
    }

    /// In the upper right corner, from right to left.
    fn draw_parts_legend(&self, out: &mut Svg) {
        let mut right = WIDTH - 16.0;
        for (index, part) in self.parts.iter().enumerate().rev() {
            let left = right - text_width(part);
            out.text(left, 24.0, "start", "soft", part);
            out.open_colored(7, "");
            out.bar(class_of(index), left - 17.0, 14.0, 12.0, 12.0);
            out.close();
            right = left - 32.0;
        }
    }
}

impl Bar {
    fn sum(&self) -> f64 {
        self.parts.iter().filter(|part| part.is_finite()).sum()
    }

    fn draw(&self, out: &mut Svg, axis: &Axis, left: f64, y: f64) {
        out.open_colored(self.slot, &format!("{}: {}", self.name, self.text));
        out.text(left - 8.0, y + 13.0, "end", "name", &self.name);
        let (mut sum, mut x) = (0.0, left);
        for (index, part) in self.parts.iter().enumerate().filter(|(_, part)| part.is_finite()) {
            sum += part;
            let end = axis.place(sum).unwrap_or(x);
            out.bar(class_of(index), x, y + 1.0, end - x, BAR_HEIGHT);
            x = end;
        }
        out.close();
        out.text(x + 6.0, y + 13.0, "start", "", &self.text);
    }
}

fn class_of(part: usize) -> &'static str {
    if part == 0 { "bar" } else { "pale" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(parts: Vec<f64>) -> Bars {
        let bar = Bar { name: "<one>".into(), slot: 1, parts, text: "5 & more".into() };
        Bars {
            title: "t".into(),
            note: String::new(),
            unit: "µs".into(),
            parts: vec!["user".into(), "kernel".into()],
            groups: vec![Group { label: "100 viewers".into(), bars: vec![bar] }],
        }
    }

    #[test]
    fn parts_stand_behind_each_other_and_text_is_escaped() {
        let svg = bars(vec![2.0, 3.0]).svg(true);
        assert!(svg.contains("&lt;one&gt;") && svg.contains("5 &amp; more") && !svg.contains("<one>"));
        let widths: Vec<f64> = svg
            .lines()
            .filter(|line| line.contains("height=\"16.0\""))
            .map(|line| line.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!(widths.len() == 2 && (widths[1] / widths[0] - 1.5).abs() < 0.01, "{widths:?}");
    }

    #[test]
    fn odd_numbers_and_no_bars_still_make_a_picture() {
        for parts in [vec![], vec![0.0], vec![f64::NAN, 1.0], vec![f64::INFINITY]] {
            let svg = bars(parts).svg(false);
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("\"inf"), "{svg}");
        }
        assert!(Bars { groups: Vec::new(), ..bars(vec![]) }.svg(false).ends_with("</svg>\n"));
    }
}
