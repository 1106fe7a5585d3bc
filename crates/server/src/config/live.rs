//! Live inputs as settings: a table each (`[[pump.live]]`), or one line in the environment.

use toml::de::DeValue;

use super::value::Setting;
use crate::pump::live::LiveInput;

impl Setting for LiveInput {
    fn kind() -> String {
        "a table with name and url (\"udp://@239.1.1.1:5000\", \"rtp://0.0.0.0:5004\"), and, as needed, interface (\"eth0\"), \
         source (\"10.0.0.1\") and delay (\"50ms\" to \"5s\"); as a text \"news=udp://@239.1.1.1:5000?delay=300ms\""
            .to_owned()
    }

    fn from_text(text: &str) -> Option<Self> {
        let (name, url) = text.split_once('=')?;
        LiveInput::new(name, url)
    }

    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        let DeValue::Table(table) = value else { return value.as_str().and_then(Self::from_text) };
        let text = |key| table.get(key)?.get_ref().as_str();
        let mut options = table.iter().filter(|(key, _)| !matches!(&**key.get_ref(), "name" | "url"));
        options.try_fold(LiveInput::new(text("name")?, text("url")?)?, |input, (key, value)| {
            input.with(key.get_ref(), value.get_ref().as_str()?)
        })
    }

    fn to_toml(&self) -> Option<String> {
        let (name, url) = (("name", self.name.clone()), ("url", self.to_string()));
        let all = [name, url].into_iter().chain(self.options());
        let pairs: Vec<String> = all.map(|(key, value)| format!("{key} = {}", toml::Value::from(value))).collect();
        Some(format!("{{ {} }}", pairs.join(", ")))
    }
}

/// Sessions name inputs, so names differ.
#[allow(clippy::ptr_arg, reason = "it is called with the setting itself")]
pub(super) fn different_names(inputs: &Vec<LiveInput>) -> Result<(), String> {
    let twice =
        inputs.iter().enumerate().find(|(index, input)| inputs[..*index].iter().any(|other| other.name == input.name));
    match twice {
        Some((_, input)) => Err(format!("got two inputs named {:?}; allowed: a name each", input.name)),
        None => Ok(()),
    }
}
