//! Makes a section of the configuration from its table: the struct, its defaults, how keys are set and printed.

use super::value::{Given, Setting, Wrong};

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
    fn slot(&mut self, key: &str) -> Result<&mut dyn Slot, String> {
        let Some(index) = self.entries.iter().position(|entry| entry.key == key) else {
            let keys: Vec<&str> = self.entries.iter().map(|entry| entry.key).collect();
            return Err(format!("no such key; allowed: {}", keys.join(", ")));
        };
        Ok(&mut *self.entries[index].slot)
    }

    /// Sets the setting of that name.
    pub(super) fn set(&mut self, key: &str, given: Given<'_>) -> Result<(), Wrong> {
        self.slot(key)?.set(given)
    }
}

/// A place for a value of one of the types of settings. Errors are sentences that say what is allowed.
pub(super) trait Slot {
    /// What is allowed, in words.
    fn kind(&self) -> String;
    /// TOML of the value; `None` when it is not set.
    fn to_toml(&self) -> Option<String>;
    /// Whether it is set to what nobody else may know.
    fn is_secret(&self) -> bool;
    /// Sets it.
    fn set(&mut self, given: Given<'_>) -> Result<(), Wrong>;
}

/// Where a setting lies, and which of its values will do.
pub(super) struct Checked<'a, T, C>(pub(super) &'a mut T, pub(super) C);

impl<T: Setting, E: Into<Wrong>, C: Fn(&T) -> Result<(), E>> Slot for Checked<'_, T, C> {
    fn kind(&self) -> String {
        T::kind()
    }

    fn to_toml(&self) -> Option<String> {
        self.0.to_toml()
    }

    fn is_secret(&self) -> bool {
        self.0.is_secret()
    }

    fn set(&mut self, given: Given<'_>) -> Result<(), Wrong> {
        let read = T::read(given)?;
        (self.1)(&read).map_err(Into::into)?;
        *self.0 = read;
        Ok(())
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
