//! One viewer: connects, asks, and watches as his role has it.
//!
//! In: what his connection is ready for, and the time. Out: what he saw, in the thread's totals and in himself.
//! Who is checked reads every byte; the others read until a decoder can begin and have the rest thrown away, but for a few
//! packets each second, by which it shows that nothing was missing or came twice.
//! Cost: a system call for what came at once, and one more each second; some 300 bytes each.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use engine::sys::{self, BufferSide, Epoll, Interest, Ready};
use wire::ts::PACKET_LEN;

use super::check::{Checker, Faults};
use super::socket::{discard, end_at_once, now_ns, read, read_timed, set_timed};
use super::stream::Stream;
use super::target::{Target, read_head};
use super::totals::Totals;

/// Room for what is read at once, and for what is thrown away at once: nobody ever touches that.
const READ_BYTES: usize = 256 << 10;
const DISCARD_BYTES: usize = 8 << 20;

/// What is looked at now and then: two packets and a part of one, wherever it begins.
const LOOK_BYTES: usize = 3 * PACKET_LEN;
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reads before the next viewer has his turn.
const READS_MAX: usize = 4;

/// What a viewer is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Role {
    /// One of the many.
    Plain,
    /// Every byte is looked at, and has its latency.
    Checked,
    /// Reads no faster than so many bytes a second; every byte is looked at.
    Slow(f64),
    /// Asks, and never reads.
    Deaf,
    /// Comes and goes.
    Passing,
}

impl Role {
    /// Whether it is expected to get the whole stream in time.
    pub(super) fn is_on_time(self) -> bool {
        matches!(self, Role::Plain | Role::Checked)
    }
}

/// What the viewers of a thread have in common.
pub(super) struct Shared {
    pub(super) target: Target,
    /// `None` of a stream that others make.
    pub(super) stream: Option<Arc<Stream>>,
    pub(super) epoll: Epoll,
    /// Of each connection; the system's choice unless given.
    pub(super) receive_buffer: Option<usize>,
    /// Plain viewers are read in turn, and not when something came.
    pub(super) in_turn: bool,
    pub(super) totals: Totals,
    room: Vec<u8>,
}

impl Shared {
    pub(super) fn new(
        target: Target,
        stream: Option<Arc<Stream>>,
        receive_buffer: Option<usize>,
        in_turn: bool,
    ) -> Result<Self> {
        Ok(Shared {
            target,
            stream,
            epoll: Epoll::new(super::crowd::READY_MAX).context("open an epoll set")?,
            receive_buffer,
            in_turn,
            totals: Totals::default(),
            room: vec![0; DISCARD_BYTES],
        })
    }
}

enum Phase {
    /// Not yet, not any more, or never.
    Away,
    Connecting(TcpStream),
    /// Waits for the answer's head, of which this is what has come.
    Asking(TcpStream, Vec<u8>),
    Watching(TcpStream),
}

/// One viewer.
pub(super) struct Viewer {
    pub(super) role: Role,
    token: u64,
    from: Option<SocketAddr>,
    phase: Phase,
    /// Nanoseconds since 1970: when he connected, and when the stream's first byte came.
    asked_ns: u64,
    first_ns: Option<u64>,
    /// A decoder could begin, or nobody can tell.
    has_begun: bool,
    checker: Option<Checker>,
    look_at: Instant,
    /// When something came last.
    last: Instant,
    is_stalled: bool,
    /// The same by the kernel's time, of one who is checked, and the longest that he got nothing since the counting began.
    arrived_ns: Option<u64>,
    gap_ns: u64,
    /// Bytes of the stream since the counting began.
    pub(super) bytes: u64,
    /// Of a slow one: what he may read.
    allowance: f64,
}

