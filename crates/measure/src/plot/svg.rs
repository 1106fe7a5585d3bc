//! SVG in the making: elements, escaping, and the one style that all pictures share.
//!
//! In: places in pixels from the upper left corner. Out: SVG text. A picture has class `plot`; its colours come from
//! [`style`], once for each file or once for a whole page.

use std::fmt::Write;

use crate::line;

/// Colours by place in the legend, on light and on dark pages. Marks differ in shape too, for those who see fewer
/// colours.
pub const COLORS: [(&str, &str); 8] = [
    ("#c2410c", "#ff8a4c"),
    ("#0b6bcb", "#58a6ff"),
    ("#0f7b5f", "#3fb98f"),
    ("#a3348f", "#e387d0"),
    ("#846400", "#d9b62c"),
    ("#2f7f95", "#6cc7de"),
    ("#6f52b5", "#b39cf0"),
    ("#5f6773", "#a3adba"),
];

/// What does not depend on the colour scheme.
const SHAPES: &str = "\
    .plot text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif}\
    .plot .title{font-weight:600;font-size:14px}.plot .name{font-weight:600;fill:currentColor}\
    .plot .grid,.plot .axis{fill:none;stroke-width:1}\
    .plot .line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\
    .plot .whisker{fill:none;stroke:currentColor;stroke-width:1.3}\
    .plot .dot{fill:currentColor;stroke-width:1}.plot .hollow{stroke:currentColor;stroke-width:1.6}\
    .plot .bar{fill:currentColor}.plot .pale{fill:currentColor;opacity:.45}";

/// The style of all pictures, with both colour schemes.
pub fn style() -> String {
    let scheme = |page: &str, ink: &str, soft: &str, grid: &str, dark: bool| {
        let mut rules = format!(
            ".plot .page{{fill:{page}}}.plot text{{fill:{ink}}}.plot .soft{{fill:{soft}}}.plot .grid{{stroke:{grid}}}\
             .plot .axis{{stroke:{soft}}}.plot .dot{{stroke:{page}}}.plot .hollow{{fill:{page}}}"
        );
        for (index, (on_light, on_dark)) in COLORS.iter().enumerate() {
            let color = if dark { on_dark } else { on_light };
            write!(rules, ".plot .c{index}{{color:{color}}}").expect("a String takes everything");
        }
        rules + ".plot .name{fill:currentColor}"
    };
    let light = scheme("#fff", "#1f2328", "#59636e", "#dfe4ea", false);
    let dark = scheme("#0d1117", "#e6edf3", "#9aa4b0", "#2a313a", true);
    format!("{SHAPES}{light}@media screen and (prefers-color-scheme:dark){{{dark}}}")
}

/// Makes text safe inside an element or an attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(character),
            // XML has no form for control characters.
            character if character.is_control() => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
    out
}

/// About how wide a text of the ordinary size is, in pixels; a bold one is hardly ever wider.
pub fn text_width(text: &str) -> f64 {
    let width = |character: char| match character {
        'i' | 'l' | 'j' | 't' | 'f' | '.' | ',' | ':' | ' ' | '(' | ')' | '|' => 4.6,
        'A'..='Z' | 'm' | 'w' | '%' => 10.0,
        _ => 7.6,
    };
    text.chars().map(width).sum()
}

/// One picture.
pub struct Svg(String);

impl Svg {
    /// `label` is what is read out to those who do not see the picture. Colours are inside for a file of its own, and
    /// come from the page otherwise.
    pub fn new(width: f64, height: f64, label: &str, with_style: bool) -> Self {
        let label = escape(label);
        let mut svg = Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
             aria-label=\"{label}\">\n"
        ));
        if with_style {
            line!(svg.0, "<style>{}</style>", style());
        }
        line!(svg.0, "<rect class=\"page\" width=\"{width:.0}\" height=\"{height:.0}\"/>");
        svg
    }

    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    /// What follows is moved, until [`Svg::close`].
    pub fn open_at(&mut self, left: f64, top: f64) {
        line!(self.0, "<g transform=\"translate({left:.1} {top:.1})\">");
    }

    /// What follows has the colour of this place in the legend, and `tip` beside the pointer, until [`Svg::close`].
    pub fn open_colored(&mut self, slot: usize, tip: &str) {
        line!(self.0, "<g class=\"c{}\">", slot % COLORS.len());
        if !tip.is_empty() {
            line!(self.0, "<title>{}</title>", escape(tip));
        }
    }

    pub fn close(&mut self) {
        self.0.push_str("</g>\n");
    }

    /// `anchor` is start, middle or end.
    pub fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let text = escape(text);
        line!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>");
    }

    /// A line through all places.
    pub fn line(&mut self, class: &str, dashed: bool, places: &[(f64, f64)]) {
        let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dashes = if dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        line!(self.0, "<polyline class=\"{class}\"{dashes} points=\"{}\"/>", points.join(" "));
    }

    pub fn bar(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let width = width.max(0.0);
        line!(
            self.0,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
    }

    /// A mark of the shape that belongs to the place in the legend, about 9 pixels large.
    pub fn mark(&mut self, slot: usize, hollow: bool, (x, y): (f64, f64), tip: &str) {
        let class = if hollow { "hollow" } else { "dot" };
        let tip = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
        let shape = match slot % 4 {
            0 => {
                return line!(self.0, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\">{tip}</circle>");
            }
            1 => "-3.6,-3.6 3.6,-3.6 3.6,3.6 -3.6,3.6",
            2 => "0,-5 5,0 0,5 -5,0",
            _ => "0,-4.8 4.6,3.6 -4.6,3.6",
        };
        line!(
            self.0,
            "<polygon class=\"{class}\" transform=\"translate({x:.1} {y:.1})\" points=\"{shape}\">{tip}</polygon>"
        );
    }
}
