//! Makes a section of the configuration from its table: the struct, its defaults, how keys are set and printed.

use toml::de::DeValue;

use super::value::Setting;

/// One table of the file, with the settings in it.
pub(super) struct Table<'a> {
    pub(super) name: &'static str,
    pub(super) about: &'static [&'static str],
    pub(super) entries: Vec<Entry<'a>>,
}

/// A setting by its name.
pub(super) struct Entry<'a> {
    pub(super) key: &'static str,
    pub(super) doc: &'static [&'static str],
    pub(super) slot: Box<dyn Slot + 'a>,
}

impl Table<'_> {
    /// The setting of that name. The error is a sentence that says which there are.
    pub(super) fn slot(&mut self, key: &str) -> Result<&mut dyn Slot, String> {
        let Some(index) = self.entries.iter().position(|entry| entry.key == key) else {
            let keys: Vec<&str> = self.entries.iter().map(|entry| entry.key).collect();
            return Err(format!("no such key; allowed: {}", keys.join(", ")));
        };
        Ok(&mut *self.entries[index].slot)
    }
}

/// A place for a value of one of the types of settings. Errors are sentences that say what is allowed.
pub(super) trait Slot {
    /// What is allowed, in words.
    fn kind(&self) -> String;
    /// TOML of the value; `None` when it is not set.
    fn to_toml(&self) -> Option<String>;
    /// Sets it from the file.
    fn set(&mut self, value: &DeValue<'_>) -> Result<(), String>;
    /// Sets it from the environment or from a flag.
    fn set_text(&mut self, text: &str) -> Result<(), String>;
}

/// Where a setting lies, and which of its values will do.
pub(super) struct Checked<'a, T, C>(pub(super) &'a mut T, pub(super) C);

impl<T: Setting, C: Fn(&T) -> Result<(), String>> Checked<'_, T, C> {
    fn take(&mut self, read: Option<T>, got: impl Fn() -> String) -> Result<(), String> {
        let read = read.ok_or_else(|| format!("got {}; allowed: {}", got(), T::kind()))?;
        (self.1)(&read)?;
        *self.0 = read;
        Ok(())
    }
}

impl<T: Setting, C: Fn(&T) -> Result<(), String>> Slot for Checked<'_, T, C> {
    fn kind(&self) -> String {
        T::kind()
    }

    fn to_toml(&self) -> Option<String> {
        self.0.to_toml()
    }

    fn set(&mut self, value: &DeValue<'_>) -> Result<(), String> {
        self.take(T::from_value(value), || got(value))
    }

    fn set_text(&mut self, text: &str) -> Result<(), String> {
        self.take(T::from_text(text), || format!("{text:?}"))
    }
}

macro_rules! section {
    ($(#[doc = $about:literal])* $name:ident as $table:literal {
        $($(#[doc = $doc:literal])* $key:ident: $type:ty = $default:expr, $check:expr;)*
    }) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[doc = $doc])* pub $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($key: $default,)* }
            }
        }

        impl $name {
            pub(in crate::config) fn table(&mut self) -> $crate::config::section::Table<'_> {
                use $crate::config::section::{Checked, Entry, Table};
                let entries = vec![$(Entry {
                    key: stringify!($key),
                    doc: &[$($doc),*],
                    slot: Box::new(Checked(&mut self.$key, $check)),
                },)*];
                Table { name: $table, about: &[$($about),*], entries }
            }
        }
    };
}
pub(super) use section;

/// A value as the error message shows it.
fn got(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(_) => "a list with an element that does not fit".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
