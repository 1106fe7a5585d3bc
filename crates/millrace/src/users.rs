//! `millrace users`: adds, lists and removes users of the relay in their file. No password is ever an argument: other users
//! of the machine see those.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use server::relay::users::Users;

use crate::args::Settings;

#[derive(Args)]
pub struct Command {
    #[command(flatten)]
    settings: Settings,
    /// The file of users; otherwise the one of the settings (relay.users_file).
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Adds a user, or gives one another password, which is read from the terminal or from the first line of the input.
    Add {
        /// Who.
        #[arg(value_name = "NAME")]
        name: String,
        /// Makes a password, and prints it.
        #[arg(long)]
        generate: bool,
    },
    /// Lists all names.
    List,
    /// Removes a user. Allocations that he has live out.
    Remove {
        /// Who.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

pub const EXAMPLES: &str = "\
Examples:
  millrace users --config millrace.toml add ada
  millrace users --file users.toml add ada --generate
  millrace users --file users.toml --set relay.realm=example.org list
  millrace users --config millrace.toml remove ada

The file has keys, not passwords, for the realm of the settings (relay.realm). A server that runs reads it again by itself.";

impl Command {
    pub fn run(&self) -> anyhow::Result<bool> {
        let relay = crate::load(&self.settings)?.relay;
        let path = self.file.clone().or(relay.users_file.map(PathBuf::from));
        let path = path.context("no file of users: give --file FILE, or set relay.users_file")?;
        match &self.what {
            What::Add { name, generate } => {
                let password = if *generate { server::relay::users::password()? } else { read_password()? };
                let is_new = Users::change(&path, &relay.realm, |users| users.add(name, &password))?;
                eprintln!("{}", if is_new { "added" } else { "has another password now" });
                if *generate {
                    println!("{password}");
                }
            }
            What::List => Users::read(&path, &relay.realm)?.names().for_each(|name| println!("{name}")),
            What::Remove { name } => {
                let was_there = Users::change(&path, &relay.realm, |users| Ok(users.remove(name)))?;
                ensure!(was_there, "there is no user {name:?} in {}", path.display());
                eprintln!("removed");
            }
        }
        Ok(true)
    }
}

fn read_password() -> anyhow::Result<String> {
    let input = io::stdin();
    let mut line = String::new();
    if input.is_terminal() {
        eprint!("Password: ");
        let _silence = Silence::begin()?;
        input.lock().read_line(&mut line)?;
        eprintln!();
    } else {
        input.lock().read_line(&mut line)?;
    }
    let password = line.strip_suffix('\n').unwrap_or(&line);
    Ok(password.strip_suffix('\r').unwrap_or(password).to_owned())
}

/// While it is there the terminal shows nothing of what is typed.
struct Silence(Termios);

impl Silence {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Silence(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // When the terminal is gone, so is what it would show.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}