impl Viewer {
    pub(super) fn new(role: Role, token: u64, from: Option<SocketAddr>, now: Instant) -> Self {
        Viewer {
            role,
            token,
            from,
            phase: Phase::Away,
            asked_ns: 0,
            first_ns: None,
            has_begun: false,
            checker: None,
            look_at: now,
            last: now,
            is_stalled: false,
            arrived_ns: None,
            gap_ns: 0,
            bytes: 0,
            allowance: 0.0,
        }
    }

    /// He gets the stream.
    pub(super) fn is_watching(&self) -> bool {
        matches!(self.phase, Phase::Watching(_)) && (self.first_ns.is_some() || self.role == Role::Deaf)
    }

    pub(super) fn is_away(&self) -> bool {
        matches!(self.phase, Phase::Away)
    }

    /// Whether he is one of those who are read in turn.
    pub(super) fn is_in_turn(&self, shared: &Shared) -> bool {
        shared.in_turn && self.role == Role::Plain && self.has_begun
    }

    /// Connects.
    pub(super) fn join(&mut self, shared: &mut Shared, now: Instant) {
        self.leave(shared);
        self.asked_ns = now_ns();
        (self.first_ns, self.has_begun, self.is_stalled, self.last) = (None, false, false, now);
        self.arrived_ns = None;
        self.checker = shared.stream.as_ref().map(|stream| Checker::new(Arc::clone(stream)));
        match self.connect(shared) {
            Ok(socket) => self.phase = Phase::Connecting(socket),
            Err(error) => shared.totals.fail(&error.context("connect")),
        }
    }

    fn connect(&self, shared: &Shared) -> Result<TcpStream> {
        let socket = sys::tcp_connect(&shared.target.addr, self.from.as_ref())?;
        if let Some(bytes) = shared.receive_buffer {
            sys::set_buffer_bytes(socket.as_fd(), BufferSide::Receive, bytes)?;
        }
        set_timed(&socket, true)?;
        end_at_once(&socket);
        let interest = Interest { read: false, write: true };
        shared.epoll.add(socket.as_fd(), self.token, interest)?;
        Ok(socket)
    }

    /// Goes; what was wrong with what he got is known then.
    pub(super) fn leave(&mut self, shared: &mut Shared) {
        self.phase = Phase::Away;
        if let Some(checker) = self.checker.take() {
            shared.totals.faults_of(self.role).add(&checker.faults);
        }
    }

    /// What was wrong since the last time.
    pub(super) fn take_faults(&mut self) -> Faults {
        self.checker.as_mut().map_or(Faults::default(), |checker| std::mem::take(&mut checker.faults))
    }

    /// His connection is ready.
    pub(super) fn handle(&mut self, shared: &mut Shared, ready: Ready, now: Instant) {
        if let Err(error) = self.go_on(shared, ready, now) {
            let was_watching = self.is_watching();
            self.leave(shared);
            if was_watching {
                shared.totals.ended += 1;
            }
            shared.totals.fail(&error);
        }
    }

    fn go_on(&mut self, shared: &mut Shared, ready: Ready, now: Instant) -> Result<()> {
        match std::mem::replace(&mut self.phase, Phase::Away) {
            Phase::Connecting(socket) => {
                if let Some(error) = socket.take_error()? {
                    return Err(anyhow!(error).context("connect"));
                }
                self.phase = if ready.writable { self.ask(socket, shared)? } else { Phase::Connecting(socket) };
                Ok(())
            }
            Phase::Asking(socket, head) => {
                self.phase = self.listen(socket, head, shared, now)?;
                Ok(())
            }
            Phase::Watching(socket) => {
                let result = self.watch(&socket, shared, now);
                self.phase = Phase::Watching(socket);
                result
            }
            Phase::Away => Ok(()),
        }
    }

    fn ask(&self, mut socket: TcpStream, shared: &Shared) -> Result<Phase> {
        // A new connection has room for so little.
        socket.write_all(shared.target.request().as_bytes()).context("ask")?;
        if self.role == Role::Deaf {
            shared.epoll.remove(socket.as_fd())?;
            return Ok(Phase::Watching(socket));
        }
        shared.epoll.modify(socket.as_fd(), self.token, Interest::READ)?;
        Ok(Phase::Asking(socket, Vec::new()))
    }

