//! `millrace ab report`: kept results become a page that is worth looking at.
//!
//! In: results directories, each with `machine.json`, `rounds.jsonl` and, where somebody measured it, `floor.json`.
//! Out: one page of HTML with its pictures inside and no script, or a page of Markdown with its pictures beside it.
//! Results of the same plan become one suite: the newest is shown, and all together are its history.
//! Text that came from commands, logs or plans is escaped wherever it goes.

mod figures;
mod html;
mod markdown;
mod page;
mod suite;
mod summary;
mod tables;
mod terminal;
mod words;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use suite::Suite;

/// The page, in a results directory.
pub const PAGE_FILE: &str = "report.html";

/// What to join, and into what.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Results directories of `millrace ab`; those of the same plan become a history.
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Writes one HTML page; by default report.html in the last directory, when --markdown is not given.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Writes a page of Markdown, with its pictures as SVG files beside it.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// The whole command: reads, draws, writes, and says where to look.
pub fn execute(args: &Args) -> anyhow::Result<()> {
    let suites = Suite::read_all(&args.dirs)?;
    let default = || Some(args.dirs.last().filter(|_| args.markdown.is_none())?.join(PAGE_FILE));
    let html = args.html.clone().or_else(default);
    if let Some(path) = html {
        write_file(&path, &html::page(&suites))?;
        println!("{}", path.display());
    }
    if let Some(path) = &args.markdown {
        write_markdown(path, &suites)?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Writes the page of one results directory into it, and returns what is to be printed: JSON, or what the page says as text.
pub fn write(dir: &Path, json: bool) -> anyhow::Result<String> {
    let suites = Suite::read_all(&[dir.to_owned()])?;
    write_file(&dir.join(PAGE_FILE), &html::page(&suites))?;
    let text = |suite: &Suite| if json { format!("{}\n", summary::json(&suite.newest)) } else { terminal::text(suite) };
    Ok(suites.iter().map(text).collect())
}

/// Pictures are named after the page, so that pages may share a directory.
fn write_markdown(path: &Path, suites: &[Suite]) -> anyhow::Result<()> {
    let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else {
        bail!("--markdown {}: a file's name is needed", path.display());
    };
    let page = markdown::page(suites, stem);
    let directory = path.parent().unwrap_or(Path::new(""));
    for (name, svg) in &page.pictures {
        write_file(&directory.join(name), svg)?;
    }
    write_file(path, &page.text)
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests;
