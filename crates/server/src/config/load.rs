//! Reads settings from the file, the environment and the flags, in that order, and says where one is wrong.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Config;
use super::section::Table;
use super::value::{Given, Wrong};

/// A setting that cannot be, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where it was set.
    pub set_in: SetIn,
    /// "rooms.idle_timeout"; empty when the file cannot be read at all.
    pub key: String,
    /// What was found, and what is allowed.
    pub message: String,
}

/// Where a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetIn {
    /// File name and line, counted from 1.
    File(String, usize),
    /// The variable's name.
    Environment(String),
    /// The command line: the flag's name.
    Flag(&'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.set_in {
            SetIn::File(name, 0) => write!(f, "{name}: ")?,
            SetIn::File(name, line) => write!(f, "{name}:{line}: ")?,
            SetIn::Environment(variable) => write!(f, "environment, {variable}: ")?,
            SetIn::Flag(name) => write!(f, "{name}: ")?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads the file, then the environment over it, then `section.key=value` overrides.
    ///
    /// # Errors
    /// The first setting that cannot be.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        overrides: &[String],
    ) -> Result<Self, ConfigError> {
        let mut config = Config::default();
        if let Some(path) = file {
            let name = path.display().to_string();
            let unreadable = |error| ConfigError {
                set_in: SetIn::File(name.clone(), 0),
                key: String::new(),
                message: format!("cannot be read: {error}"),
            };
            let text = fs::read_to_string(path).map_err(unreadable)?;
            config.apply_toml(&name, &text)?;
        }
        config.apply_environment(environment)?;
        for each in overrides {
            config.apply_override(each)?;
        }
        Ok(config)
    }

    /// Says which secrets of a file every user of this machine can read; `None` where there are none.
    pub fn exposed(file: &Path) -> Option<String> {
        let is_readable = fs::metadata(file).ok()?.permissions().mode() & 0o004 != 0;
        let mut config = Config::default();
        config.apply_toml("", &fs::read_to_string(file).ok()?).ok()?;
        let of_table = |table: Table<'_>| {
            let secrets = table.entries.into_iter().filter(|entry| entry.slot.is_secret());
            secrets.map(|entry| format!("{}.{}", table.name, entry.key)).collect::<Vec<_>>()
        };
        let secrets: Vec<String> = config.tables().into_iter().flat_map(of_table).collect();
        (is_readable && !secrets.is_empty()).then(|| {
            let file = file.display();
            format!(
                "every user of this machine can read {file}, which has {} (try: chmod o= {file})",
                secrets.join(", ")
            )
        })
    }

    /// Sets what a TOML document says; `name` is for the errors.
    ///
    /// # Errors
    /// The first line that cannot be.
    pub fn apply_toml(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        let error = |offset: usize, key: String, message: String| {
            let line = 1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
            ConfigError { set_in: SetIn::File(name.to_owned(), line), key, message }
        };
        let document = DeTable::parse(text).map_err(|wrong| {
            error(wrong.span().map_or(0, |span| span.start), String::new(), wrong.message().to_owned())
        })?;
        for (table, content) in document.get_ref() {
            let wrong = |message| error(table.span().start, table.get_ref().to_string(), message);
            let DeValue::Table(keys) = content.get_ref() else {
                return Err(wrong(format!("stands outside of a table; tables: {}", self.table_names())));
            };
            let mut section = self.table(table.get_ref()).map_err(wrong)?;
            for (key, value) in keys {
                section.set(key.get_ref(), Given::Value(value.get_ref())).map_err(|wrong| {
                    let element = wrong.element.and_then(|index| value.get_ref().as_array()?.get(index));
                    let keys = element.and_then(|element| element.get_ref().as_table());
                    let of_key = wrong.key.as_ref().and_then(|key| keys?.keys().find(|one| one.get_ref() == key));
                    let at = of_key.map(Spanned::span).or(element.map(Spanned::span)).unwrap_or(key.span());
                    error(at.start, named(table.get_ref(), key.get_ref(), &wrong), wrong.says)
                })?;
            }
        }
        Ok(())
    }

    /// Takes `MILLRACE_ROOMS_IDLE_TIMEOUT` for `rooms.idle_timeout`. A variable that names no section is not ours.
    fn apply_environment(
        &mut self,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        for (variable, text) in environment {
            let Some((table, key)) = variable.strip_prefix("MILLRACE_").and_then(|rest| rest.split_once('_')) else {
                continue;
            };
            let (table, key) = (table.to_ascii_lowercase(), key.to_ascii_lowercase());
            let Ok(mut section) = self.table(&table) else { continue };
            section.set(&key, Given::Text(&text)).map_err(|wrong| ConfigError {
                set_in: SetIn::Environment(variable.clone()),
                key: named(&table, &key, &wrong),
                message: wrong.says,
            })?;
        }
        Ok(())
    }

    /// Takes "rooms.idle_timeout=10s".
    fn apply_override(&mut self, assignment: &str) -> Result<(), ConfigError> {
        let Some((path, text)) = assignment.split_once('=') else {
            let message = "is not of the form section.key=value".to_owned();
            return Err(ConfigError { set_in: SetIn::Flag("--set"), key: assignment.to_owned(), message });
        };
        self.apply_flag("--set", path.trim(), text.trim())
    }

    /// Sets what a flag says, as the environment would; `flag` is for the errors.
    ///
    /// # Errors
    /// When there is no such setting, or it cannot be that.
    pub fn apply_flag(&mut self, flag: &'static str, setting: &str, text: &str) -> Result<(), ConfigError> {
        let error = |key, message| ConfigError { set_in: SetIn::Flag(flag), key, message };
        let (table, key) = setting.split_once('.').unwrap_or(("", setting));
        let mut section = self.table(table).map_err(|message| error(setting.to_owned(), message))?;
        section.set(key, Given::Text(text)).map_err(|wrong| error(named(table, key, &wrong), wrong.says))
    }

    /// Sets a list to what flags say, an element each.
    ///
    /// # Errors
    /// When one of them cannot be.
    pub fn apply_flags(&mut self, flag: &'static str, setting: &str, elements: &[String]) -> Result<(), ConfigError> {
        self.apply_flag(flag, setting, &toml::Value::from(elements.to_vec()).to_string())
    }

    /// The table of that name. The error is a sentence that says which there are.
    fn table(&mut self, name: &str) -> Result<Table<'_>, String> {
        let unknown = format!("no such table; allowed: {}", self.table_names());
        self.tables().into_iter().find(|table| table.name == name).ok_or(unknown)
    }

    fn table_names(&mut self) -> String {
        self.tables().map(|table| table.name).join(", ")
    }
}

/// A setting's name, or an element's: "relay.listen[2]", "reflect.streams[0].pace".
fn named(table: &str, key: &str, wrong: &Wrong) -> String {
    let element = wrong.element.map(|index| format!("[{index}]")).unwrap_or_default();
    let of_element = wrong.key.as_ref().map(|key| format!(".{key}")).unwrap_or_default();
    format!("{table}.{key}{element}{of_element}")
}
