//! The page as one file of HTML: no script, nothing loaded from elsewhere.

use super::page::{Block, blocks};
use super::suite::Suite;
use super::tables::{Table, TableCell};
use measure::line;
use measure::plot::{COLORS, escape, style};

const PAGE_STYLE: &str = include_str!("page.css");

/// Writes the whole page. The pictures' style is the page's too, so that a subject has its colour everywhere.
pub fn page(suites: &[Suite]) -> String {
    let names: Vec<&str> = suites.iter().map(|suite| suite.name.as_str()).collect();
    let title = escape(&format!("millrace ab: {}", names.join(", ")));
    let mut out = String::new();
    line!(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">");
    line!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    line!(out, "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>");
    line!(out, "<style>\n{PAGE_STYLE}{}\n</style>\n</head>\n<body>\n<main class=\"plot\">", style());
    for block in suites.iter().flat_map(blocks) {
        write(&mut out, &block);
    }
    let version = env!("CARGO_PKG_VERSION");
    line!(out, "<footer>Written by millrace {version}, <code>millrace ab report</code>.</footer>");
    line!(out, "</main>\n</body>\n</html>");
    out
}

fn write(out: &mut String, block: &Block) {
    match block {
        Block::Title(name, about) => {
            line!(out, "<header>\n<h1>{}</h1>\n<p class=\"soft\">{}</p>\n</header>", escape(name), escape(about));
        }
        Block::Heading(text) => line!(out, "<h2>{}</h2>", escape(text)),
        Block::Text(text) | Block::Remark(text) => line!(out, "<p class=\"soft\">{}</p>", escape(text)),
        Block::Verdicts(sentences) => list(out, "lead", sentences, |sentence| {
            format!("<li class=\"{}\">{}</li>", sentence.tone.as_ref(), escape(&sentence.text))
        }),
        Block::Legend(subjects) => list(out, "legend", &subjects.iter().enumerate().collect::<Vec<_>>(), |subject| {
            let (slot, (name, version)) = subject;
            let key = format!("<span class=\"key c{}\"></span>", slot % COLORS.len());
            format!("<li>{key}<b>{}</b> <span class=\"soft\">{}</span></li>", escape(name), escape(version))
        }),
        Block::List(items) => list(out, "", items, |item| format!("<li>{}</li>", escape(item))),
        Block::Pictures { pictures, rows } => {
            line!(out, "<div class=\"figures{}\">", if *rows { " rows" } else { "" });
            for picture in pictures {
                let caption = match &*picture.caption {
                    "" => String::new(),
                    caption => format!("<figcaption>{}</figcaption>\n", escape(caption)),
                };
                line!(out, "<figure>\n{}{caption}</figure>", picture.svg(false));
            }
            line!(out, "</div>");
        }
        Block::Table(table) => write_table(out, table),
        Block::Facts(facts) => {
            line!(out, "<dl>");
            facts.iter().for_each(|(name, fact)| line!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(fact)));
            line!(out, "</dl>");
        }
        Block::Code(text) => line!(out, "<pre>{}</pre>", escape(text)),
        Block::Folded(summary, block) => {
            line!(out, "<details><summary>{}</summary>", escape(summary));
            write(out, block);
            line!(out, "</details>");
        }
    }
}

fn list<T>(out: &mut String, class: &str, items: &[T], item: impl Fn(&T) -> String) {
    line!(out, "<ul class=\"{class}\">");
    items.iter().for_each(|it| line!(out, "{}", item(it)));
    line!(out, "</ul>");
}

fn write_table(out: &mut String, table: &Table) {
    let word = |index: usize| if index < table.texts { "word" } else { "" };
    let heads = table.head.iter().enumerate();
    let heads: String =
        heads.map(|(index, head)| format!("<th class=\"{}\">{}</th>", word(index), escape(head))).collect();
    line!(out, "<div class=\"scroll\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>");
    let mut before = None;
    for row in &table.rows {
        let point = row.first().map(|cell| cell.text.as_str());
        let is_first = table.texts > 1 && before.is_some() && before != point;
        before = point;
        let cells = row.iter().enumerate();
        let cells: String = cells.map(|(index, cell)| table_cell(cell, word(index))).collect();
        line!(out, "<tr class=\"{}\">{cells}</tr>", if is_first { "first" } else { "" });
    }
    line!(out, "</tbody></table></div>");
}

fn table_cell(cell: &TableCell, class: &str) -> String {
    let name = cell.slot.map(|slot| format!("name c{}", slot % COLORS.len())).unwrap_or_default();
    format!("<td class=\"{class} {name} {}\">{}</td>", cell.tone.as_ref(), escape(&cell.text))
}
