//! The page as Markdown with pictures beside it, for a repository's documentation.

use super::page::{Block, blocks};
use super::suite::Suite;
use super::tables::Table;
use measure::line;

/// The text, and the pictures by file name.
#[derive(Default)]
pub struct Page {
    pub text: String,
    pub pictures: Vec<(String, String)>,
}

/// Writes the page. `stem` begins the pictures' names.
pub fn page(suites: &[Suite], stem: &str) -> Page {
    let mut page = Page::default();
    for suite in suites {
        let stem = if suites.len() == 1 { stem.to_owned() } else { format!("{stem}-{}", file_name(&suite.name)) };
        blocks(suite).iter().for_each(|block| page.write(block, &stem));
    }
    page.text.truncate(page.text.trim_end().len());
    page.text.push('\n');
    page
}

/// Letters, digits and hyphens.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}

/// Keeps text from being read as Markdown or HTML.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' | '$' => {
                out.push('\\');
                out.push(character);
            }
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            character if character.is_control() => out.push(' '),
            character => out.push(character),
        }
    }
    out
}

/// A block of text as it is, whatever is in it: the fence is longer than any run of backticks inside.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}", text.trim_end())
}

impl Page {
    /// Writes a block and an empty line behind it.
    fn write(&mut self, block: &Block, stem: &str) {
        match block {
            Block::Title(name, about) => line!(self.text, "# {}\n\n{}", escape(name), escape(about)),
            Block::Heading(text) => line!(self.text, "## {}", escape(text)),
            Block::Text(text) | Block::Remark(text) => line!(self.text, "{}", escape(text)),
            Block::Verdicts(sentences) => self.write_list(sentences.iter().map(|sentence| escape(&sentence.text))),
            Block::List(items) => self.write_list(items.iter().map(|item| escape(item))),
            Block::Legend(facts) | Block::Facts(facts) => {
                self.write_list(facts.iter().map(|(name, fact)| format!("{}: {}", escape(name), escape(fact))));
            }
            Block::Pictures { pictures, .. } => {
                for picture in pictures {
                    let name = format!("{stem}-{}.svg", file_name(&picture.id));
                    line!(self.text, "![{}]({name})\n", escape(&picture.title));
                    if !picture.caption.is_empty() {
                        line!(self.text, "{}\n", escape(&picture.caption));
                    }
                    self.pictures.push((name, picture.svg(true)));
                }
                return;
            }
            Block::Table(table) => self.write_table(table),
            Block::Code(text) => line!(self.text, "{}", fenced(text)),
            Block::Folded(summary, block) => {
                line!(self.text, "<details><summary>{summary}</summary>\n");
                self.write(block, stem);
                line!(self.text, "</details>");
            }
        }
        self.text.push('\n');
    }

    fn write_list(&mut self, items: impl Iterator<Item = String>) {
        items.for_each(|item| line!(self.text, "- {item}"));
    }

    fn write_table(&mut self, table: &Table) {
        let mut row = |cells: Vec<String>| line!(self.text, "| {} |", cells.join(" | "));
        row(table.head.iter().map(|head| escape(head)).collect());
        row((0..table.head.len()).map(|index| if index < table.texts { "---" } else { "---:" }.into()).collect());
        table.rows.iter().for_each(|cells| row(cells.iter().map(|cell| escape(&cell.text)).collect()));
    }
}
