//! The page as Markdown with pictures beside it, for a repository's documentation.

use super::figures::{self, Picture};
use super::suite::{Run, Suite};
use super::tables::{self, Table};
use super::words;
use measure::line;

/// The text, and the pictures by file name.
pub struct Page {
    pub text: String,
    pub pictures: Vec<(String, String)>,
}

/// Writes the page. `stem` begins the pictures' names.
pub fn page(suites: &[Suite], stem: &str) -> Page {
    let mut page = Page { text: String::new(), pictures: Vec::new() };
    for suite in suites {
        let stem = if suites.len() == 1 { stem.to_owned() } else { format!("{stem}-{}", file_name(&suite.name)) };
        page.write_suite(suite, &stem);
    }
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
    format!("{fence}\n{}\n{fence}\n", text.trim_end())
}

impl Page {
    fn write_suite(&mut self, suite: &Suite, stem: &str) {
        let run = &suite.newest;
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        line!(self.text, "# {}\n", escape(&suite.name));
        for sentence in words::verdicts(run) {
            line!(self.text, "- {}", escape(&sentence.text));
        }
        self.text.push('\n');
        for caveat in words::caveats(run) {
            line!(self.text, "{}\n", escape(&caveat));
        }
        self.write_pictures(&figures::pictures(run), stem);
        self.write_table(&tables::verdicts(run));
        line!(self.text, "## Round by round\n\n{}\n", escape(words::ROUNDS));
        self.write_pictures(&figures::rounds(run), stem);
        self.write_table(&tables::figures(run));
        self.write_table(&tables::losses(run));
        if let Some(floor) = tables::floor(run) {
            self.write_table(&floor);
        }
        let history = figures::history(suite);
        if !history.is_empty() {
            line!(self.text, "## History\n");
            self.write_pictures(&history, stem);
        }
        self.write_machine(run);
    }

    fn write_pictures(&mut self, pictures: &[Picture], stem: &str) {
        for picture in pictures {
            let name = format!("{stem}-{}.svg", file_name(&picture.id));
            line!(self.text, "![{}]({name})\n", escape(&picture.title));
            if !picture.caption.is_empty() {
                line!(self.text, "{}\n", escape(&picture.caption));
            }
            self.pictures.push((name, picture.svg(true)));
        }
    }

    fn write_table(&mut self, table: &Table) {
        if table.rows.is_empty() {
            return;
        }
        line!(self.text, "## {}\n\n{}\n", escape(&table.title), escape(&table.note));
        let head: Vec<String> = table.head.iter().map(|head| escape(head)).collect();
        line!(self.text, "| {} |", head.join(" | "));
        let rule: Vec<&str> = (0..head.len()).map(|index| if index < table.texts { "---" } else { "---:" }).collect();
        line!(self.text, "| {} |", rule.join(" | "));
        for row in &table.rows {
            let cells: Vec<String> = row.iter().map(|cell| escape(&cell.text)).collect();
            line!(self.text, "| {} |", cells.join(" | "));
        }
        self.text.push('\n');
    }

    fn write_machine(&mut self, run: &Run) {
        line!(self.text, "## The machine, and how to repeat it\n");
        for (name, value) in tables::machine(run) {
            line!(self.text, "- {}: {}", escape(&name), escape(&value));
        }
        for subject in &run.machine.subjects {
            let version = subject.version.as_deref().unwrap_or("version not asked for");
            line!(self.text, "- {}: {}", escape(&subject.name), escape(version));
        }
        self.text.push('\n');
        line!(self.text, "{}", fenced(&run.machine.command));
        line!(self.text, "<details><summary>The plan</summary>\n\n{}\n</details>", fenced(&run.machine.plan));
    }
}
