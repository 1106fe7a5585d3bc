//! What control tells the pump, and hears back.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::{Bitrate, Path, Token};

use crate::chunk::Chunk;
pub use crate::counters::Counters;
use crate::fec::Fec;
use crate::live;
use crate::monitor::Report;
use crate::pids::PidMap;
use crate::title::Title;
use crate::trick::Pick;

/// Names a session, among all of all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Names a live input, among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InputId(pub u32);

/// A session's live input, instead of the bytes of its title, which says what comes. It is sent as it is: `start`, `end`,
/// `looped`, `speed_permille` and `restamp` mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveSpec {
    /// Which input.
    pub input: InputId,
    /// Where in it to begin.
    pub start: live::Start,
}

/// `Settings::tick` for receivers with tiny buffers.
pub const TICK_STRICT: Duration = Duration::from_micros(50);

/// What an operator may choose about the pump.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Deadlines are served to the next whole tick: a longer one costs less CPU, and more buffer of the receivers.
    pub tick: Duration,
    /// Datagrams per send of sessions that do not say, 1 to 7: more cost less CPU, fewer are smoother. At low rates there are
    /// fewer, so that a send is no more than 10 ms of the stream, or one datagram.
    pub burst: u8,
    /// So much of its title a session has or has asked for, behind the chunk that is being sent, and one chunk at least.
    pub read_ahead: Duration,
    /// A stream that is later than this goes on from there; up to this it catches up, at twice its pace.
    pub late_max: Duration,
    /// A session whose next chunk is late for longer ends, when it does not say otherwise.
    pub starved_timeout: Duration,
    /// Sessions on one worker at most; newcomers are refused.
    pub sessions_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            tick: Duration::from_micros(500),
            burst: 2,
            read_ahead: Duration::from_millis(1_500),
            late_max: Duration::from_millis(200),
            starved_timeout: Duration::from_secs(30),
            sessions_max: 20_000,
        }
    }
}

/// What tells when a packet is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// The title's clock. Needs a title with one.
    Clock,
    /// A constant rate of the title's own packets: for titles that have it, or have no clock.
    Rate(Bitrate),
    /// The title's clock, filled up with null packets to a constant rate. References are corrected for each packet's
    /// new place. Where the title has more than the rate for a while, packets are late by that.
    Padded(Bitrate),
}

/// Where a session's packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To an address, as datagrams.
    Datagrams(Path),
    /// Into a client's connection, between what control says there (RFC 2326 §10.12). There is no parity.
    Interleaved {
        /// Which connection (`Command::Adopt`).
        connection: Token,
        /// The number before each packet.
        channel: u8,
    },
}

impl From<Path> for Target {
    fn from(path: Path) -> Self {
        Target::Datagrams(path)
    }
}

/// What packets are sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Nothing but UDP.
    Udp,
    /// RTP (RFC 2250). Numbers begin where control chose; they should be random (RFC 3550 §5.1).
    Rtp {
        /// Names the stream.
        ssrc: u32,
        /// The first packet's number.
        first_seq: u16,
        /// The first packet's timestamp, of 90 kHz.
        first_timestamp: u32,
    },
}

/// What a stream sends while its next chunk is late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenStarved {
    /// Nothing.
    #[default]
    Pause,
    /// Null packets at the rate that was: the receiver keeps its lock.
    Nulls,
}

/// How a session plays, whatever its title and destination: what whoever asks for it may choose. `default()` is the title
/// once, by its own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaySpec {
    /// What tells when packets are due.
    pub pacing: Pacing,
    /// Parity, to the ports two and four above: of RTP only, and to ports up to 65,531.
    pub fec: Option<Fec>,
    /// Datagrams per send, 1 to 7: more cost less CPU, and are less smooth. `None`: as `Settings::burst` has it.
    pub burst: Option<u8>,
    /// At the end it goes on at the start.
    pub looped: bool,
    /// Thousandths of the normal pace at which packets are sent; their references stay as they are, so this is for
    /// receivers that store. Pictures at another speed are `Command::Trick`.
    pub speed_permille: u32,
    /// What is sent while the next chunk is late.
    pub when_starved: WhenStarved,
    /// It ends when the next chunk is late for longer. `None`: `Settings::starved_timeout`.
    pub starved_timeout: Option<Duration>,
    /// References and timestamps are made to continue across loops, seeks, pauses and starving. Otherwise they stay as
    /// they are. The discontinuity is flagged in both cases.
    pub restamp: bool,
    /// It waits for `Command::Resume`, with its first chunks at hand.
    pub is_paused: bool,
    /// At its end it stays, and waits for `Command::Seek`.
    pub holds_at_end: bool,
    /// So long it goes out at twice its pace at first, so that a receiver has so much more in its buffer from then on. Not
    /// with `Pacing::Padded`, nor from a live input.
    pub burst_start: Duration,
    /// What is sent is measured as a receiver would (`SessionStats::report`). Costs a copy and a look at each packet.
    pub is_monitored: bool,
}