    fn listen(&mut self, socket: TcpStream, mut head: Vec<u8>, shared: &mut Shared, now: Instant) -> Result<Phase> {
        let Some((len, at_ns)) = read_timed(&socket, &mut shared.room[..READ_BYTES]).context("read the answer")? else {
            return Ok(Phase::Asking(socket, head));
        };
        ensure!(len > 0, "it ended before the answer did");
        head.extend_from_slice(&shared.room[..len]);
        let Some(at) = read_head(&head)? else { return Ok(Phase::Asking(socket, head)) };
        if let Role::Slow(_) = self.role {
            shared.epoll.remove(socket.as_fd())?;
        }
        let bytes = &head[at..];
        if !bytes.is_empty() {
            self.take(bytes, at_ns, &mut shared.totals, now);
            self.note(bytes.len(), &mut shared.totals, now);
        }
        if self.has_begun {
            self.begin(&socket, shared)?;
        }
        Ok(Phase::Watching(socket))
    }

    fn watch(&mut self, socket: &TcpStream, shared: &mut Shared, now: Instant) -> Result<()> {
        for _ in 0..READS_MAX {
            let (asked, len) = match self.mode(now) {
                Mode::All => {
                    let buf = &mut shared.room[..READ_BYTES];
                    let Some((len, at_ns)) = read_timed(socket, buf).context("read")? else { return Ok(()) };
                    ensure!(len > 0, "it ended");
                    let (had_begun, bytes) = (self.has_begun, &shared.room[..len]);
                    self.take(bytes, at_ns, &mut shared.totals, now);
                    if self.has_begun && !had_begun {
                        self.begin(socket, shared)?;
                    }
                    (READ_BYTES, len)
                }
                Mode::Look => {
                    let buf = &mut shared.room[..LOOK_BYTES];
                    let Some(len) = read(socket, buf).context("read")? else { return Ok(()) };
                    self.look(&shared.room[..len], now);
                    (LOOK_BYTES, len)
                }
                Mode::Nothing => {
                    let Some(len) = discard(socket, &mut shared.room).context("read")? else { return Ok(()) };
                    if let Some(checker) = &mut self.checker {
                        checker.skip(len);
                    }
                    (DISCARD_BYTES, len)
                }
            };
            ensure!(len > 0, "it ended");
            self.note(len, &mut shared.totals, now);
            if len < asked {
                return Ok(());
            }
        }
        Ok(())
    }

    /// How the next bytes are read.
    fn mode(&self, now: Instant) -> Mode {
        // Of what others made, the first byte is of interest.
        if self.checker.is_none() {
            return if self.first_ns.is_none() || self.role == Role::Checked { Mode::All } else { Mode::Nothing };
        }
        match self.role {
            Role::Checked | Role::Slow(_) => Mode::All,
            _ if !self.has_begun => Mode::All,
            _ if now >= self.look_at => Mode::Look,
            _ => Mode::Nothing,
        }
    }

    /// Takes bytes that arrived at a known time.
    fn take(&mut self, bytes: &[u8], at_ns: u64, totals: &mut Totals, now: Instant) {
        if let Some(before_ns) = self.arrived_ns.replace(at_ns) {
            self.gap_ns = self.gap_ns.max(at_ns.saturating_sub(before_ns));
        }
        if self.first_ns.is_none() {
            self.first_ns = Some(at_ns);
            self.has_begun = self.checker.is_none();
            // Spread over the time, so that not all look at once.
            self.look_at = now + LOOK_EVERY.mul_f64(self.token as f64 * 0.618 % 1.0);
            totals.first_byte_of(self.role).record_ns(at_ns.saturating_sub(self.asked_ns));
        }
        let Some(checker) = &mut self.checker else { return };
        let (stream, is_checked, mut begun) = (checker.stream(), self.role == Role::Checked, false);
        checker.take(bytes, |stamp| {
            begun |= stream.is_start(stamp.number);
            if is_checked {
                totals.latency.record_ns(at_ns.saturating_sub(stamp.sent_ns));
            }
        });
        if begun && !self.has_begun {
            self.has_begun = true;
            totals.picture_of(self.role).record_ns(at_ns.saturating_sub(self.asked_ns));
        }
    }

