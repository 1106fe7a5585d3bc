//! `millrace import`: another server's configuration as one of ours.

use std::path::PathBuf;

use anyhow::Context;
use clap::Subcommand;
use server::import::Note;
use server::reflect::cubemap;
use server::relay::coturn;

#[derive(Subcommand)]
pub enum Import {
    /// Prints a turnserver.conf as settings of the relay, and says of each line that has no counterpart why.
    #[command(after_help = EXAMPLES)]
    Coturn {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Prints a cubemap.config as settings of the reflector, and says of each line that has no counterpart why.
    #[command(after_help = CUBEMAP_EXAMPLES)]
    Cubemap {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

const EXAMPLES: &str = "\
Examples:
  millrace import coturn /etc/turnserver.conf > millrace.toml

Notes go to the standard error. What is printed has the secrets in it that the file has.";

const CUBEMAP_EXAMPLES: &str = "\
Examples:
  millrace import cubemap /etc/cubemap.config > millrace.toml

Notes go to the standard error.";

impl Import {
    pub fn run(&self) -> anyhow::Result<bool> {
        let (file, import): (_, fn(&str) -> _) = match self {
            Import::Coturn { file } => (file, coturn::import),
            Import::Cubemap { file } => (file, cubemap::import),
        };
        let name = file.display();
        let text = std::fs::read(file).with_context(|| format!("{name} cannot be read"))?;
        let imported = import(&String::from_utf8_lossy(&text));
        for Note { line, option, says } in &imported.notes {
            match line {
                Some(line) => eprintln!("{name}:{line}: {option}: {says}"),
                None => eprintln!("{name}: {option}: {says}"),
            }
        }
        print!("{}", imported.toml);
        Ok(true)
    }
}
