//! A suite for the terminal: what its page says, and the tables' rows as columns, a block for each point.

use super::page::{Block, blocks};
use super::suite::Suite;
use super::tables::{self, TableCell, UNKNOWN};
use measure::report::Table;

/// Returns the text.
pub fn text(suite: &Suite) -> String {
    let mut text = String::new();
    for block in blocks(suite) {
        match block {
            Block::Title(name, _) => text += &format!("{name}\n"),
            Block::Verdicts(sentences) => sentences.iter().for_each(|it| text += &format!("  → {}\n", it.text)),
            Block::Remark(remark) => text += &format!("Note: {remark}\n"),
            Block::Table(table) => text += &format!("\n{}: {}\n{}", table.title, table.note, turned(&table)),
            // What it takes a page to see.
            _ => {}
        }
    }
    text
}

/// The table with its columns as lines, without those of which nobody knows anything.
fn turned(table: &tables::Table) -> Table {
    let mut turned = Table::new("");
    let is_one_point = |one: &Vec<TableCell>, other: &Vec<TableCell>| table.texts < 2 || one[0].text == other[0].text;
    for (index, rows) in table.rows.chunk_by(is_one_point).enumerate() {
        if index > 0 {
            turned.text("");
        }
        for (column, head) in table.head.iter().enumerate() {
            let cells = || rows.iter().map(|row| row[column].text.clone());
            if cells().any(|cell| cell != UNKNOWN) {
                turned.row(std::iter::once(format!("  {head}")).chain(cells()));
            }
        }
    }
    turned
}
