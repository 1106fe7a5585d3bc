//! Manual pages and completions, made of what can be typed: they say no more and no less than `--help`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Cli;

pub const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  millrace completions bash > /usr/share/bash-completion/completions/millrace
  millrace completions zsh > /usr/share/zsh/vendor-completions/_millrace
  millrace completions fish > ~/.config/fish/completions/millrace.fish";

/// Writes manual pages.
#[derive(Args)]
pub struct Manual {
    /// Where to: a folder that is there, such as /usr/local/share/man/man1.
    folder: PathBuf,
}

/// Prints completions.
#[derive(Args)]
pub struct Completions {
    /// For which shell.
    shell: Shell,
}

impl Manual {
    pub fn run(&self) -> anyhow::Result<bool> {
        clap_mangen::generate_to(Cli::command(), &self.folder)
            .with_context(|| format!("writing manual pages into {}", self.folder.display()))?;
        Ok(true)
    }
}

impl Completions {
    pub fn run(&self) -> anyhow::Result<bool> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "millrace", &mut script);
        crate::say(&String::from_utf8(script).context("a script is text")?)
    }
}
