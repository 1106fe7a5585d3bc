//! How much of everything there may be, and what happens beyond.

use std::time::Duration;

/// Rooms at a time. Beyond, nobody opens another one (`Refused::TooManyRooms`).
pub const ROOMS_MAX: usize = 10_000;
/// Participants of a room, whatever its own limit says. Beyond, newcomers are refused.
pub const PARTICIPANTS_MAX: usize = 20_000;
/// Tracks that one participant has published or announced. Beyond, `add_track` is answered with LIMIT_EXCEEDED.
pub const TRACKS_MAX: usize = 64;
/// Tracks of one participant that wait for their media. Beyond, as above.
pub const PENDING_MAX: usize = 20;
/// Tracks that one participant says something about: what it wants, and how. Beyond, the newest wish is not taken up.
pub const WISHES_MAX: usize = 4096;
/// Tracks that one participant gets at a time, which are as many as one of its descriptions has. Beyond, the newest wait until others
/// have ended.
pub const DOWNS_MAX: usize = 256;
/// Subscribers that a publisher names in its permissions. Beyond, the update is refused as a whole.
pub const PERMISSIONS_MAX: usize = 4096;
/// Codecs of one track: it is published in the first, and in the second where somebody lacks that. What stands behind is left out.
pub const CODECS_MAX: usize = 2;
/// Layers that an announcement lists. What stands behind is left out.
pub const LAYERS_MAX: usize = 8;
/// Bytes of a client's id of a track, of a track's name and of its stream. Longer ones are refused.
pub const TRACK_NAME_BYTES_MAX: usize = 256;
/// Bytes of a participant's identity, of its name and of a room's name. Longer ones are refused.
pub const NAME_BYTES_MAX: usize = 256;
/// Bytes of metadata, of a room or a participant. More is refused.
pub const METADATA_BYTES_MAX: usize = 65_536;
/// Bytes of all attributes of a participant, keys and values. More is refused.
pub const ATTRIBUTES_BYTES_MAX: usize = 65_536;
/// Bytes of a session description: as many as are read of one (`webrtc`), with a section for each track of a large meeting. Who
/// sends a longer one has left.
pub const SDP_BYTES_MAX: usize = 1 << 20;
/// Bytes of a candidate. Who sends a longer one has left.
pub const CANDIDATE_BYTES_MAX: usize = 4_096;
/// Bytes of one data packet. Longer ones are dropped.
pub const DATA_BYTES_MAX: usize = 65_535;
/// Bytes of a join request when it is unpacked. Longer ones are refused.
pub const JOIN_BYTES_MAX: usize = 1 << 20;
/// Nonces of data packets that a room remembers. The oldest is forgotten.
pub const NONCES_MAX: usize = 256;

/// Reliable data packets that are kept for somebody who has joined and whose data channels are not open yet, and their bytes. What is
/// more is dropped.
pub const DATA_KEPT_MAX: usize = 64;
/// See `DATA_KEPT_MAX`.
pub const DATA_KEPT_BYTES_MAX: usize = 256 * 1024;

/// How long those who send reliable data to somebody who is behind with it wait, each time that somebody falls behind. Then they go on,
/// and what there is no room for is dropped.
pub const BEHIND_FOR_MAX: Duration = Duration::from_secs(5);

/// Requests that one participant may send at once, and per second after that. Who sends more has left.
pub const REQUESTS_BURST: u32 = 2000;
/// See `REQUESTS_BURST`.
pub const REQUESTS_PER_SECOND: u32 = 100;

/// How long updates of who publishes nothing are gathered.
pub const UPDATES_GATHERED: Duration = Duration::from_secs(3);
/// How long changes of a room's numbers are gathered.
pub const ROOM_GATHERED: Duration = Duration::from_secs(5);
/// How often it is looked who speaks.
pub const SPEAKERS_EVERY: Duration = Duration::from_millis(400);
/// How often it is looked how well participants are connected.
pub const QUALITY_EVERY: Duration = Duration::from_secs(5);
/// How long a layer that nobody wants any more goes on.
pub const LAYER_PAUSED_AFTER: Duration = Duration::from_secs(5);
/// How often a publisher is asked for a codec that somebody wants and that does not come.
pub const CODEC_ASKED_EVERY: Duration = Duration::from_secs(2);
/// How often participants get a new token.
pub const TOKEN_EVERY: Duration = Duration::from_secs(300);
/// How long a new token holds.
pub const TOKEN_HOLDS: Duration = Duration::from_secs(600);
/// How long somebody may take from joining to being connected.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(60);
/// How long somebody whose path is lost may take to come back, and then to be heard.
pub const RESUME_WITHIN: Duration = Duration::from_secs(10);

/// Something is longer than what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} has at most {max} bytes, and here {len}")]
pub struct TooLong {
    what: &'static str,
    len: usize,
    max: usize,
}

impl TooLong {
    pub(crate) fn check(what: &'static str, len: usize, max: usize) -> Result<(), TooLong> {
        if len > max { Err(TooLong { what, len, max }) } else { Ok(()) }
    }
}
