//! Time-limited credentials for clients of the relay, as everybody's TURN servers take them.
//!
//! In: a shared secret, who asks, the time. Out: a name that says until when it holds, and the password that belongs to it.
//! Source: draft-uberti-behave-turn-rest-00 §2.2: the name is `until:who`, the password Base64(HMAC-SHA-1(secret, name)).

use std::time::Duration;

use relay::auth::Secret;

/// What makes them.
pub struct Issuer {
    secret: Secret,
    /// For how long they hold at most.
    lifetime_max: Duration,
    /// Where the relay is, as clients are told (RFC 7065).
    uris: Vec<String>,
}

/// What a client needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// What it calls itself.
    pub username: String,
    /// What it knows.
    pub password: String,
    /// For how long it holds.
    pub lifetime: Duration,
    /// Where to go with it.
    pub uris: Vec<String>,
}

impl Issuer {
    /// Credentials of one secret.
    pub fn new(secret: &str, lifetime_max: Duration, uris: Vec<String>) -> Self {
        Issuer { secret: Secret::new(secret.as_bytes()), lifetime_max, uris }
    }

    /// One for `who`, which must fit a user name (`is_name`). It is `now` since 1970.
    pub fn make(&self, who: &str, wanted: Option<Duration>, now: Duration) -> Credential {
        let lifetime = wanted.map_or(self.lifetime_max, |wanted| wanted.min(self.lifetime_max));
        let username = format!("{}:{who}", (now + lifetime).as_secs());
        let password = self.secret.password(&username);
        Credential { username, password, lifetime, uris: self.uris.clone() }
    }
}

/// Whether somebody can be called so: what is no name is refused, and not changed into another's.
pub fn is_name(who: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&who.len()) && !who.chars().any(char::is_control)
}

/// A user name has 508 bytes at most (RFC 8489 §14.3), of which the time needs some.
const NAME_BYTES_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    /// The password is what `printf %s 1700003600:alice | openssl dgst -sha1 -hmac north -binary | base64` says.
    #[test]
    fn a_credential_says_until_when_it_holds_and_for_whom() {
        let hour = Duration::from_secs(3_600);
        let uri = "turn:192.0.2.1:3478?transport=udp".to_owned();
        let issuer = Issuer::new("north", hour, vec![uri.clone()]);
        let now = Duration::from_secs(1_700_000_000);
        let made = issuer.make("alice", None, now);
        assert_eq!((made.username.as_str(), made.lifetime), ("1700003600:alice", hour));
        assert_eq!(made.password, "wjwSXO2ch1B6VaLTLMy2Avn5O9o=");
        assert_eq!(made.uris, [uri]);
        let short = issuer.make("bob", Some(Duration::from_secs(60)), now);
        assert_eq!((short.username.as_str(), short.lifetime.as_secs()), ("1700000060:bob", 60));
        assert_eq!(issuer.make("bob", Some(10 * hour), now).lifetime, hour, "no longer than allowed");
    }

    #[test]
    fn who_has_no_name_gets_none() {
        assert!(is_name("alice") && is_name("dürer:7"));
        for who in ["", "a\nb", "a\u{7f}", &"x".repeat(401)] {
            assert!(!is_name(who), "{who:?}");
        }
    }
}
