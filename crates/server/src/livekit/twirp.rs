//! RoomService as applications call it: Twirp, with protobuf or JSON.
//!
//! JSON is read with names in either case style; it is written with the names of the proto files, with all fields, and with
//! 64-bit numbers as text, as LiveKit writes it.
//! Source: the Twirp wire protocol, version 7.

use axum::Extension;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use livekit::admin::{Answer, Refusal, Request};
use livekit::proto::{
    CreateRoomRequest, ParticipantInfo, ParticipantPermission, Room, SimulcastCodecInfo, TrackInfo, TrackSource,
    VideoLayer,
};
use livekit::token::TokenError;
use prost::Message;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::routes::Why;

const PROTOBUF: &str = "application/protobuf";
const JSON: &str = "application/json";

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Protobuf,
    Json,
}

/// What went wrong, as Twirp says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Error {
    code: &'static str,
    status: u16,
    message: String,
}

impl Form {
    /// By a media type, whatever its parameters.
    pub(super) fn of(media_type: Option<&HeaderValue>) -> Option<Self> {
        let essence = media_type?.to_str().ok()?.split(';').next()?.trim();
        match essence {
            PROTOBUF => Some(Form::Protobuf),
            JSON => Some(Form::Json),
            _ => None,
        }
    }
}

impl Error {
    pub(super) const BAD_TYPE: Error = Error { code: "bad_route", status: 404, message: String::new() };

    fn new(code: &'static str, status: u16, message: impl Into<String>) -> Self {
        Error { code, status, message: message.into() }
    }
}

impl From<TokenError> for Error {
    fn from(error: TokenError) -> Self {
        Error::new("unauthenticated", 401, error.to_string())
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let (code, status) = refusal.twirp();
        Error::new(code, status, refusal.to_string())
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let message = match self.message.as_str() {
            "" => "the body is to be application/protobuf or application/json",
            message => message,
        };
        let body = json!({ "code": self.code, "msg": message }).to_string();
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let why = Extension(Why(message.to_owned()));
        (status, why, [(header::CONTENT_TYPE, JSON)], body).into_response()
    }
}

/// Reads one request.
pub(super) fn read(service: &str, method: &str, form: Form, body: &[u8]) -> Result<Request, Error> {
    if service != "livekit.RoomService" {
        return Err(Error::new("bad_route", 404, format!("there is no service {service:?} here")));
    }
    Ok(match method {
        "CreateRoom" => Request::CreateRoom(message::<CreateRoomRequest>(form, body)?),
        "ListRooms" => Request::ListRooms(message(form, body)?),
        "DeleteRoom" => Request::DeleteRoom(message(form, body)?),
        "ListParticipants" => Request::ListParticipants(message(form, body)?),
        "GetParticipant" => Request::GetParticipant(message(form, body)?),
        "RemoveParticipant" => Request::RemoveParticipant(message(form, body)?),
        "MutePublishedTrack" => Request::MutePublishedTrack(message(form, body)?),
        "UpdateParticipant" => Request::UpdateParticipant(message(form, body)?),
        "UpdateSubscriptions" => Request::UpdateSubscriptions(message(form, body)?),
        "SendData" => Request::SendData(message(form, body)?),
        "UpdateRoomMetadata" => Request::UpdateRoomMetadata(message(form, body)?),
        "MoveParticipant" => Request::MoveParticipant(message(form, body)?),
        "ForwardParticipant" => Request::ForwardParticipant(message(form, body)?),
        _ => return Err(Error::new("bad_route", 404, format!("the service has no method {method:?}"))),
    })
}

fn message<M: Message + Default + DeserializeOwned>(form: Form, body: &[u8]) -> Result<M, Error> {
    let read = match form {
        Form::Protobuf => M::decode(body).map_err(|error| error.to_string()),
        Form::Json => serde_json::from_slice(body).map_err(|error| error.to_string()),
    };
    read.map_err(|error| Error::new("malformed", 400, format!("the body cannot be read: {error}")))
}

/// Writes the answer in the form of the request.
pub(super) fn write(form: Form, answer: &Answer) -> Response {
    match form {
        Form::Protobuf => {
            let body = match answer {
                Answer::Room(message) => message.encode_to_vec(),
                Answer::Rooms(message) => message.encode_to_vec(),
                Answer::Participant(message) => message.encode_to_vec(),
                Answer::Participants(message) => message.encode_to_vec(),
                Answer::Track(message) => message.encode_to_vec(),
                Answer::Nothing => Vec::new(),
            };
            ([(header::CONTENT_TYPE, PROTOBUF)], body).into_response()
        }
        Form::Json => ([(header::CONTENT_TYPE, JSON)], json_of(answer).to_string()).into_response(),
    }
}

