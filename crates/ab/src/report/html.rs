//! The page as one file of HTML: no script, nothing loaded from elsewhere.

use std::fmt::Write as _;

use super::figures::{self, Picture};
use super::suite::{Run, Suite};
use super::tables::{self, Table, TableCell};
use super::words::{self, Tone};
use measure::line;
use measure::plot::{COLORS, escape, style};

const PAGE_STYLE: &str = include_str!("page.css");

/// Writes the whole page.
pub fn page(suites: &[Suite]) -> String {
    let names: Vec<&str> = suites.iter().map(|suite| suite.name.as_str()).collect();
    let title = escape(&format!("millrace ab: {}", names.join(", ")));
    let mut out = String::new();
    line!(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">");
    line!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    line!(out, "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>");
    line!(out, "<style>\n{PAGE_STYLE}{}{}\n</style>\n</head>\n<body>\n<main>", style(), slot_style());
    for suite in suites {
        write_suite(&mut out, suite);
    }
    let version = env!("CARGO_PKG_VERSION");
    line!(out, "<footer>Written by millrace {version}, <code>millrace ab report</code>.</footer>");
    line!(out, "</main>\n</body>\n</html>");
    out
}

/// The subjects' colours outside of pictures.
fn slot_style() -> String {
    let rules = |dark: bool| -> String {
        let color = |(light, on_dark): &(&'static str, &'static str)| if dark { *on_dark } else { *light };
        COLORS.iter().enumerate().map(|(index, pair)| format!(".s{index}{{color:{}}}", color(pair))).collect()
    };
    format!("{}@media screen and (prefers-color-scheme:dark){{{}}}", rules(false), rules(true))
}

fn write_suite(out: &mut String, suite: &Suite) {
    let run = &suite.newest;
    let machine = &run.machine;
    line!(out, "<header>\n<h1>{}</h1>", escape(&suite.name));
    line!(
        out,
        "<p class=\"soft\">{} · {} × {} · {}</p>\n</header>",
        escape(&machine.date),
        machine.cores,
        escape(&machine.cpu),
        escape(&machine.kernel)
    );
    write_words(out, run);
    write_legend(out, run);
    write_pictures(out, &figures::pictures(run), false);
    write_table(out, &tables::verdicts(run));
    line!(out, "<h2>Round by round</h2>\n<p class=\"soft\">{}</p>", escape(words::ROUNDS));
    write_pictures(out, &figures::rounds(run), true);
    write_table(out, &tables::figures(run));
    write_table(out, &tables::losses(run));
    if let Some(floor) = tables::floor(run) {
        write_table(out, &floor);
    }
    write_history(out, suite);
    write_machine(out, run);
}

fn write_words(out: &mut String, run: &Run) {
    line!(out, "<ul class=\"lead\">");
    for sentence in words::verdicts(run) {
        line!(out, "<li class=\"{}\">{}</li>", tone_class(sentence.tone), escape(&sentence.text));
    }
    line!(out, "</ul>");
    for caveat in words::caveats(run) {
        line!(out, "<p class=\"soft\">{}</p>", escape(&caveat));
    }
}

fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Neutral => "",
    }
}

fn write_legend(out: &mut String, run: &Run) {
    line!(out, "<ul class=\"legend\">");
    for (index, name) in run.subjects.iter().enumerate() {
        let version = run.machine.subjects.get(index).and_then(|subject| subject.version.as_deref());
        let slot = index % COLORS.len();
        line!(
            out,
            "<li><span class=\"key s{slot}\"></span><b>{}</b> <span class=\"soft\">{}</span></li>",
            escape(name),
            escape(version.unwrap_or("version not asked for"))
        );
    }
    line!(out, "</ul>");
}

/// Pictures of one height stand in `rows`, others fill two columns.
fn write_pictures(out: &mut String, pictures: &[Picture], rows: bool) {
    line!(out, "<div class=\"figures{}\">", if rows { " rows" } else { "" });
    for picture in pictures {
        out.push_str("<figure>\n");
        out.push_str(&picture.svg(false));
        if !picture.caption.is_empty() {
            line!(out, "<figcaption>{}</figcaption>", escape(&picture.caption));
        }
        out.push_str("</figure>\n");
    }
    line!(out, "</div>");
}

fn write_table(out: &mut String, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    line!(out, "<h2>{}</h2>\n<p class=\"soft\">{}</p>", escape(&table.title), escape(&table.note));
    line!(out, "<div class=\"scroll\"><table>\n<thead><tr>");
    for (index, head) in table.head.iter().enumerate() {
        let class = if index < table.texts { " class=\"word\"" } else { "" };
        line!(out, "<th{class}>{}</th>", escape(head));
    }
    line!(out, "</tr></thead>\n<tbody>");
    let mut before = None;
    for row in &table.rows {
        let point = row.first().map(|cell| cell.text.as_str());
        let is_first = table.texts > 1 && before.is_some() && before != point;
        before = point;
        out.push_str(if is_first { "<tr class=\"first\">" } else { "<tr>" });
        for (index, cell) in row.iter().enumerate() {
            write_cell(out, cell, index < table.texts);
        }
        out.push_str("</tr>\n");
    }
    line!(out, "</tbody></table></div>");
}

fn write_cell(out: &mut String, cell: &TableCell, is_word: bool) {
    let mut classes: Vec<String> = Vec::new();
    if is_word {
        classes.push("word".into());
    }
    if let Some(slot) = cell.slot {
        classes.push(format!("name s{}", slot % COLORS.len()));
    }
    if cell.tone != Tone::Neutral {
        classes.push(tone_class(cell.tone).into());
    }
    let class = if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) };
    write!(out, "<td{class}>{}</td>", escape(&cell.text)).expect("a String takes everything");
}

fn write_history(out: &mut String, suite: &Suite) {
    let pictures = figures::history(suite);
    if pictures.is_empty() {
        return;
    }
    line!(out, "<h2>History</h2>");
    write_pictures(out, &pictures, true);
    line!(out, "<ul>");
    for run in suite.older.iter().chain([&suite.newest]) {
        let machine = &run.machine;
        let versions: Vec<&str> = machine.subjects.iter().filter_map(|subject| subject.version.as_deref()).collect();
        line!(
            out,
            "<li>{}: {} × {}, {} <span class=\"soft\">({})</span></li>",
            escape(&machine.date),
            machine.cores,
            escape(&machine.cpu),
            escape(&machine.kernel),
            escape(&versions.join("; "))
        );
    }
    line!(out, "</ul>");
}

fn write_machine(out: &mut String, run: &Run) {
    line!(out, "<h2>The machine, and how to repeat it</h2>\n<dl>");
    for (name, value) in tables::machine(run) {
        line!(out, "<dt>{}</dt><dd>{}</dd>", escape(&name), escape(&value));
    }
    line!(out, "</dl>\n<pre>{}</pre>", escape(&run.machine.command));
    line!(out, "<details><summary>The subjects' commands</summary>\n<dl>");
    for subject in &run.machine.subjects {
        line!(out, "<dt>{}</dt><dd><code>{}</code></dd>", escape(&subject.name), escape(&subject.command));
    }
    line!(out, "</dl></details>");
    line!(out, "<details><summary>The plan</summary>\n<pre>{}</pre></details>", escape(&run.machine.plan));
}
