//! How somebody comes in: what a token and the address of a signalling connection say.
//!
//! v0 (`/rtc`) has its parameters in the query; v1 (`/rtc/v1`) has a `JoinRequest` in base64 there, maybe packed with
//! gzip. Both make a `Join`.

use std::collections::BTreeMap;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use flate2::read::GzDecoder;
use livekit_protocol::{
    AddTrackRequest, ClientInfo, IceServer, JoinRequest, SessionDescription, SyncState, WrappedJoinRequest,
    client_info, wrapped_join_request,
};
use prost::Message as _;

use crate::token::{Claims, VideoGrant};
use crate::{limits, participant};

/// Somebody who wants to come in. The token has been checked.
#[derive(Clone, Debug, Default)]
pub struct Join {
    /// What the token says.
    pub claims: Claims,
    /// With what.
    pub client: ClientInfo,
    /// Whether one peer connection is for both directions (v1).
    pub is_single: bool,
    /// Whether it has no data channels, as who comes by WHIP or WHEP.
    pub without_data: bool,
    /// Whether it makes one offer alone, so that what it gets then stays in its codec.
    pub describes_once: bool,
    /// Whether all tracks are subscribed to, without asking.
    pub auto_subscribe: bool,
    /// Whether the client says of each track how large it is shown.
    pub adaptive_stream: bool,
    /// Whether it comes back after its signalling connection was lost; then with its sid, if it says so.
    pub reconnect: Option<String>,
    /// Replaces the token's metadata, when not empty.
    pub metadata: String,
    /// Added to the token's attributes.
    pub attributes: BTreeMap<String, String>,
    /// Tracks that it will publish, before anything else.
    pub add_tracks: Vec<AddTrackRequest>,
    /// Its offer.
    pub offer: Option<SessionDescription>,
    /// What it had before, when it comes back.
    pub sync_state: Option<SyncState>,
    /// Relays that it may use.
    pub ice_servers: Vec<IceServer>,
}

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum Refused {
    #[error("the token does not let its bearer join a room (video.roomJoin)")]
    MayNotJoin,
    #[error("the token does not say who its bearer is (sub)")]
    NoIdentity,
    #[error("no room is named (video.room)")]
    NoRoom,
    #[error("identity, name or the room's name has more than {} bytes", limits::NAME_BYTES_MAX)]
    NameTooLong,
    #[error("the token does not let its bearer change metadata and attributes (video.canUpdateOwnMetadata)")]
    MayNotUpdateMetadata,
    #[error("metadata or attributes are too long")]
    MetadataTooLong,
    // Clients tell it by these words from a server that has no such path.
    #[error("requested room does not exist")]
    NoSuchRoom,
    #[error("the room is full")]
    RoomFull,
    #[error("there are too many rooms")]
    TooManyRooms,
    #[error("join_request is missing")]
    NoJoinRequest,
    #[error("join_request cannot be read")]
    BadJoinRequest,
    #[error("join_request has more than {} bytes", limits::JOIN_BYTES_MAX)]
    JoinRequestTooLong,
    #[error("attributes in the query are not base64 of a JSON object of strings")]
    BadAttributes,
}

impl Refused {
    /// The HTTP status that says it.
    pub fn status(self) -> u16 {
        match self {
            Refused::MayNotJoin | Refused::MayNotUpdateMetadata => 401,
            Refused::NoSuchRoom => 404,
            Refused::RoomFull | Refused::TooManyRooms => 429,
            _ => 400,
        }
    }
}

impl Join {
    /// What the client is, by the `User-Agent` of its request, where it does not say so itself.
    #[must_use]
    pub fn by(mut self, user_agent: &str) -> Self {
        see_browser(&mut self.client, user_agent);
        self
    }