impl Default for PlaySpec {
    fn default() -> Self {
        PlaySpec {
            pacing: Pacing::Clock,
            fec: None,
            burst: None,
            looped: false,
            speed_permille: 1_000,
            when_starved: WhenStarved::default(),
            starved_timeout: None,
            restamp: true,
            is_paused: false,
            holds_at_end: false,
            burst_start: Duration::ZERO,
            is_monitored: false,
        }
    }
}

/// A session to open. `new` has the defaults.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// Its name, which is not in use.
    pub id: SessionId,
    /// What is played.
    pub title: Arc<Title>,
    /// Where it is sent to.
    pub to: Target,
    /// In what.
    pub transport: Transport,
    /// How it is played.
    pub play: PlaySpec,
    /// Where to begin, in packets from the title's start.
    pub start: u64,
    /// Where to end. `None`: where the title does.
    pub end: Option<u64>,
    /// Which PIDs are sent, and as which. `None`: all as they are.
    pub pids: Option<Arc<PidMap>>,
    /// Not before this.
    pub not_before: Option<Instant>,
    /// It plays what comes in.
    pub live: Option<LiveSpec>,
}

impl SessionSpec {
    /// All of a title, right in UDP.
    pub fn new(id: SessionId, title: Arc<Title>, to: impl Into<Target>) -> Self {
        SessionSpec {
            id,
            title,
            to: to.into(),
            transport: Transport::Udp,
            play: PlaySpec::default(),
            start: 0,
            end: None,
            pids: None,
            not_before: None,
            live: None,
        }
    }
}

