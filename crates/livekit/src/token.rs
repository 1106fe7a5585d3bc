//! Who may do what in which room: JSON Web Tokens (RFC 7519) signed with HS256, as LiveKit's SDKs make them.
//!
//! A token names the key that signed it (`iss`) and who it is for (`sub`), and has a claim `video` with the grants.
//! What a grant does not say about publishing and subscribing is allowed; everything else has to be said.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use livekit_protocol::{ParticipantPermission, TrackSource, participant_info};
use serde::{Deserialize, Serialize};

use crate::config::Now;

/// How far the clocks of who signs and who checks may be apart, as LiveKit has it.
const LEEWAY: Duration = Duration::from_secs(60);

/// The API keys and their secrets.
pub struct Keys {
    secrets: HashMap<String, Secret>,
    /// The one that our own tokens are signed with.
    first: String,
}

struct Secret {
    checks: DecodingKey,
    signs: EncodingKey,
}

/// What a token says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Claims {
    /// The API key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub iss: String,
    /// The participant's identity.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sub: String,
    /// Seconds since 1970 from which on it does not hold any more.
    pub exp: u64,
    /// Seconds since 1970 before which it does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    /// The participant's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What kind of participant it is: "standard", "agent", "egress" and so on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// More of its kind: "cloud_agent", "forwarded" and so on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kind_details: Vec<String>,
    /// The participant's metadata.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub metadata: String,
    /// The participant's attributes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// What it allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video: Option<VideoGrant>,
    /// How the room is made, when its bearer opens it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room_config: Option<RoomConfig>,
    /// Of the body that is sent with it, in base64: webhooks have it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sha256: String,
}

/// What a token allows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "LiveKit's grants, by their names")]
pub struct VideoGrant {
    #[serde(skip_serializing_if = "is_false")]
    pub room_create: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub room_list: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub room_record: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub room_admin: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub room_join: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub room: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub destination_room: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_publish: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_subscribe: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_publish_data: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub can_publish_sources: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_update_own_metadata: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_subscribe_metrics: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_manage_agent_session: Option<bool>,
    #[serde(skip_serializing_if = "is_false")]
    pub hidden: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub recorder: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub agent: bool,
}

/// How a room is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoomConfig {
    /// Seconds that it stays open when nobody joins; 0 is as the server has it.
    #[serde(alias = "empty_timeout")]
    pub empty_timeout: u32,
    /// Seconds that it stays open when everybody has left; 0 is as the server has it.
    #[serde(alias = "departure_timeout")]
    pub departure_timeout: u32,
    /// Participants at a time; 0 is as the server has it.
    #[serde(alias = "max_participants")]
    pub max_participants: u32,
    /// Whatever the application wants to say of it.
    pub metadata: String,
}

/// What is wrong with a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum TokenError {
    #[error("this needs a token: send the header \"Authorization: Bearer …\", or access_token in the query")]
    Missing,
    #[error("the token is not a JSON Web Token signed with HS256")]
    Malformed,
    #[error("the token is signed by an API key that is not known here (iss)")]
    UnknownKey,
    #[error("the token is not signed with its API key's secret")]
    BadSignature,
    #[error("the token has no exp, and so would hold for ever")]
    NoExpiry,
    #[error("the token has expired (exp)")]
    Expired,
    #[error("the token is not valid yet (nbf)")]
    NotYet,
    #[error("there is no API key")]
    NoKeys,
}

