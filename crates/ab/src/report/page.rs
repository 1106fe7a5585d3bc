//! The page, block by block, as HTML, Markdown and the terminal have it.

use super::figures::{self, Picture};
use super::suite::{Run, Suite};
use super::tables::{self, Table};
use super::words::{self, Sentence};
use crate::record::Machine;

/// What a page is made of; all text is as it came, and is escaped by whoever writes it.
pub enum Block {
    /// A name, and what is to be known of it at once.
    Title(String, String),
    Heading(String),
    Text(String),
    /// What one should know before quoting a figure.
    Remark(String),
    Verdicts(Vec<Sentence>),
    /// The subjects' names and versions, in the order of their colours.
    Legend(Vec<(String, String)>),
    /// Pictures of one height stand in rows, others fill two columns.
    Pictures {
        pictures: Vec<Picture>,
        rows: bool,
    },
    Table(Table),
    List(Vec<String>),
    Facts(Vec<(String, String)>),
    /// Lines as they are.
    Code(String),
    /// A block that is seen when one asks for it.
    Folded(&'static str, Box<Block>),
}

/// A suite from its name to how to repeat it.
pub fn blocks(suite: &Suite) -> Vec<Block> {
    let run = &suite.newest;
    let machine = &run.machine;
    let mut page = vec![
        Block::Title(suite.name.clone(), format!("{} · {}", machine.date, hardware(machine, " · "))),
        Block::Verdicts(words::verdicts(run)),
    ];
    page.extend(words::remarks(run).into_iter().map(Block::Remark));
    page.push(Block::Legend(versions(run)));
    page.push(Block::Pictures { pictures: figures::pictures(run), rows: false });
    page.extend(titled(tables::verdicts(run)));
    page.push(Block::Heading("Round by round".into()));
    page.push(Block::Text(words::ROUNDS.into()));
    page.push(Block::Pictures { pictures: figures::rounds(run), rows: true });
    let tables = [Some(tables::figures(run)), tables::shown(run), Some(tables::losses(run)), tables::floor(run)];
    page.extend(tables.into_iter().flatten().flat_map(titled));
    let history = figures::history(suite);
    if !history.is_empty() {
        page.push(Block::Heading("History".into()));
        page.push(Block::Pictures { pictures: history, rows: true });
        page.push(Block::List(suite.older.iter().chain([run]).map(measured).collect()));
    }
    page.push(Block::Heading("The machine, and how to repeat it".into()));
    page.push(Block::Facts(tables::machine(run)));
    page.push(Block::Code(machine.command.clone()));
    let commands: Vec<String> =
        machine.subjects.iter().map(|subject| format!("{}: {}", subject.name, subject.command)).collect();
    page.push(Block::Folded("The subjects' commands", Box::new(Block::Code(commands.join("\n")))));
    page.push(Block::Folded("The plan", Box::new(Block::Code(machine.plan.clone()))));
    page
}

/// Nothing of a table without rows.
fn titled(table: Table) -> impl Iterator<Item = Block> {
    let blocks = (!table.rows.is_empty())
        .then(|| [Block::Heading(table.title.clone()), Block::Text(table.note.clone()), Block::Table(table)]);
    blocks.into_iter().flatten()
}

fn hardware(machine: &Machine, gap: &str) -> String {
    format!("{} × {}{gap}{}", machine.cores, machine.cpu, machine.kernel)
}

fn versions(run: &Run) -> Vec<(String, String)> {
    let version = |index: usize| run.machine.subjects.get(index).and_then(|subject| subject.version.clone());
    let versions = run.subjects.iter().enumerate().map(|(index, name)| (name.clone(), version(index)));
    versions.map(|(name, version)| (name, version.unwrap_or_else(|| "version not asked for".into()))).collect()
}

/// A run of the history.
fn measured(run: &Run) -> String {
    let machine = &run.machine;
    let versions: Vec<&str> = machine.subjects.iter().filter_map(|subject| subject.version.as_deref()).collect();
    format!("{}: {} ({})", machine.date, hardware(machine, ", "), versions.join("; "))
}
