//! What the readers of other servers' configurations have in common: our settings as they come together, and notes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::config::Config;

/// What was made of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Ours, which `Config::load` takes.
    pub toml: String,
    /// What is not in it, or is another way.
    pub notes: Vec<Note>,
}

/// What is to be said about a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// From 1; `None` for what is missing.
    pub line: Option<usize>,
    /// The option's name.
    pub option: String,
    /// A sentence.
    pub says: String,
}

/// Settings, each checked when it comes, by section and key.
#[derive(Default)]
pub(crate) struct Settings {
    /// As TOML.
    single: BTreeMap<(&'static str, &'static str), String>,
    lists: BTreeMap<(&'static str, &'static str), Vec<String>>,
}

impl Settings {
    /// Sets a setting to what is its TOML. The error says why it will not do.
    pub(crate) fn set(&mut self, section: &'static str, key: &'static str, value: String) -> Result<(), String> {
        check(section, key, &value)?;
        self.single.insert((section, key), value);
        Ok(())
    }

    /// The same, unless it is set already.
    pub(crate) fn set_first(&mut self, section: &'static str, key: &'static str, value: String) -> Result<(), String> {
        if self.has(section, key) { Ok(()) } else { self.set(section, key, value) }
    }

    /// Adds to a list.
    pub(crate) fn push(&mut self, section: &'static str, key: &'static str, value: String) -> Result<(), String> {
        let list = self.lists.entry((section, key)).or_default();
        list.push(value);
        let checked = check(section, key, &format!("[{}]", list.join(", ")));
        if checked.is_err() {
            list.pop();
        }
        checked
    }

    /// Whether a setting is set, or a list has something in it.
    pub(crate) fn has(&self, section: &'static str, key: &'static str) -> bool {
        let place = (section, key);
        self.single.contains_key(&place) || self.lists.get(&place).is_some_and(|values| !values.is_empty())
    }

    /// All of them, those of one section in the order of their names.
    pub(crate) fn toml(&self, sections: &[&str]) -> String {
        let mut toml = String::new();
        for section in sections {
            let lists = self.lists.iter().filter(|((of, _), values)| of == section && !values.is_empty());
            let lists = lists.map(|((_, key), values)| format!("{key} = [{}]", values.join(", ")));
            let single = self.single.iter().filter(|((of, _), _)| of == section);
            let mut lines: Vec<String> =
                lists.chain(single.map(|((_, key), value)| format!("{key} = {value}"))).collect();
            lines.sort_unstable();
            if !lines.is_empty() {
                let _ = write!(toml, "\n[{section}]\n{}\n", lines.join("\n"));
            }
        }
        toml
    }
}

/// Whether a setting takes a value.
pub(crate) fn check(section: &str, key: &str, value: &str) -> Result<(), String> {
    let checked = Config::default().apply_toml("", &format!("[{section}]\n{key} = {value}"));
    // What it says shows no secret.
    checked.map_err(|error| format!("left out: {section}.{key}: {}", error.message))
}

/// A text as TOML has it.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Reads a number. The error says why the option is left out.
pub(crate) fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.trim().parse().map_err(|_| format!("left out: {value:?} is no number that would do"))
}