impl Keys {
    /// Takes keys and their secrets; the first one signs what the server gives out.
    ///
    /// # Errors
    /// Without any.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, TokenError> {
        let (mut first, mut secrets) = (None, HashMap::new());
        for (key, secret) in pairs {
            first.get_or_insert_with(|| key.clone());
            let secret = secret.as_bytes();
            let secret = Secret { checks: DecodingKey::from_secret(secret), signs: EncodingKey::from_secret(secret) };
            secrets.insert(key, secret);
        }
        Ok(Keys { secrets, first: first.ok_or(TokenError::NoKeys)? })
    }

    /// Reads a token.
    ///
    /// # Errors
    /// When it is none, is signed by nobody who may, or does not hold at this time.
    pub fn verify(&self, token: &str, now: Now) -> Result<Claims, TokenError> {
        let mut validation = Validation::new(Algorithm::HS256);
        // When it holds is looked at below: nobody in here asks for the time.
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
        validation.required_spec_claims.clear();
        let issuer = issuer(token)?;
        let secret = self.secrets.get(&issuer).ok_or(TokenError::UnknownKey)?;
        let decoded = jsonwebtoken::decode::<Claims>(token, &secret.checks, &validation);
        let claims = decoded.map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => TokenError::BadSignature,
            _ => TokenError::Malformed,
        })?;
        let claims = claims.claims;
        if claims.exp == 0 {
            return Err(TokenError::NoExpiry);
        }
        if now.unix.as_secs() >= claims.exp.saturating_add(LEEWAY.as_secs()) {
            return Err(TokenError::Expired);
        }
        if claims.nbf.is_some_and(|nbf| now.unix.as_secs().saturating_add(LEEWAY.as_secs()) < nbf) {
            return Err(TokenError::NotYet);
        }
        Ok(claims)
    }

    /// Signs with the first key, and names it.
    ///
    /// # Panics
    /// Never: what is signed is text and numbers.
    pub fn sign(&self, mut claims: Claims) -> String {
        claims.iss.clone_from(&self.first);
        let key = &self.secrets[&self.first].signs;
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, key).expect("claims are text and numbers")
    }
}

/// Who says to have signed it. That is looked at before the signature, to know by which secret it is checked.
fn issuer(token: &str) -> Result<String, TokenError> {
    use base64::Engine as _;
    let mut parts = token.split('.');
    let claims = parts.nth(1).ok_or(TokenError::Malformed)?;
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).map_err(|_| TokenError::Malformed)?;
    let claims: Claims = serde_json::from_slice(&claims).map_err(|_| TokenError::Malformed)?;
    Ok(claims.iss)
}

impl Claims {
    /// What lets somebody into a room, to publish, to watch and to send data, until `exp` (seconds since 1970).
    pub fn to_join(room: &str, identity: &str, name: &str, exp: u64) -> Self {
        let video = VideoGrant {
            room_join: true,
            room: room.to_owned(),
            can_update_own_metadata: Some(true),
            ..VideoGrant::default()
        };
        Claims { sub: identity.to_owned(), name: name.to_owned(), exp, video: Some(video), ..Claims::default() }
    }

    /// What kind of participant it makes.
    pub fn participant_kind(&self) -> participant_info::Kind {
        use participant_info::Kind;
        match self.kind.as_str() {
            "ingress" => Kind::Ingress,
            "egress" => Kind::Egress,
            "sip" => Kind::Sip,
            "agent" => Kind::Agent,
            "connector" => Kind::Connector,
            "bridge" => Kind::Bridge,
            _ => Kind::Standard,
        }
    }

    /// What more is known of its kind. Names that are not known say nothing.
    pub fn kind_details(&self) -> Vec<participant_info::KindDetail> {
        let known = |name: &String| participant_info::KindDetail::from_str_name(&name.to_uppercase());
        self.kind_details.iter().filter_map(known).collect()
    }
}

impl VideoGrant {
    /// Whether its bearer is an admin of this room.
    pub fn is_admin_of(&self, room: &str) -> bool {
        self.room_admin && self.room == room
    }

    /// What a participant with this grant may do.
    #[allow(deprecated, reason = "older clients read these fields")]
    pub fn permission(&self) -> ParticipantPermission {
        ParticipantPermission {
            can_subscribe: self.can_subscribe.unwrap_or(true),
            can_publish: self.can_publish.unwrap_or(true),
            can_publish_data: self.can_publish_data.unwrap_or(true),
            can_publish_sources: self.can_publish_sources.iter().map(|name| source(name) as i32).collect(),
            hidden: self.hidden,
            recorder: self.recorder,
            can_update_metadata: self.can_update_own_metadata.unwrap_or(false),
            agent: self.agent,
            can_subscribe_metrics: self.can_subscribe_metrics.unwrap_or(false),
            can_manage_agent_session: self.can_manage_agent_session.unwrap_or(false),
        }
    }

