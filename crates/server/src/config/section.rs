//! Makes a section of the configuration from its table: the struct, its defaults, how keys are set and printed.

use toml::de::DeValue;

use super::value::Setting;

/// One table of the file.
pub(super) trait Section {
    fn table(&self) -> &'static str;
    fn about(&self) -> &'static [&'static str];
    fn keys(&self) -> &'static [&'static str];
    /// Sets a key from the file. The error is a sentence that says what is allowed.
    fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), String>;
    /// Sets a key from the environment or from a flag.
    fn set_text(&mut self, key: &str, text: &str) -> Result<(), String>;
    fn entries(&self) -> Vec<Entry>;
}

/// A setting as it is printed.
pub(super) struct Entry {
    pub key: &'static str,
    pub doc: &'static [&'static str],
    /// What is allowed, in words.
    pub kind: String,
    /// TOML of the value; `None` when it is not set.
    pub value: Option<String>,
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

        impl $crate::config::section::Section for $name {
            fn table(&self) -> &'static str {
                $table
            }

            fn about(&self) -> &'static [&'static str] {
                &[$($about),*]
            }

            fn keys(&self) -> &'static [&'static str] {
                &[$(stringify!($key)),*]
            }

            fn set(&mut self, key: &str, value: &toml::de::DeValue<'_>) -> Result<(), String> {
                use $crate::config::section::{from_value, no_such_key};
                match key {
                    $(stringify!($key) => self.$key = from_value(value, $check)?,)*
                    _ => return Err(no_such_key(self.keys())),
                }
                Ok(())
            }

            fn set_text(&mut self, key: &str, text: &str) -> Result<(), String> {
                use $crate::config::section::{from_text, no_such_key};
                match key {
                    $(stringify!($key) => self.$key = from_text(text, $check)?,)*
                    _ => return Err(no_such_key(self.keys())),
                }
                Ok(())
            }

            fn entries(&self) -> Vec<$crate::config::section::Entry> {
                use $crate::config::value::Setting;
                vec![$($crate::config::section::Entry {
                    key: stringify!($key),
                    doc: &[$($doc),*],
                    kind: <$type>::kind(),
                    value: self.$key.to_toml(),
                },)*]
            }
        }
    };
}
pub(super) use section;

pub(super) fn from_value<T: Setting>(
    value: &DeValue<'_>,
    check: impl Fn(&T) -> Result<(), String>,
) -> Result<T, String> {
    let read = T::from_value(value).ok_or_else(|| format!("got {}; allowed: {}", got(value), T::kind()))?;
    check(&read).map(|()| read)
}

pub(super) fn from_text<T: Setting>(text: &str, check: impl Fn(&T) -> Result<(), String>) -> Result<T, String> {
    let read = T::from_text(text).ok_or_else(|| format!("got {text:?}; allowed: {}", T::kind()))?;
    check(&read).map(|()| read)
}

pub(super) fn no_such_key(keys: &[&str]) -> String {
    format!("no such key; allowed: {}", keys.join(", "))
}

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