/// What control asks for. A command for a session or a connection that is gone does nothing.
#[derive(Debug)]
pub enum Command {
    /// A session begins as soon as its first chunks are there.
    Open(Box<SessionSpec>),
    /// A chunk that was asked for (`Event::Need`). One that cannot be had while others can is answered with `Chunk::hole`, and
    /// skipped.
    Chunk {
        /// Which session.
        session: SessionId,
        /// The chunk.
        chunk: Arc<Chunk>,
    },
    /// The title is gone from this chunk on, which was asked for: what is before it is sent, and the session ends there.
    Gone {
        /// Which session.
        session: SessionId,
        /// The chunk's number.
        chunk: u32,
    },
    /// The next chunk of a live input, for all of its sessions that need it. Those before `oldest` are forgotten. To be
    /// sent, in order, from before the first session of the input is opened.
    LiveChunk {
        /// Which input.
        input: InputId,
        /// The chunk.
        chunk: Arc<Chunk>,
        /// The oldest chunk that is kept.
        oldest: u32,
        /// Whoever sends it sees by this whether it is handled.
        ticket: Arc<()>,
    },
    /// No session plays this input any more.
    LiveGone(InputId),
    /// A session goes on elsewhere in its live input: after a pause, or when it needs a chunk that is gone (`Event::Need`).
    Jump {
        /// Which session.
        session: SessionId,
        /// Where it goes on.
        to: live::Start,
    },
    /// Sends nothing until `Resume`.
    Pause(SessionId),
    /// Goes on where it was.
    Resume(SessionId),
    /// Goes on at another place, in packets from the title's start (`Index::find`), at normal speed.
    Seek {
        /// Which session.
        session: SessionId,
        /// Where it goes on.
        to: u64,
    },
    /// Where the session ends from now on, in packets from the title's start. No end: the title's.
    SetEnd {
        /// Which session.
        session: SessionId,
        /// `None`: the title's end.
        end: Option<u64>,
    },
    /// Shows these pictures, at their times (`trick::Picker`). `Seek` ends it. Events say `run`.
    Trick {
        /// Which session.
        session: SessionId,
        /// The pictures, in the order of showing.
        picks: Arc<[Pick]>,
        /// Names these pictures.
        run: u64,
    },
    /// And then these, one at least, whose times count from the first picture too. Only for pictures that were begun with
    /// `run`. Where there are no more, the event that asked for them stays without an answer.
    MorePictures {
        /// Which session.
        session: SessionId,
        /// The pictures, in the order of showing.
        picks: Arc<[Pick]>,
        /// Names these pictures.
        run: u64,
    },
    /// Asks for one `Event::Started`: at once while it plays, else when it begins to. A later one takes its place.
    AwaitStart {
        /// Which session.
        session: SessionId,
        /// Names the question: it comes back with the answer.
        token: u64,
    },
    /// Ends a session.
    Close(SessionId),
    /// So many sessions may there be from now on. Those that are there go on.
    Limit(usize),
    /// A client's connection is the worker's from now on, for the packets of sessions. What comes on it is `Event::Heard`.
    Adopt {
        /// What it is called; the name is not used again.
        connection: Token,
        /// The socket.
        descriptor: OwnedFd,
        /// A client that takes nothing of what waits for it for so long is gone.
        patience: Duration,
    },
    /// Says something on a connection, between packets.
    Say {
        /// Which connection.
        connection: Token,
        /// All of it, or nothing.
        bytes: Vec<u8>,
        /// The `heard_len` of each `Event::Heard` that control is done with.
        heard: usize,
    },
    /// Packets on one channel of a connection wait from now on, until `LetGo`: what is said before that comes first. For
    /// players that take none before the answer to PLAY. Those beyond 256 KiB, or what is left of them, are dropped.
    Hold {
        /// Which connection.
        connection: Token,
        /// Which channel.
        channel: u8,
    },
    /// What was held on a connection follows what was said there, and nothing is held there any more.
    LetGo(Token),
    /// Says no more on a connection: it is closed behind what was said; with a second one at once.
    HangUp(Token),
    /// Asks for one `Event::Stats`.
    Inspect {
        /// Which session.
        session: SessionId,
        /// Names the question: it comes back with the answer.
        token: u64,
    },
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// All was sent.
    Ended,
    /// Control closed it.
    Closed,
    /// The next chunk was late for too long (`Settings::starved_timeout`).
    Starved,
    /// The title is gone, and all that was there of it is sent.
    Gone,
    /// There were as many as there may be.
    Full,
    /// The id is in use.
    InUse,
    /// The title has no clock, and pacing by it was asked for; or the rate is zero.
    NoPace,
}

/// What a client says and control has not heard yet, at most, in bytes as `heard_len` counts them.
pub const UNHEARD_MAX: usize = 64 * 1_024;

/// The least that a piece of it counts, so that there are no more than 64.
const HEARD_LEN_MIN: usize = UNHEARD_MAX / 64;

/// What a piece of what a client says counts.
pub fn heard_len(piece: &[u8]) -> usize {
    piece.len().max(HEARD_LEN_MIN)
}

/// What control hears.
#[derive(Clone, Debug)]
pub enum Event {
    /// The session needs this chunk of its title next. Each is asked for once, until it arrives. With a live input: the
    /// chunk is gone, and the session needs `Command::Jump`.
    Need {
        /// Which session.
        session: SessionId,
        /// The chunk's number.
        chunk: u32,
    },
    /// The last pictures are about to be sent: it is time for `Command::MorePictures`, if there are more.
    PicturesWanted {
        /// Which session.
        session: SessionId,
        /// Names these pictures.
        run: u64,
    },
    /// All pictures of `Command::Trick` are shown, and of so many commands in all, it included. The session sends nothing
    /// until there are more, or until `Command::Seek`.
    PicturesShown {
        /// Which session.
        session: SessionId,
        /// Names these pictures.
        run: u64,
        /// Commands by which they came.
        parts: u32,
    },
    /// Answer to `Command::AwaitStart`; `None` when the session is gone, or somebody else waits for the same.
    Started {
        /// Names the question: it comes back with the answer.
        token: u64,
        /// Where it begins, or goes on.
        start: Option<Start>,
    },
    /// A session is gone, or was refused.
    SessionEnded {
        /// Which session.
        session: SessionId,
        /// Why.
        reason: EndReason,
        /// Its last numbers.
        stats: Box<SessionStats>,
    },
    /// A client says something on its connection. When more than `UNHEARD_MAX` of it waits for `Command::Say`, it is no player,
    /// and the connection ends.
    Heard {
        /// Which connection.
        connection: Token,
        /// What came, in order. Nothing: the client says no more, but may listen.
        bytes: Box<[u8]>,
    },
    /// A client's connection is gone, or could not be had. Comes once for each.
    HungUp {
        /// Which connection.
        connection: Token,
    },
    /// Answer to `Command::Inspect`; `None` when the session is gone.
    Stats {
        /// Names the question: it comes back with the answer.
        token: u64,
        /// Its numbers.
        stats: Option<Box<SessionStats>>,
    },
}

