//! What a command found out: a table for people, JSON for programs.

use std::fmt;

use anyhow::Result;
use serde::Serialize;

/// Prints one object of JSON, or the text.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn print(json: bool, report: &(impl Serialize + fmt::Display)) -> Result<()> {
    print_rows(json, std::slice::from_ref(report), report)
}

/// Prints one line of JSON for each row, or the table.
///
/// # Errors
/// When a row cannot be written as JSON.
pub fn print_rows(json: bool, rows: &[impl Serialize], table: &impl fmt::Display) -> Result<()> {
    match json {
        true => print!("{}", json_lines(rows)?),
        false => print!("{table}"),
    }
    Ok(())
}

/// One line of JSON for each row.
///
/// # Errors
/// When a row cannot be written as JSON.
pub fn json_lines(rows: &[impl Serialize]) -> Result<String> {
    rows.iter().map(|row| Ok(serde_json::to_string(row)? + "\n")).collect()
}

/// Rows of cells for the terminal, each column as wide as its widest cell, and lines of text between them.
#[derive(Clone, Debug)]
pub struct Table {
    indent: &'static str,
    columns: &'static str,
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
enum Line {
    Row(Vec<String>),
    Text(String),
}

impl Table {
    /// A table whose columns stand on the left (`l`, as do those that are not named) or on the right (`r`).
    pub fn new(columns: &'static str) -> Self {
        Table { indent: "", columns, lines: Vec::new() }
    }

    /// Names and what is to say of them, a line each, a little indented.
    pub fn of_facts() -> Self {
        Table { indent: "  ", ..Table::new("") }
    }

    /// Adds a row of as many cells as there are.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.push(Line::Row(cells.into_iter().collect()));
    }

    /// Adds the columns' names, behind `first`.
    pub fn head(&mut self, first: String, names: &[&str]) {
        self.row(std::iter::once(first).chain(names.iter().map(ToString::to_string)));
    }

    /// Adds a name and what is to say of it.
    pub fn fact(&mut self, name: &str, value: impl Into<String>) {
        self.row([name.to_owned(), value.into()]);
    }

    /// Adds a line as it is, which makes no column wider.
    pub fn text(&mut self, text: impl Into<String>) {
        self.lines.push(Line::Text(text.into()));
    }

    /// Of the widest cell in each column.
    fn widths(&self) -> Vec<usize> {
        let rows = || self.lines.iter().filter_map(|line| if let Line::Row(cells) = line { Some(cells) } else { None });
        let count = rows().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| rows().filter_map(|cells| cells.get(column)).map(|cell| cell.chars().count()).max();
        (0..count).map(|column| width(column).unwrap_or(0)).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let columns = || self.columns.chars().chain(std::iter::repeat('l'));
        for line in &self.lines {
            match line {
                Line::Text(text) => writeln!(f, "{text}")?,
                Line::Row(cells) => {
                    let padded = cells.iter().zip(&widths).zip(columns()).map(|((cell, &width), side)| match side {
                        'r' => format!("{cell:>width$}"),
                        _ => format!("{cell:<width$}"),
                    });
                    let row = padded.collect::<Vec<_>>().join("  ");
                    writeln!(f, "{}{}", self.indent, row.trim_end())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_text_is_not_cut() {
        let mut table = Table::new("lr");
        table.text("a heading that is longer than any row");
        table.head("way".into(), &["ns", "remark"]);
        table.row(["µ".into(), "1,000".into(), String::new()]);
        table.row(["sendmmsg".into(), "7".into(), "cheap".into()]);
        let wanted = "a heading that is longer than any row\n\
                      way          ns  remark\n\
                      µ         1,000\n\
                      sendmmsg      7  cheap\n";
        assert_eq!(table.to_string(), wanted);
    }

    #[test]
    fn facts_stand_in_two_columns() {
        let mut table = Table::of_facts();
        table.text("");
        table.fact("lost", "none");
        table.fact("received", "10 packets/s");
        assert_eq!(table.to_string(), "\n  lost      none\n  received  10 packets/s\n");
    }

    #[test]
    fn rows_are_lines_of_json() {
        assert_eq!(json_lines(&[Some(1), None]).unwrap(), "1\nnull\n");
    }
}