    /// A decoder could begin: what comes from now on needs no time any more, unless all is looked at.
    fn begin(&mut self, socket: &TcpStream, shared: &Shared) -> io::Result<()> {
        if self.role != Role::Checked {
            set_timed(socket, false)?;
        }
        if self.is_in_turn(shared) {
            shared.epoll.remove(socket.as_fd())?;
        }
        Ok(())
    }

    fn look(&mut self, bytes: &[u8], now: Instant) {
        let Some(checker) = &mut self.checker else { return };
        checker.take(bytes, |_| {});
        // What came may have been too little.
        if checker.is_sure() {
            self.look_at = now + LOOK_EVERY;
        }
    }

    fn note(&mut self, len: usize, totals: &mut Totals, now: Instant) {
        self.bytes += len as u64;
        totals.bytes += len as u64;
        if self.is_stalled {
            totals.stalls.record(now.saturating_duration_since(self.last));
            self.is_stalled = false;
        }
        self.last = now;
    }

    /// Reads what came, of one who is read in turn.
    pub(super) fn handle_turn(&mut self, shared: &mut Shared, now: Instant) {
        self.handle(shared, Ready { token: self.token, readable: true, writable: false, failed: false }, now);
    }

    /// A slow one reads what he may.
    pub(super) fn handle_allowance(&mut self, shared: &mut Shared, span: Duration, now: Instant) {
        let Role::Slow(bytes_per_second) = self.role else { return };
        let Phase::Watching(socket) = &self.phase else { return };
        self.allowance = (self.allowance + bytes_per_second * span.as_secs_f64()).min(READ_BYTES as f64);
        let wanted = self.allowance as usize;
        if wanted == 0 {
            return;
        }
        match read_timed(socket, &mut shared.room[..wanted]) {
            Ok(None) => {}
            Ok(Some((len, at_ns))) if len > 0 => {
                self.allowance -= len as f64;
                let bytes = &shared.room[..len];
                self.take(bytes, at_ns, &mut shared.totals, now);
                self.note(len, &mut shared.totals, now);
            }
            // He was closed: some servers do so with who is slow.
            Ok(Some(_)) | Err(_) => {
                self.leave(shared);
                shared.totals.slow_closed += 1;
            }
        }
    }

    /// The counting begins.
    pub(super) fn count(&mut self) {
        (self.bytes, self.gap_ns) = (0, 0);
    }

    /// The longest that he got nothing, of one of whom all arrivals are known.
    pub(super) fn longest_gap_ns(&self) -> Option<u64> {
        (self.role == Role::Checked && self.gap_ns > 0).then_some(self.gap_ns)
    }

    /// For how long he has got nothing, when that is too long.
    pub(super) fn stalled_for(&self, now: Instant) -> Option<Duration> {
        self.is_stalled.then(|| now.saturating_duration_since(self.last))
    }

    /// Whether he has got nothing for longer than `limit`; true once each time.
    pub(super) fn begins_to_stall(&mut self, limit: Duration, now: Instant) -> bool {
        let is_late = self.role.is_on_time()
            && !self.is_stalled
            && self.is_watching()
            && now.saturating_duration_since(self.last) > limit;
        self.is_stalled |= is_late;
        is_late
    }
}

enum Mode {
    /// Every byte is looked at.
    All,
    /// Some are.
    Look,
    /// They are thrown away.
    Nothing,
}
