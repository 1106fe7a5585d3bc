//! Writes settings as TOML: the reference with every default, and what is in effect.

use std::fmt::{Display, Formatter, Result, Write};

use super::section::{Entry, Table};
use super::{Config, ReflectStream};

impl Config {
    /// The whole documented TOML with the default values. Reading it back gives the default.
    pub fn reference() -> String {
        let mut text = String::from(
            "# All settings of millrace, with their defaults. A file needs only the lines that differ.\n\
             # rooms.idle_timeout is MILLRACE_ROOMS_IDLE_TIMEOUT in the environment, which goes before the file, and\n\
             # --set rooms.idle_timeout=30s on the command line, which goes before both.\n",
        );
        for table in Config::default().tables() {
            text.push('\n');
            push_comment(&mut text, table.about);
            write_line(&mut text, format_args!("[{}]", table.name));
            let name = table.name;
            for Entry { key, doc, slot } in table.entries {
                text.push('\n');
                push_comment(&mut text, doc);
                match slot.to_toml() {
                    Some(value) => write_line(&mut text, format_args!("{key} = {value}")),
                    None => write_line(&mut text, format_args!("# {key} = …  (not set; {})", slot.kind())),
                }
            }
            if name == "reflect" {
                push_elements(&mut text, ReflectStream::default().table());
            }
        }
        text
    }
}

/// What is in effect, as TOML without the comments. Secrets are not shown.
impl Display for Config {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (index, table) in self.clone().tables().into_iter().enumerate() {
            writeln!(f, "{}[{}]", if index == 0 { "" } else { "\n" }, table.name)?;
            for Entry { key, slot, .. } in table.entries {
                match slot.to_toml() {
                    Some(value) => writeln!(f, "{key} = {value}")?,
                    None => writeln!(f, "# {key} is not set")?,
                }
            }
        }
        Ok(())
    }
}

/// What may stand in the tables of a list: comments, as there is none by default.
fn push_elements(text: &mut String, table: Table<'_>) {
    text.push('\n');
    push_comment(text, table.about);
    write_line(text, format_args!("#     [[{}]]", table.name));
    for Entry { key, doc, slot } in table.entries {
        write_line(text, format_args!("#"));
        push_comment(text, doc);
        match slot.to_toml() {
            Some(value) => write_line(text, format_args!("#     {key} = {value}")),
            None => write_line(text, format_args!("#     {key} = …  (not set; {})", slot.kind())),
        }
    }
}

fn push_comment(text: &mut String, lines: &[&str]) {
    for line in lines {
        write_line(text, format_args!("#{line}"));
    }
}

fn write_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a String cannot fail");
}
