//! Settings that are tables, `[[pump.live]]`, `[[pump.outputs]]` and `[[tls.certificates]]`, or one line in the environment.

use toml::de::DeValue;

use super::value::{Setting, Wrong};
use super::{CertificateFiles, LiveInput, OutputConfig};

impl Setting for LiveInput {
    const KIND: &str = "a table with name and url (\"udp://@239.1.1.1:5000\", \"rtp://0.0.0.0:5004\"), and, as needed, \
         interface (\"eth0\"), source (\"10.0.0.1\") and delay (\"50ms\" to \"5s\"); as a text \
         \"news=udp://@239.1.1.1:5000?delay=300ms\"";

    fn from_text(text: &str) -> Option<Self> {
        let (name, url) = text.split_once('=')?;
        LiveInput::new(name, url)
    }

    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        let begin = |text: &dyn Fn(&str) -> Option<String>| LiveInput::new(&text("name")?, &text("url")?);
        from_table(value, &["name", "url"], begin, LiveInput::with)
    }

    fn to_toml(&self) -> Option<String> {
        let (name, url) = (("name", self.name.clone()), ("url", self.to_string()));
        Some(table([name, url].into_iter().chain(self.options())))
    }
}

impl Setting for OutputConfig {
    const KIND: &str = "a table with name and, as needed, source (\"10.0.0.1\"), source_port, ttl (1 to 255), dscp (0 to \
         63), interface (\"eth0\"); as a text \"name ttl=8 dscp=34\"";

    fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let output = OutputConfig::new(words.next()?)?;
        words.try_fold(output, |output, word| {
            let (key, value) = word.split_once('=')?;
            output.with(key, value)
        })
    }

    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        from_table(value, &["name"], |text| OutputConfig::new(&text("name")?), OutputConfig::with)
    }

    fn to_toml(&self) -> Option<String> {
        Some(table(self.pairs().into_iter()))
    }
}

impl Setting for CertificateFiles {
    const KIND: &str = "a table with certificate and key, names of PEM files; as a text \"CERTIFICATE KEY\"";

    fn from_text(text: &str) -> Option<Self> {
        let (certificate, key) = text.trim().split_once(char::is_whitespace)?;
        Some(CertificateFiles { certificate: certificate.into(), key: key.trim_start().into() })
    }

    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        let begin = |text: &dyn Fn(&str) -> Option<String>| {
            Some(CertificateFiles { certificate: text("certificate")?.into(), key: text("key")?.into() })
        };
        from_table(value, &["certificate", "key"], begin, |_, _, _| None)
    }

    fn to_toml(&self) -> Option<String> {
        let [certificate, key] = [&self.certificate, &self.key].map(|path| path.display().to_string());
        Some(table([("certificate", certificate), ("key", key)].into_iter()))
    }
}

/// Reads a table: what `begin` makes of the keys that it needs, `with` the others one after the other. Or its text.
fn from_table<T: Setting>(
    value: &DeValue<'_>,
    needed: &[&str],
    begin: impl FnOnce(&dyn Fn(&str) -> Option<String>) -> Option<T>,
    with: impl Fn(T, &str, &str) -> Option<T>,
) -> Option<T> {
    let DeValue::Table(table) = value else { return value.as_str().and_then(T::from_text) };
    let text = |key: &str| table.get(key)?.get_ref().as_str().map(str::to_owned);
    let mut options = table.iter().filter(|(key, _)| !needed.contains(&&**key.get_ref()));
    options.try_fold(begin(&text)?, |made, (key, value)| match value.get_ref() {
        DeValue::String(text) => with(made, key.get_ref(), text),
        DeValue::Integer(number) => with(made, key.get_ref(), number.as_str()),
        _ => None,
    })
}

/// A table in one line. Numbers stand without quotes.
fn table(pairs: impl Iterator<Item = (&'static str, String)>) -> String {
    let pairs = pairs.map(|(key, value)| match value.parse::<u16>() {
        Ok(number) if key != "name" && key != "interface" => format!("{key} = {number}"),
        _ => format!("{key} = {}", toml::Value::from(value)),
    });
    format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
}

/// Sessions name them, so names differ. `what` they are is for the error.
pub(super) fn different_names<T>(
    what: &str,
    name: impl for<'a> Fn(&'a T) -> &'a str,
) -> impl Fn(&Vec<T>) -> Result<(), Wrong> {
    move |all| {
        let names: Vec<&str> = all.iter().map(&name).collect();
        match names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
            Some((index, name)) => {
                Err(Wrong::at(index, format!("got two {what} named {name:?}; allowed: a name each")))
            }
            None => Ok(()),
        }
    }
}
