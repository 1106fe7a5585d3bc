//! Settings that are tables, `[[pump.live]]`, `[[pump.outputs]]` and `[[tls.certificates]]`, or one line in the environment.

use toml::de::DeValue;

use super::output::plain_name;
use super::value::{Given, Setting, Wrong};
use super::{CertificateFiles, LiveInput, OutputConfig};

impl Setting for LiveInput {
    const KIND: &str = "a table with name and url (\"udp://@239.1.1.1:5000\", \"rtp://0.0.0.0:5004\"), and, as needed, \
         interface (\"eth0\"), source (\"10.0.0.1\") and delay (\"50ms\" to \"5s\"); as a text \
         \"news=udp://@239.1.1.1:5000?delay=300ms\"";

    fn from_text(text: &str) -> Option<Self> {
        let (name, url) = text.split_once('=')?;
        LiveInput::new(name, url)
    }

    fn read(given: Given<'_>) -> Result<Self, Wrong> {
        let begin = |[name, url]: [&str; 2]| {
            let at = if plain_name(name).is_none() { "name" } else { "url" };
            LiveInput::new(name, url).ok_or(at)
        };
        read(given, ["name", "url"], begin, LiveInput::with)
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

    fn read(given: Given<'_>) -> Result<Self, Wrong> {
        read(given, ["name"], |[name]| OutputConfig::new(name).ok_or("name"), OutputConfig::with)
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

    fn read(given: Given<'_>) -> Result<Self, Wrong> {
        let begin =
            |[certificate, key]: [&str; 2]| Ok(CertificateFiles { certificate: certificate.into(), key: key.into() });
        read(given, ["certificate", "key"], begin, |_, _, _| None)
    }

    fn to_toml(&self) -> Option<String> {
        let [certificate, key] = [&self.certificate, &self.key].map(|path| path.display().to_string());
        Some(table([("certificate", certificate), ("key", key)].into_iter()))
    }
}

/// Reads a table: what `begin` makes of the keys that it needs, or which of them does not fit; `with` the others one after the
/// other. Or its text. What is wrong with a table is told of the key that it is about.
fn read<T: Setting, const N: usize>(
    given: Given<'_>,
    needed: [&'static str; N],
    begin: impl FnOnce([&str; N]) -> Result<T, &'static str>,
    with: impl Fn(T, &str, &str) -> Option<T>,
) -> Result<T, Wrong> {
    let wrong = |key: &str, found: String| {
        let says = format!("{found}; allowed: {}", T::kind());
        Wrong { element: None, key: Some(key.to_owned()).filter(|key| !key.is_empty()), says }
    };
    let table = match given {
        Given::Value(DeValue::Table(table)) => table,
        Given::Value(value) => {
            return value.as_str().and_then(T::from_text).ok_or_else(|| wrong("", format!("got {given}")));
        }
        Given::Text(text) => return T::from_text(text).ok_or_else(|| wrong("", format!("got {given}"))),
    };
    let unfit = |key: &str| match table.get(key) {
        Some(value) => wrong(key, format!("got {}", Given::Value(value.get_ref()))),
        None => wrong(key, "is missing".to_owned()),
    };
    let mut texts = [""; N];
    for (text, key) in texts.iter_mut().zip(needed) {
        *text = table.get(key).and_then(|value| value.get_ref().as_str()).ok_or_else(|| unfit(key))?;
    }
    let mut options = table.iter().filter(|(key, _)| !needed.contains(&&**key.get_ref()));
    options.try_fold(begin(texts).map_err(unfit)?, |made, (key, value)| {
        let made = match value.get_ref() {
            DeValue::String(text) => with(made, key.get_ref(), text),
            DeValue::Integer(number) => with(made, key.get_ref(), number.as_str()),
            _ => None,
        };
        made.ok_or_else(|| unfit(key.get_ref()))
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