/// What a session does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Activity {
    /// Waits for its first chunk, or the first behind a seek.
    #[default]
    Loading,
    /// Is being sent.
    Playing,
    /// Waits for `Command::Resume`, or for another place to go on at.
    Paused,
    /// The next chunk is late.
    Starved,
}

/// Where a session begins, or goes on: its next datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Packets from the title's start.
    pub position: u64,
    /// Sequence number and timestamp, of a session with RTP.
    pub rtp: Option<RtpPoint>,
}

/// A place in an RTP stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpPoint {
    /// The next packet's.
    pub seq: u16,
    /// Of 90 kHz.
    pub timestamp: u32,
}

/// One session's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// What it does.
    pub activity: Activity,
    /// Packets from the title's start.
    pub position: u64,
    /// Datagrams that were sent.
    pub datagrams: u64,
    /// Bytes of these, RTP headers included.
    pub bytes: u64,
    /// Parity datagrams, which are not among the others.
    pub fec_datagrams: u64,
    /// How often the next chunk was not there when it was due, and for how long in all.
    pub underruns: u64,
    /// For how long in all it was not there.
    pub starved: Duration,
    /// Null packets that were added.
    pub nulls: u64,
    /// How often the stream was so late that its schedule was moved.
    pub shifts: u64,
    /// By how much more the title was late in all than the constant rate that it is padded to leaves room for.
    pub pad_late: Duration,
    /// References in the title that did not continue and did not say so.
    pub clock_jumps: u64,
    /// The latest burst's lateness at the worst.
    pub late_max: Duration,
    /// How late bursts were: none later than 64 µs, 128 µs and so on, and at last those that were later than all these.
    pub lateness: [u32; LATE_BUCKETS],
    /// The media delivery index (RFC 4445) of what was sent, by its schedule. The delay factor is the spread of lateness
    /// in a second, and the time of a burst: of the last whole second, and of the worst.
    pub delay_factor: Duration,
    /// That of the worst second.
    pub delay_factor_max: Duration,
    /// Packets that could not be had, and errors of the title's continuity counters within its chunks; both counted when a
    /// chunk comes.
    pub lost: u64,
    /// Errors of the title's continuity counters within its chunks.
    pub continuity_errors: u64,
    /// Since the first packet was sent.
    pub age: Duration,
    /// The next sequence number, and the timestamp of this moment (RFC 3550 §6.4.1). `None` before the first packet.
    pub rtp: Option<RtpPoint>,
    /// What a receiver next to us would measure, of a session that is monitored.
    pub report: Option<Box<Report>>,
    /// What it has done until now, the oldest first; of very much the first and the last.
    pub steps: Vec<Step>,
}

/// A change of what a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When that was.
    pub at: Instant,
    /// What it does from then on.
    pub activity: Activity,
    /// Packets from the title's start.
    pub position: u64,
}

/// Buckets of `SessionStats::lateness`.
pub const LATE_BUCKETS: usize = 12;

/// The upper bound of bucket `index`. The last one has none.
pub fn late_bound(index: usize) -> Option<Duration> {
    (index + 1 < LATE_BUCKETS).then(|| Duration::from_nanos(LATE_FIRST_NS << index))
}

/// The bucket for a lateness.
pub(crate) fn late_bucket(late_ns: u64) -> usize {
    let bits = u64::BITS - (late_ns.saturating_sub(1) / LATE_FIRST_NS).leading_zeros();
    (bits as usize).min(LATE_BUCKETS - 1)
}

const LATE_FIRST_NS: u64 = 64_000;