    /// Reads the query of `/rtc`, decoded; a key that comes twice counts as it comes first.
    ///
    /// # Errors
    /// `BadAttributes`.
    pub fn from_query(claims: Claims, query: &[(String, String)]) -> Result<Self, Refused> {
        let value = |key: &str| query.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value.as_str());
        let is_true = |key: &str| matches!(value(key), "1" | "true");
        let attributes = match value("attributes") {
            "" => BTreeMap::new(),
            text => {
                let json = from_base64(text).ok_or(Refused::BadAttributes)?;
                serde_json::from_slice(&json).map_err(|_| Refused::BadAttributes)?
            }
        };
        Ok(Join {
            claims,
            client: client(value),
            auto_subscribe: value("auto_subscribe").is_empty() || is_true("auto_subscribe"),
            adaptive_stream: is_true("adaptive_stream"),
            reconnect: is_true("reconnect").then(|| value("sid").to_owned()),
            attributes,
            ..Join::default()
        })
    }

    /// Reads the `join_request` of `/rtc/v1`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn from_request(claims: Claims, text: &str) -> Result<Self, Refused> {
        if text.is_empty() {
            return Err(Refused::NoJoinRequest);
        }
        let wrapped = from_base64(text).ok_or(Refused::BadJoinRequest)?;
        let wrapped = WrappedJoinRequest::decode(wrapped.as_slice()).map_err(|_| Refused::BadJoinRequest)?;
        let bytes = match wrapped.compression() {
            wrapped_join_request::Compression::None => wrapped.join_request,
            wrapped_join_request::Compression::Gzip => unpacked(&wrapped.join_request)?,
        };
        if bytes.len() > limits::JOIN_BYTES_MAX {
            return Err(Refused::JoinRequestTooLong);
        }
        let request = JoinRequest::decode(bytes.as_slice()).map_err(|_| Refused::BadJoinRequest)?;
        let settings = request.connection_settings.unwrap_or_default();
        Ok(Join {
            claims,
            client: request.client_info.unwrap_or_default(),
            is_single: true,
            without_data: false,
            describes_once: false,
            auto_subscribe: settings.auto_subscribe,
            adaptive_stream: settings.adaptive_stream,
            reconnect: request.reconnect.then_some(request.participant_sid),
            metadata: request.metadata,
            attributes: request.participant_attributes.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
            add_tracks: request.add_track_requests,
            offer: request.publisher_offer,
            sync_state: request.sync_state,
            ice_servers: Vec::new(),
        })
    }

    /// The room that it is about.
    pub fn room(&self) -> &str {
        self.claims.video.as_ref().map_or("", |video| &video.room)
    }

    /// Whether it makes a recorder or an agent, which does not count in a room.
    pub(crate) fn is_dependent(&self) -> bool {
        let permission = self.claims.video.as_ref().map(VideoGrant::permission).unwrap_or_default();
        participant::is_dependent(self.claims.participant_kind(), &permission)
    }

    /// Looks at all that does not depend on what rooms there are.
    ///
    /// # Errors
    /// When somebody like this is not let into any room.
    pub fn check(&self) -> Result<(), Refused> {
        let Some(video) = self.claims.video.as_ref().filter(|video| video.room_join) else {
            return Err(Refused::MayNotJoin);
        };
        if self.claims.sub.is_empty() {
            return Err(Refused::NoIdentity);
        }
        if video.room.is_empty() {
            return Err(Refused::NoRoom);
        }
        if [&self.claims.sub, &self.claims.name, &video.room].iter().any(|name| name.len() > limits::NAME_BYTES_MAX) {
            return Err(Refused::NameTooLong);
        }
        let changes_metadata = !self.metadata.is_empty() || !self.attributes.is_empty();
        if changes_metadata && !video.can_update_own_metadata.unwrap_or(false) {
            return Err(Refused::MayNotUpdateMetadata);
        }
        let attributes = self.claims.attributes.iter().chain(&self.attributes);
        let attribute_bytes: usize = attributes.map(|(key, value)| key.len() + value.len()).sum();
        let metadata_bytes = self.metadata.len().max(self.claims.metadata.len());
        if metadata_bytes > limits::METADATA_BYTES_MAX || attribute_bytes > limits::ATTRIBUTES_BYTES_MAX {
            return Err(Refused::MetadataTooLong);
        }
        Ok(())
    }
}

