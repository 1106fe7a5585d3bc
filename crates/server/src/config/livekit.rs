//! `[livekit]`: rooms in LiveKit's protocol.

use std::fmt;
use std::time::Duration;

use titles::Url;

use super::secs;
use super::section::section;
use super::tables::different_names;
use super::value::{Given, NOT_SHOWN, any, between, quoted};
use crate::config::value::Setting;

section! {
    /// Rooms that LiveKit's SDKs join, at the same address as HTTP (ws:// or wss://). They are there when there is a key.
    Livekit as "livekit" {
        /// API keys and their secrets, "id: secret" each, with which applications sign tokens (JWT, HS256). What the server gives out
        /// is signed with the first. Empty: there are no such rooms, but with `auth.dev` there is the key "devkey: secret".
        keys: Vec<ApiKey> = vec![], different_names("keys", |key: &ApiKey| &key.id);
        /// Who joins a room opens it, when it is not there. Otherwise applications do (CreateRoom), or who has a token for that.
        auto_create: bool = livekit().auto_create, any;
        /// A room that nobody has joined closes after this, where its maker does not say otherwise.
        empty_timeout: Duration = livekit().empty_timeout, between(secs(0), secs(604_800));
        /// A room that everybody has left closes after this, likewise.
        departure_timeout: Duration = livekit().departure_timeout, between(secs(0), secs(604_800));
        /// Participants of a room at most, likewise; 0 is 20,000.
        participants_max: u32 = livekit().participants_max, between(0, 20_000);
        /// Applications may unmute what a participant has muted (MutePublishedTrack).
        remote_unmute: bool = livekit().remote_unmute, any;
        /// In a room of so many participants, those who may not publish are not told of to each other; 0: always.
        livestream_from: usize = livekit().livestream_from, between(0, 20_000);
        /// So many microphones of a room are heard at a time, the loudest by what their clients say (RFC 6464); 0: all.
        loudest: usize = livekit().loudest, between(0, 20_000);
        /// Signalling connections at a time. Further ones are refused (503).
        connections_max: usize = livekit().connections_max, between(1, 1_000_000);
        /// Where applications hear what happens: each event is sent (POST) to each of these http and https URLs, signed with the
        /// first key.
        webhooks: Vec<Url> = vec![], any;
        /// What clients and webhooks are told as the name of this machine.
        node: String = livekit().node, any;
        /// What clients are told as the region in which it is.
        region: String = livekit().region, any;
    }
}

/// An application's key.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// What tokens say who has signed them (`iss`).
    pub id: String,
    /// With what.
    pub secret: String,
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({:?}, …)", self.id)
    }
}

impl Setting for ApiKey {
    const KIND: &str = "\"id: secret\"";

    fn from_text(text: &str) -> Option<Self> {
        let (id, secret) = text.split_once(':').map(|(id, secret)| (id.trim(), secret.trim()))?;
        (!id.is_empty() && !secret.is_empty()).then(|| ApiKey { id: id.to_owned(), secret: secret.to_owned() })
    }

    fn shown(given: Given<'_>) -> String {
        let text = match given {
            Given::Text(text) => Some(text),
            Given::Value(value) => value.as_str(),
        };
        match text.and_then(|text| text.split_once(':')) {
            Some((id, _)) if !id.trim().is_empty() => format!("an entry of {:?}, which is not shown", id.trim()),
            _ => NOT_SHOWN.to_owned(),
        }
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(&format!("{}: (not shown)", self.id)))
    }

    fn is_secret(&self) -> bool {
        true
    }
}

/// What these rooms do.
fn livekit() -> crate::livekit::Settings {
    crate::livekit::Settings::default()
}
