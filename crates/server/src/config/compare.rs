//! Which settings differ between two readings of them.

use super::Config;
use super::section::Entry;

impl Config {
    /// The names of all settings that are otherwise in `other`, as `section.key`. Of secrets, whose values are not compared one
    /// by one, the section alone is named, where nothing else in it differs.
    pub fn differences(&self, other: &Config) -> Vec<String> {
        let (mut ours, mut others) = (self.clone(), other.clone());
        let differs = [
            self.http != other.http,
            self.tls != other.tls,
            self.acme != other.acme,
            self.auth != other.auth,
            self.workers != other.workers,
            self.rtc != other.rtc,
            self.rooms != other.rooms,
            self.livekit != other.livekit,
            self.log != other.log,
            self.traces != other.traces,
            self.pump != other.pump,
            self.relay != other.relay,
            self.reflect != other.reflect,
        ];
        let tables = ours.tables().into_iter().zip(others.tables()).zip(differs);
        let mut names = Vec::new();
        for ((ours, others), _) in tables.filter(|(_, differs)| *differs) {
            let before = names.len();
            for (Entry { key, slot, .. }, other) in ours.entries.iter().zip(&others.entries) {
                if slot.to_toml() != other.slot.to_toml() {
                    names.push(format!("{}.{key}", ours.name));
                }
            }
            if names.len() == before {
                names.push(ours.name.to_owned());
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    #[test]
    fn what_differs_is_named_and_of_secrets_the_section() {
        let old = Config::default();
        assert_eq!(old.differences(&old), Vec::<String>::new());
        let mut new = old.clone();
        new.rooms.viewers_per_stream = 7;
        new.workers.pin = !old.workers.pin;
        new.auth.hs256_secret = Some(Secret("a".repeat(32)));
        let mut newer = new.clone();
        newer.auth.hs256_secret = Some(Secret("b".repeat(32)));
        assert_eq!(old.differences(&new), ["auth.hs256_secret", "workers.pin", "rooms.viewers_per_stream"]);
        assert_eq!(new.differences(&newer), ["auth"]);
    }
}