/// Pages do not say in which browser they are; the header of their request does, as far as it matters (`codecs`).
fn see_browser(client: &mut ClientInfo, user_agent: &str) {
    use client_info::Sdk;
    let is_page = matches!(client.sdk(), Sdk::Js | Sdk::Flutter);
    if !is_page || !client.browser.is_empty() {
        return;
    }
    let says = |name: &str| user_agent.contains(name);
    let behind = |name: &str| user_agent.split_once(name)?.1.split([' ', ';', ')']).next();
    // Most others say that they are Safari, too; and on phones it is another browser to LiveKit's server.
    let others =
        ["Chrome/", "Chromium/", "CriOS/", "FxiOS/", "Edg", "OPR/", "Android", "Mobile/", "Ddg/", "DuckDuckGo/"];
    let is_safari = says("Safari/") && !others.into_iter().any(says);
    let (browser, version) = match (behind("Firefox/"), behind("Version/").filter(|_| is_safari)) {
        (Some(version), _) => ("Firefox", version),
        (None, Some(version)) => ("Safari", version),
        (None, None) => return,
    };
    (client.browser, client.browser_version) = (browser.to_owned(), version.to_owned());
    if client.os.is_empty() {
        let os = [("Android", "Android"), ("X11; Linux", "Linux")].into_iter().find(|(said, _)| says(said));
        client.os = os.map_or("", |(_, os)| os).to_owned();
    }
}

/// With padding or without: SDKs differ.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    URL_SAFE.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text)).ok()
}

fn unpacked(packed: &[u8]) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    let mut reader = GzDecoder::new(packed).take(limits::JOIN_BYTES_MAX as u64 + 1);
    reader.read_to_end(&mut bytes).map_err(|_| Refused::BadJoinRequest)?;
    Ok(bytes)
}