    /// The grant to join a room with these permissions.
    #[allow(deprecated, reason = "older clients read these fields")]
    pub fn to_join(room: &str, permission: &ParticipantPermission) -> Self {
        let sources = permission.can_publish_sources.iter().filter_map(|source| TrackSource::try_from(*source).ok());
        VideoGrant {
            room_join: true,
            room: room.to_owned(),
            can_publish: Some(permission.can_publish),
            can_subscribe: Some(permission.can_subscribe),
            can_publish_data: Some(permission.can_publish_data),
            can_publish_sources: sources.map(|source| source.as_str_name().to_lowercase()).collect(),
            can_update_own_metadata: Some(permission.can_update_metadata),
            can_subscribe_metrics: Some(permission.can_subscribe_metrics),
            can_manage_agent_session: Some(permission.can_manage_agent_session),
            hidden: permission.hidden,
            recorder: permission.recorder,
            agent: permission.agent,
            ..VideoGrant::default()
        }
    }
}

/// A name that is not known is no source that anybody publishes.
fn source(name: &str) -> TrackSource {
    TrackSource::from_str_name(&name.to_uppercase()).unwrap_or(TrackSource::Unknown)
}

fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn keys() -> Keys {
        Keys::new([("first".into(), "secret".into()), ("second".into(), "other".into())]).expect("keys")
    }

    fn at(unix: u64) -> Now {
        Now { at: Instant::now(), unix: Duration::from_secs(unix) }
    }

    fn claims() -> Claims {
        let video = VideoGrant { room_join: true, room: "a".into(), ..VideoGrant::default() };
        Claims { sub: "eve".into(), exp: 1000, nbf: Some(100), video: Some(video), ..Claims::default() }
    }

    #[test]
    fn what_is_signed_is_read_again() {
        let token = keys().sign(claims());
        let read = keys().verify(&token, at(500)).expect("a token");
        assert_eq!(read, Claims { iss: "first".into(), ..claims() });
    }

    #[test]
    fn each_key_checks_with_its_own_secret() {
        let second = Keys::new([("second".into(), "other".into())]).expect("keys");
        assert!(keys().verify(&second.sign(claims()), at(500)).is_ok());
        let forged = Keys::new([("first".into(), "other".into())]).expect("keys");
        assert_eq!(keys().verify(&forged.sign(claims()), at(500)), Err(TokenError::BadSignature));
        let unknown = Keys::new([("third".into(), "secret".into())]).expect("keys");
        assert_eq!(keys().verify(&unknown.sign(claims()), at(500)), Err(TokenError::UnknownKey));
    }

    #[test]
    fn a_token_holds_between_nbf_and_exp_and_a_minute_around() {
        let token = keys().sign(claims());
        assert_eq!(keys().verify(&token, at(39)), Err(TokenError::NotYet));
        assert!(keys().verify(&token, at(40)).is_ok());
        assert!(keys().verify(&token, at(1059)).is_ok());
        assert_eq!(keys().verify(&token, at(1060)), Err(TokenError::Expired));
    }

    #[test]
    fn a_token_without_exp_does_not_hold() {
        let token = keys().sign(Claims { exp: 0, ..claims() });
        assert_eq!(keys().verify(&token, at(500)), Err(TokenError::NoExpiry));
    }

    #[test]
    fn what_is_no_token_is_refused_without_a_panic() {
        for text in ["", ".", "..", "a.b.c", "eyJhbGciOiJub25lIn0.eyJpc3MiOiJmaXJzdCJ9."] {
            assert!(keys().verify(text, at(500)).is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_that_says_none_as_its_algorithm_is_refused() {
        use base64::Engine as _;
        let base64 = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
        let token = format!("{}.{}.", base64(r#"{"alg":"none"}"#), base64(r#"{"iss":"first","exp":1000}"#));
        assert_eq!(keys().verify(&token, at(500)), Err(TokenError::Malformed));
    }

    #[test]
    fn what_a_grant_does_not_say_is_allowed_but_for_metadata() {
        let permission = VideoGrant::default().permission();
        assert!(permission.can_publish && permission.can_subscribe && permission.can_publish_data);
        assert!(!permission.can_update_metadata && !permission.hidden);
    }

    #[test]
    fn a_grant_made_of_a_permission_gives_that_permission() {
        let sources = vec!["camera".to_owned(), "screen_share".to_owned()];
        let grant =
            VideoGrant { can_publish_sources: sources.clone(), can_publish_data: Some(false), ..Default::default() };
        let again = VideoGrant::to_join("a", &grant.permission());
        assert_eq!(again.permission(), grant.permission());
        assert_eq!(again.can_publish_sources, sources);
    }
}