fn json_of(answer: &Answer) -> Value {
    match answer {
        Answer::Room(message) => room(message),
        Answer::Rooms(message) => json!({ "rooms": list(&message.rooms, room) }),
        Answer::Participant(message) => participant(message),
        Answer::Participants(message) => json!({ "participants": list(&message.participants, participant) }),
        Answer::Track(message) => json!({ "track": message.track.as_ref().map(track) }),
        Answer::Nothing => json!({}),
    }
}

fn list<M>(messages: &[M], written: impl Fn(&M) -> Value) -> Vec<Value> {
    messages.iter().map(written).collect()
}

fn room(room: &Room) -> Value {
    json!({
        "sid": room.sid,
        "name": room.name,
        "empty_timeout": room.empty_timeout,
        "departure_timeout": room.departure_timeout,
        "max_participants": room.max_participants,
        "creation_time": room.creation_time.to_string(),
        "creation_time_ms": room.creation_time_ms.to_string(),
        "turn_password": room.turn_password,
        "enabled_codecs": list(&room.enabled_codecs, |codec| json!({ "mime": codec.mime, "fmtp_line": codec.fmtp_line })),
        "metadata": room.metadata,
        "num_participants": room.num_participants,
        "num_publishers": room.num_publishers,
        "active_recording": room.active_recording,
        "version": null,
    })
}

fn participant(info: &ParticipantInfo) -> Value {
    json!({
        "sid": info.sid,
        "identity": info.identity,
        "state": info.state().as_str_name(),
        "tracks": list(&info.tracks, track),
        "metadata": info.metadata,
        "joined_at": info.joined_at.to_string(),
        "joined_at_ms": info.joined_at_ms.to_string(),
        "name": info.name,
        "version": info.version,
        "permission": info.permission.as_ref().map(permission),
        "region": info.region,
        "is_publisher": info.is_publisher,
        "kind": info.kind().as_str_name(),
        "attributes": info.attributes,
        "disconnect_reason": info.disconnect_reason().as_str_name(),
        "kind_details": info.kind_details().map(|detail| detail.as_str_name()).collect::<Vec<_>>(),
        "client_protocol": info.client_protocol,
    })
}

#[allow(deprecated, reason = "applications read these fields")]
fn permission(permission: &ParticipantPermission) -> Value {
    let sources = permission.can_publish_sources.iter().filter_map(|source| TrackSource::try_from(*source).ok());
    json!({
        "can_subscribe": permission.can_subscribe,
        "can_publish": permission.can_publish,
        "can_publish_data": permission.can_publish_data,
        "can_publish_sources": sources.map(|source| source.as_str_name()).collect::<Vec<_>>(),
        "hidden": permission.hidden,
        "recorder": permission.recorder,
        "can_update_metadata": permission.can_update_metadata,
        "agent": permission.agent,
        "can_subscribe_metrics": permission.can_subscribe_metrics,
        "can_manage_agent_session": permission.can_manage_agent_session,
    })
}

#[allow(deprecated, reason = "applications read these fields")]
fn track(info: &TrackInfo) -> Value {
    json!({
        "sid": info.sid,
        "type": info.r#type().as_str_name(),
        "name": info.name,
        "muted": info.muted,
        "width": info.width,
        "height": info.height,
        "simulcast": info.simulcast,
        "disable_dtx": info.disable_dtx,
        "source": info.source().as_str_name(),
        "layers": list(&info.layers, layer),
        "mime_type": info.mime_type,
        "mid": info.mid,
        "codecs": list(&info.codecs, codec),
        "stereo": info.stereo,
        "disable_red": info.disable_red,
        "encryption": info.encryption().as_str_name(),
        "stream": info.stream,
        "version": null,
        "audio_features": info.audio_features().map(|feature| feature.as_str_name()).collect::<Vec<_>>(),
        "backup_codec_policy": info.backup_codec_policy().as_str_name(),
    })
}

fn codec(codec: &SimulcastCodecInfo) -> Value {
    json!({
        "mime_type": codec.mime_type,
        "mid": codec.mid,
        "cid": codec.cid,
        "layers": list(&codec.layers, layer),
        "video_layer_mode": codec.video_layer_mode().as_str_name(),
        "sdp_cid": codec.sdp_cid,
    })
}

fn layer(layer: &VideoLayer) -> Value {
    json!({
        "quality": layer.quality().as_str_name(),
        "width": layer.width,
        "height": layer.height,
        "bitrate": layer.bitrate,
        "ssrc": layer.ssrc,
        "spatial_layer": layer.spatial_layer,
        "rid": layer.rid,
        "repair_ssrc": layer.repair_ssrc,
    })
}