fn client<'a>(value: impl Fn(&str) -> &'a str) -> ClientInfo {
    use client_info::Sdk;
    let sdk = match value("sdk") {
        "js" => Sdk::Js,
        "ios" | "swift" => Sdk::Swift,
        "android" => Sdk::Android,
        "flutter" => Sdk::Flutter,
        "go" => Sdk::Go,
        "unity" => Sdk::Unity,
        "reactnative" => Sdk::ReactNative,
        "rust" => Sdk::Rust,
        "python" => Sdk::Python,
        "cpp" => Sdk::Cpp,
        "unityweb" => Sdk::UnityWeb,
        "node" => Sdk::Node,
        _ => Sdk::Unknown,
    };
    let capabilities = value("capabilities").split(',').take(limits::LAYERS_MAX).map(str::trim);
    ClientInfo {
        sdk: sdk as i32,
        version: value("version").to_owned(),
        protocol: value("protocol").parse().unwrap_or_default(),
        client_protocol: value("client_protocol").parse().unwrap_or_default(),
        os: value("os").to_owned(),
        os_version: value("os_version").to_owned(),
        device_model: value("device_model").to_owned(),
        browser: value("browser").to_owned(),
        browser_version: value("browser_version").to_owned(),
        network: value("network").to_owned(),
        capabilities: capabilities
            .filter_map(client_info::Capability::from_str_name)
            .map(|capability| capability as i32)
            .collect(),
        ..ClientInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use livekit_protocol::ConnectionSettings;

    use super::*;
    use crate::token::VideoGrant;

    fn query(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn packed(bytes: &[u8]) -> String {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(bytes).expect("memory");
        let join_request = gzip.finish().expect("memory");
        let compression = wrapped_join_request::Compression::Gzip as i32;
        URL_SAFE.encode(WrappedJoinRequest { compression, join_request }.encode_to_vec())
    }

    #[test]
    fn who_says_nothing_in_the_query_subscribes_to_everything() {
        let join = Join::from_query(Claims::default(), &[]).expect("a query");
        assert!(join.auto_subscribe && !join.adaptive_stream && join.reconnect.is_none() && !join.is_single);
    }

    #[test]
    fn the_query_of_v0_is_read() {
        let pairs = [("auto_subscribe", "0"), ("adaptive_stream", "1"), ("sdk", "go"), ("protocol", "16")];
        let more = [("reconnect", "1"), ("sid", "PA_1"), ("attributes", &URL_SAFE.encode(r#"{"a":"b"}"#))];
        let join = Join::from_query(Claims::default(), &query(&[&pairs[..], &more].concat())).expect("a query");
        assert!(!join.auto_subscribe && join.adaptive_stream);
        assert_eq!((join.client.protocol, join.client.sdk()), (16, client_info::Sdk::Go));
        assert_eq!((join.reconnect.as_deref(), join.attributes["a"].as_str()), (Some("PA_1"), "b"));
    }

    #[test]
    fn a_join_request_of_v1_is_read_packed_or_not() {
        let settings = ConnectionSettings { auto_subscribe: true, ..ConnectionSettings::default() };
        let request = JoinRequest { connection_settings: Some(settings), metadata: "m".into(), ..Default::default() };
        let wrapped = WrappedJoinRequest { join_request: request.encode_to_vec(), ..WrappedJoinRequest::default() };
        for text in [URL_SAFE.encode(wrapped.encode_to_vec()), packed(&request.encode_to_vec())] {
            let join = Join::from_request(Claims::default(), &text).expect("a request");
            assert!(join.is_single && join.auto_subscribe && join.metadata == "m");
        }
    }

    #[test]
    fn a_join_request_that_unpacks_to_too_much_is_refused() {
        let text = packed(&vec![0; limits::JOIN_BYTES_MAX + 1]);
        assert_eq!(Join::from_request(Claims::default(), &text).err(), Some(Refused::JoinRequestTooLong));
    }

    #[test]
    fn what_is_no_join_request_is_refused() {
        for text in ["%", "AAAA", &packed(b"\xff\xff\xff"), &URL_SAFE.encode([0x08, 0x01, 0x12, 0x02, 1, 2])] {
            assert_eq!(Join::from_request(Claims::default(), text).err(), Some(Refused::BadJoinRequest), "{text}");
        }
    }

    #[test]
    fn metadata_comes_with_the_join_only_from_who_may_change_it() {
        let video = VideoGrant { room_join: true, room: "a".into(), ..VideoGrant::default() };
        let claims = Claims { sub: "eve".into(), video: Some(video), ..Claims::default() };
        let mut join = Join { claims, metadata: "m".into(), ..Join::default() };
        assert_eq!(join.check(), Err(Refused::MayNotUpdateMetadata));
        join.claims.video.as_mut().expect("a grant").can_update_own_metadata = Some(true);
        assert_eq!(join.check(), Ok(()));
    }

    #[test]
    fn who_may_join_no_room_is_refused() {
        assert_eq!(Join::default().check(), Err(Refused::MayNotJoin));
    }

    #[test]
    fn pages_are_known_by_their_browser() {
        let seen = |sdk: &str, agent: &str| {
            let mut client = client(|name| if name == "sdk" { sdk } else { "" });
            see_browser(&mut client, agent);
            [client.browser, client.browser_version, client.os]
        };
        let firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
        assert_eq!(seen("js", firefox), ["Firefox", "140.0", "Linux"]);
        assert_eq!(seen("go", firefox), ["", "", ""], "a program may say what it likes");
        let of_a_distribution = "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
        assert_eq!(seen("js", of_a_distribution), ["Firefox", "140.0", ""], "that has H.264");
        let webkit = "AppleWebKit/605.1.15 (KHTML, like Gecko)";
        let safari = format!("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) {webkit} Version/18.4 Safari/605.1.15");
        assert_eq!(seen("js", &safari), ["Safari", "18.4", ""]);
        let chromium = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36";
        let on_a_phone =
            format!("Mozilla/5.0 (iPhone; CPU iPhone OS 17_5) {webkit} CriOS/125.0 Mobile/15E148 Safari/604.1");
        let safari_on_a_phone =
            format!("Mozilla/5.0 (iPhone; CPU iPhone OS 18_5) {webkit} Version/18.5 Mobile/15E148 Safari/604.1");
        for agent in [chromium, &on_a_phone, &safari_on_a_phone, "", "Version/", "Firefox/"] {
            let [browser, version, _] = seen("js", agent);
            assert!(browser.is_empty() || version.is_empty(), "{agent}: {browser} {version}");
        }
    }
}
