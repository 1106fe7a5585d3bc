//! Writes settings as TOML: the reference with every default, and what is in effect.

use std::fmt::{Display, Formatter, Result, Write};

use super::Config;

impl Config {
    /// The whole documented TOML with the default values. Reading it back gives the default.
    pub fn reference() -> String {
        let mut text = String::from(
            "# All settings of millrace, with their defaults. A file needs only the lines that differ.\n\
             # rooms.idle_timeout is MILLRACE_ROOMS_IDLE_TIMEOUT in the environment, which goes before the file, and\n\
             # --set rooms.idle_timeout=30s on the command line, which goes before both.\n",
        );
        let default = Config::default();
        for section in default.sections() {
            text.push('\n');
            push_comment(&mut text, section.about());
            write_line(&mut text, format_args!("[{}]", section.table()));
            for entry in section.entries() {
                text.push('\n');
                push_comment(&mut text, entry.doc);
                match entry.value {
                    Some(value) => write_line(&mut text, format_args!("{} = {value}", entry.key)),
                    None => write_line(&mut text, format_args!("# {} = …  (not set; {})", entry.key, entry.kind)),
                }
            }
        }
        text
    }
}

/// What is in effect, as TOML without the comments. Secrets are not shown.
impl Display for Config {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (index, section) in self.sections().into_iter().enumerate() {
            writeln!(f, "{}[{}]", if index == 0 { "" } else { "\n" }, section.table())?;
            for entry in section.entries() {
                match entry.value {
                    Some(value) => writeln!(f, "{} = {value}", entry.key)?,
                    None => writeln!(f, "# {} is not set", entry.key)?,
                }
            }
        }
        Ok(())
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
