//! Ways to send as settings: a table each (`[[pump.outputs]]`), or one line in the environment.

use toml::de::DeValue;

use super::value::Setting;
use crate::pump::outputs::OutputConfig;

impl Setting for OutputConfig {
    fn kind() -> String {
        "a table with name and, as needed, source (\"10.0.0.1\"), source_port, ttl (1 to 255), dscp (0 to 63), interface \
         (\"eth0\"); as a text \"name ttl=8 dscp=34\""
            .to_owned()
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let output = OutputConfig::new(words.next()?)?;
        words.try_fold(output, |output, word| {
            let (key, value) = word.split_once('=')?;
            output.with(key, value)
        })
    }

    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        let DeValue::Table(table) = value else { return value.as_str().and_then(Self::from_text) };
        let output = OutputConfig::new(table.get("name")?.get_ref().as_str()?)?;
        let mut options = table.iter().filter(|(key, _)| &**key.get_ref() != "name");
        options.try_fold(output, |output, (key, value)| match value.get_ref() {
            DeValue::String(text) => output.with(key.get_ref(), text),
            DeValue::Integer(number) => output.with(key.get_ref(), number.as_str()),
            _ => None,
        })
    }

    fn to_toml(&self) -> Option<String> {
        let pairs = self.pairs();
        let is_number = |key: &str| matches!(key, "source_port" | "ttl" | "dscp");
        let pairs = pairs.into_iter().map(|(key, value)| match is_number(key) {
            true => format!("{key} = {value}"),
            false => format!("{key} = {}", toml::Value::from(value)),
        });
        Some(format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", ")))
    }
}

/// Sessions name outputs, so names differ.
#[allow(clippy::ptr_arg, reason = "it is called with the setting itself")]
pub(super) fn different_names(outputs: &Vec<OutputConfig>) -> Result<(), String> {
    let is_twice =
        |(index, output): &(usize, &OutputConfig)| outputs[..*index].iter().any(|other| other.name == output.name);
    match outputs.iter().enumerate().find(is_twice) {
        Some((_, output)) => Err(format!("got two outputs named {:?}; allowed: a name each", output.name)),
        None => Ok(()),
    }
}
