//! One TCP connection: what it keeps of what came, and what waits to leave.
//!
//! In: bytes as the kernel has them. Out: bytes as it takes them. What they mean is for others.
//! Cost: some 150 bytes; buffers only while there is something in them (`buffers`).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::framing::Framing;
use wire::{Begun, Bitrate, CloseReason, LinkId, LinkKind, Outbox, Piece, StreamOptions};

use super::buffers::{Backlog, Buffers};
use super::rest::Rest;
use super::sealed::{Sealed, Sealer};
use super::{FRAME_MAX, READ_MAX};
use crate::sys::{self, BufferSide, FileSender, Interest, KernelTls};

/// Bytes written to one connection before others get their turn. What is left is told as if the kernel had no room, which
/// it says it has at once. So many pages, of which the first and the last may be parts, go through a pipe together.
const WRITE_MAX: usize = 255 * 4_096;

/// Of a second: what leaves in it at a connection's pace the kernel takes at once. A pace at which that is more than
/// `PACED_UNSENT_MAX` bytes is none. Never less than before: who is sent little at once, again and again, gets scraps.
const PACED_PART: u64 = 20;
const PACED_UNSENT_MAX: u64 = 4 << 20;

/// For how long a connection that nobody wants may take to end.
pub(super) const CLOSING_MAX: Duration = Duration::from_secs(30);

/// For how long the other side of a connection that was asked for may take to answer. The kernel would try for two minutes.
pub(super) const CONNECTING_MAX: Duration = Duration::from_secs(30);

/// For how long a frame that has begun may take to end.
pub(super) const FRAME_TIME_MAX: Duration = Duration::from_secs(30);

/// Pieces of memory in one write.
const SLICES_MAX: usize = 16;

/// Bytes of a byte stream that are sealed together, and wait here if the kernel has no room for them: a record of TLS.
const SEALED_MAX: usize = 16 * 1_024;

pub(crate) struct Stream {
    socket: TcpStream,
    pub(super) remote: SocketAddr,
    pub(super) options: Arc<StreamOptions>,
    /// The listener that brought it.
    pub(super) listener: Option<LinkId>,
    /// The beginning of a frame that is not whole, and how long that is at least; 0 when nobody has looked yet, or there is
    /// none.
    rest: Vec<u8>,
    frame_len: usize,
    /// Bytes of the longest frame that is taken.
    pub(super) frame_max: usize,
    backlog: Backlog,
    /// What it is under. What waits is sealed already, unless the kernel does it.
    sealed: Option<Box<Sealed>>,
    /// When it last brought something, but for what only goes on with a frame.
    pub(super) heard: Instant,
    /// Nothing was sent to it yet, and such connections have limits.
    pub(super) is_stranger: bool,
    /// Something was sent to it since the last sweep, and when that was so last. Where strangers have no limits nobody asks.
    is_answered: bool,
    answered: Instant,
    /// What the kernel tells of it.
    pub(super) interest: Interest,
    phase: Phase,
    /// The other side sends no more.
    pub(super) has_input_ended: bool,
    /// What it brings stays in the kernel until somebody wants it.
    pub(super) is_paused: bool,
    /// It was written to since the last flush.
    pub(super) is_touched: bool,
    /// It is closing, the kernel seals, and all that it sent until the last sweep was acknowledged.
    is_drained: bool,
    /// Bytes that the kernel takes beyond what is on its way, where that is limited.
    unsent_max: Option<u32>,
    room: Room,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The other side has not answered yet; nobody knows of it.
    Connecting,
    Open,
    /// Nobody wants it any more. What waits leaves, then the other side is told that this was all, and what it sends is
    /// dropped until it has told the same: a socket that is closed with unread input is reset, and what the kernel had not
    /// sent is lost. All that for a limited time.
    Closing {
        until: Instant,
    },
}

/// Whether the writer of a byte stream waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// He does not.
    Free,
    /// He wants to be told when there is some.
    Watched,
    /// Something was not taken. Nothing more is, until he has heard that there is room: what he wrote before he knew of it
    /// belongs behind what was not taken.
    Blocked,
    /// There is room, and he is about to hear so.
    Announced,
}

/// What a read brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// So many bytes lie in the buffer, of which those at the front were kept from before; there may be more.
    Bytes {
        len: usize,
        is_full: bool,
    },
    Nothing,
    /// The other side sends no more.
    End,
    Failure,
}

impl Stream {
    pub(super) fn new(
        now: Instant,
        socket: TcpStream,
        remote: SocketAddr,
        options: Arc<StreamOptions>,
        listener: Option<LinkId>,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        if let Some(limit) = options.unacknowledged_max {
            sys::set_tcp_user_timeout(socket.as_fd(), limit)?;
        }
        if let Some(bytes) = options.send_buffer_bytes {
            sys::set_buffer_bytes(socket.as_fd(), BufferSide::Send, bytes)?;
        }
        if let Some(bytes) = options.unsent_max {
            sys::set_unsent_max(socket.as_fd(), bytes)?;
        }
        sys::set_sending(&socket, &options.sending)?;
        let unsent_max = options.unsent_max;
        let (is_stranger, frame_max) = (listener.is_some() && options.strangers.is_some(), options.frame_max);
        Ok(Stream {
            socket,
            remote,
            options,
            listener,
            rest: Vec::new(),
            frame_len: 0,
            frame_max,
            backlog: Backlog::default(),
            sealed: None,
            heard: now,
            is_stranger,
            is_answered: false,
            answered: now,
            interest: Interest::READ,
            phase: Phase::Open,
            has_input_ended: false,
            is_paused: false,
            is_touched: false,
            is_drained: false,
            unsent_max,
            room: Room::Free,
        })
    }

    /// Lets the kernel send no faster, and take as much at once as a fast pace needs.
    pub(super) fn set_pace(&mut self, rate: Bitrate) -> io::Result<()> {
        sys::set_pacing(self.as_fd(), rate)?;
        let paced = rate.bps() / 8 / PACED_PART;
        if self.unsent_max.is_some_and(|max| (u64::from(max)..PACED_UNSENT_MAX).contains(&paced)) {
            self.unsent_max = Some(paced as u32);
            sys::set_unsent_max(self.as_fd(), paced as u32)?;
        }
        Ok(())
    }

    /// Makes a connection, which is under way.
    pub(super) fn connect(
        now: Instant,
        to: SocketAddr,
        from: Option<SocketAddr>,
        options: StreamOptions,
    ) -> io::Result<Self> {
        let socket = sys::tcp_connect(&to, from.as_ref())?;
        let stream = Self::new(now, socket, to, Arc::new(options), None)?;
        Ok(Stream { phase: Phase::Connecting, interest: Interest { read: true, write: true }, ..stream })
    }

    /// A connection on which others have begun to speak.
    pub(super) fn resume(now: Instant, socket: TcpStream, options: StreamOptions, begun: Begun) -> io::Result<Self> {
        let Begun { remote, received, cipher, sealed } = begun;
        if received.len() > FRAME_MAX || sealed.len() > READ_MAX {
            return Err(ErrorKind::InvalidInput.into());
        }
        let peer = socket.peer_addr()?;
        let stream = Self::new(now, socket, remote.unwrap_or(peer), Arc::new(options), None)?;
        let sealed = cipher.map(|cipher| Box::new(Sealed::new(cipher, sealed)));
        Ok(Stream { rest: received.into(), sealed, ..stream })
    }

    pub(super) fn kind(&self) -> LinkKind {
        if self.options.framing.is_some() { LinkKind::Framed } else { LinkKind::Stream }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// What the kernel is to tell of it.
    pub(super) fn wanted(&self) -> Interest {
        let awaits_room = matches!(self.room, Room::Watched | Room::Blocked);
        Interest {
            read: !self.has_input_ended && !self.is_paused,
            write: self.is_connecting() || awaits_room || self.has_backlog(),
        }
    }

    pub(super) fn is_connecting(&self) -> bool {
        self.phase == Phase::Connecting
    }

    /// Whether what is written for it is taken.
    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// The other side has answered.
    pub(super) fn open(&mut self, now: Instant) {
        debug_assert!(self.is_connecting(), "it is opened once");
        (self.phase, self.heard) = (Phase::Open, now);
    }

    /// What it brings is wanted, or to stay in the kernel. It is not silent meanwhile.
    pub(super) fn set_reading(&mut self, now: Instant, is_on: bool) {
        debug_assert!(self.is_open(), "what a link that nobody wants brings is dropped");
        if self.is_paused && is_on {
            self.heard = now;
        }
        self.is_paused = !is_on;
    }

    /// Nobody wants it any more: what it brings is dropped.
    pub(super) fn begin_closing(&mut self, now: Instant, buffers: &mut Buffers) {
        debug_assert!(self.is_open(), "who asks again does not wait");
        self.phase = Phase::Closing { until: now + CLOSING_MAX };
        self.room = Room::Free;
        self.is_paused = false;
        self.give_rest(buffers);
        if let Some(sealed) = &mut self.sealed {
            sealed.end(&mut self.backlog, buffers);
        }
    }

    /// It is about to be closed, and nobody waits until what is still said to its other side gets there.
    pub(super) fn say_goodbye(&mut self, buffers: &mut Buffers) {
        if let Some(sealed) = self.sealed.as_mut().filter(|_| self.phase == Phase::Open && self.backlog.is_empty()) {
            sealed.end(&mut self.backlog, buffers);
            self.write_once(buffers);
        }
    }

    /// All that waited has left: tells the other side that this was all. False when it has told the same, or is gone.
    pub(super) fn end_output(&self) -> bool {
        debug_assert!(self.is_closing() && !self.has_backlog(), "nothing may follow");
        self.is_sealed_by_kernel() || (!self.has_input_ended && self.socket.shutdown(Shutdown::Write).is_ok())
    }

    /// The same where the kernel seals: it may have records that have found no room yet, which would be lost, and it tells
    /// nobody. So the other side has to have acknowledged all that it was sent, and once more a sweep later, as records may
    /// have followed. Whoever has heard that this was all ends the connection before.
    fn end_output_of_kernel(&mut self) -> Option<CloseReason> {
        let is_drained = self.is_all_out();
        let is_sure = std::mem::replace(&mut self.is_drained, is_drained) && is_drained;
        // Nobody minds when it was shut down before.
        let is_over = is_sure && (self.has_input_ended || self.socket.shutdown(Shutdown::Write).is_err());
        is_over.then_some(CloseReason::Asked)
    }

    /// Whether nothing more is to leave, as far as can be told.
    pub(super) fn is_all_out(&self) -> bool {
        let is_acknowledged = || !matches!(sys::unacknowledged(self.as_fd()), Ok(bytes) if bytes > 0);
        !self.has_backlog() && (!self.is_sealed_by_kernel() || is_acknowledged())
    }

    fn is_sealed_by_kernel(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.is_by_kernel())
    }

    /// Who seals what leaves, where it is sealed.
    pub(super) fn sealer(&self) -> Option<Sealer> {
        self.sealed.as_ref().map(|sealed| sealed.sealer)
    }

    /// Whether it can be given no more data, and is to be closed.
    pub(super) fn has_to_end(&self) -> bool {
        self.is_open() && self.sealed.as_ref().is_some_and(|sealed| sealed.has_to_end())
    }

    /// Whether there is something to handle that the kernel knows nothing of.
    pub(super) fn has_unread(&self) -> bool {
        let has_fresh = self.frame_len == 0 && !self.rest.is_empty();
        let is_awaited = self.is_open() && !self.is_paused && !self.has_input_ended;
        is_awaited && (has_fresh || self.sealed.as_ref().is_some_and(|sealed| sealed.has_unread()))
    }

    /// Reads into `buffer`, behind what was kept; at most `read_max` bytes at a time. What does not end the frame that has
    /// begun is kept with its beginning, so each byte is copied twice at most, however few come at a time.
    pub(super) fn read(&mut self, now: Instant, buffer: &mut [u8], read_max: usize, buffers: &mut Buffers) -> Got {
        loop {
            let kept = self.rest.len();
            let Some(room) = buffer.get_mut(kept..) else { return Got::Failure };
            let is_fresh = self.frame_len == 0 && kept > 0;
            let (count, is_full) = match self.read_once(now, room, read_max, is_fresh, buffers) {
                Ok(Got::Bytes { len, is_full }) => (len, is_full),
                Ok(got) => return got,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Got::Nothing;
                }
                Err(_) => return Got::Failure,
            };
            if kept + count >= self.frame_len.max(1) {
                buffer[..kept].copy_from_slice(&self.rest);
                self.give_rest(buffers);
                self.heard = now;
                return Got::Bytes { len: kept + count, is_full };
            }
            self.rest.extend_from_slice(&room[..count]);
            if !is_full {
                return Got::Nothing;
            }
        }
    }

    /// Reads plain bytes, which under a cipher may be none. What came before comes first.
    fn read_once(
        &mut self,
        now: Instant,
        room: &mut [u8],
        read_max: usize,
        is_fresh: bool,
        buffers: &mut Buffers,
    ) -> io::Result<Got> {
        if is_fresh {
            return Ok(Got::Bytes { len: 0, is_full: true });
        }
        let (is_open, is_stream) = (self.is_open(), self.kind() == LinkKind::Stream);
        let Some(sealed) = self.sealed.as_mut().filter(|_| is_open) else {
            let read_max = read_max.min(room.len());
            let len = self.socket.read(&mut room[..read_max])?;
            return Ok(if len == 0 { Got::End } else { Got::Bytes { len, is_full: len == read_max } });
        };
        let was_unfinished = sealed.is_unfinished();
        let got = sealed.read(&self.socket, is_stream, room, read_max, buffers);
        // A record that begins is a sign of life, and has to end.
        if sealed.is_unfinished() && !was_unfinished {
            self.heard = now;
        }
        let was_empty = self.backlog.is_empty();
        sealed.answer(&mut self.backlog, buffers);
        if matches!(got, Ok(Got::Failure)) && was_empty {
            // Why it is closed.
            self.write_once(buffers);
        }
        got
    }

    /// Writes what the kernel has room for, whatever becomes of it.
    fn write_once(&mut self, buffers: &mut Buffers) {
        if self.is_sealed_by_kernel() {
            self.write_backlog(buffers).ok();
            return;
        }
        let written = self.socket.write(self.backlog.bytes()).unwrap_or(0);
        self.backlog.consume(written, buffers);
    }

    /// Keeps the beginning of a frame until as many bytes are there.
    pub(super) fn keep(&mut self, rest: &[u8], frame_len: usize, buffers: &mut Buffers) {
        debug_assert!(self.rest.is_empty() && rest.len() < frame_len, "one frame, and not a whole one");
        if !rest.is_empty() {
            self.rest = buffers.take();
            self.rest.extend_from_slice(rest);
            self.frame_len = frame_len;
        }
    }

    fn give_rest(&mut self, buffers: &mut Buffers) {
        buffers.give(std::mem::take(&mut self.rest));
        self.frame_len = 0;
    }

    /// Queues one datagram, in two parts, as a frame, while no more than `backlog_max` bytes wait. False when there is no
    /// room: then nothing is queued.
    pub(super) fn queue_frame(
        &mut self,
        framing: Framing,
        [first, second]: [&[u8]; 2],
        backlog_max: usize,
        buffers: &mut Buffers,
    ) -> bool {
        debug_assert!(self.is_open(), "nothing is queued on a link that nobody wants");
        let len = first.len() + second.len();
        let Some(wrapping) = framing.wrap(len) else { return false };
        let whole = wrapping.header().len() + len + wrapping.padding().len();
        if self.backlog.len() + whole > backlog_max {
            return false;
        }
        let parts = [wrapping.header(), first, second, wrapping.padding()];
        match &mut self.sealed {
            None => parts.iter().for_each(|part| self.backlog.push(part, buffers)),
            Some(sealed) => sealed.seal_frame(parts, &mut self.backlog, buffers),
        }
        true
    }

    /// Whether all frames that were queued could be: a cipher may be used up.
    pub(super) fn is_sound(&self) -> bool {
        self.sealed.as_ref().is_none_or(|sealed| sealed.is_sound())
    }

    /// Writes until all that waits is written, or the kernel has no room, or others are to have their turn. Returns how many
    /// bytes were.
    pub(super) fn write_backlog(&mut self, buffers: &mut Buffers) -> io::Result<usize> {
        let mut written = 0;
        let ends = self.backlog.is_empty() && self.sealed.as_ref().is_some_and(|sealed| sealed.owes_end);
        if !ends && !self.settle()? {
            return Ok(0);
        }
        while !self.backlog.is_empty() && written < WRITE_MAX {
            let bytes = self.backlog.bytes();
            match self.socket.write(&bytes[..bytes.len().min(WRITE_MAX - written)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    written += count;
                    self.backlog.consume(count, buffers);
                    self.count_sealed(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(sealed) = self.sealed.as_mut().filter(|_| self.backlog.is_empty()) {
            sealed.settle_end(&self.socket)?;
        }
        Ok(written)
    }

    /// Where the kernel seals: does what comes before the next data. False when there is none for now, or at all.
    fn settle(&mut self) -> io::Result<bool> {
        self.sealed.as_mut().map_or(Ok(true), |sealed| sealed.settle(&self.socket))
    }

    fn count_sealed(&mut self, bytes: usize) {
        if let Some(sealed) = &mut self.sealed {
            sealed.count_sealed(bytes);
        }
    }

    /// Whether what is written is to be sealed here.
    fn seals_here(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| !sealed.is_by_kernel())
    }

    /// Writes pieces as far as the kernel takes them. A piece that was copied is taken whole or not at all: what the
    /// kernel leaves of it waits here. Of the others nothing waits. Returns how many bytes were not taken.
    pub(super) fn write_pieces(
        &mut self,
        (out, pieces): (&Outbox, &[Piece]),
        kernel: KernelTls,
        (files, buffers): (&mut FileSender, &mut Buffers),
    ) -> io::Result<usize> {
        debug_assert!(self.is_open(), "nothing is written to a link that nobody wants");
        let mut rest = Rest::new(out, pieces);
        if matches!(self.room, Room::Blocked | Room::Announced) {
            return Ok(rest.len());
        }
        if self.settle()? {
            self.write_rest(&mut rest, kernel, (files, buffers))?;
        }
        if !rest.is_empty() {
            debug_assert!(matches!(self.room, Room::Free | Room::Watched), "who is blocked writes no more");
            self.room = Room::Blocked;
        }
        Ok(rest.len())
    }

    fn write_rest(
        &mut self,
        rest: &mut Rest<'_>,
        kernel: KernelTls,
        (files, buffers): (&mut FileSender, &mut Buffers),
    ) -> io::Result<()> {
        let mut written = 0;
        while self.seals_here() && !rest.is_empty() && self.backlog.is_empty() && written < WRITE_MAX {
            if self.sealer() != Some(Sealer::Unasked) || rest.file().is_none() {
                self.seal_some(rest, buffers)?;
                written += self.write_backlog(buffers)?;
            } else if !self.ask_kernel(kernel, buffers)? {
                written += self.write_backlog(buffers)?;
            }
        }
        while !self.seals_here() && !rest.is_empty() && self.backlog.is_empty() && written < WRITE_MAX {
            let (asked, result) = self.write_some(rest, files, WRITE_MAX - written);
            match result {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    written += count;
                    rest.advance(count);
                    self.count_sealed(count);
                    if count < asked {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        while let Some(copied) = rest.copied() {
            // What has begun has to end.
            if !rest.has_begun() && self.backlog.len() + copied.len() > self.options.backlog_max {
                break;
            }
            match self.sealed.as_mut().filter(|sealed| !sealed.is_by_kernel()) {
                None => self.backlog.push(copied, buffers),
                Some(sealed) => sealed.seal(copied, &mut self.backlog, buffers).map_err(io::Error::other)?,
            }
            rest.advance(copied.len());
        }
        Ok(())
    }

    /// Asks the kernel to seal. False: something has to leave before.
    fn ask_kernel(&mut self, kernel: KernelTls, buffers: &mut Buffers) -> io::Result<bool> {
        let Some(sealed) = &mut self.sealed else { return Ok(true) };
        sealed.ask_kernel(&self.socket, kernel, &mut self.backlog, buffers).map_err(io::Error::other)
    }

    /// One write: of the file that comes first, or of all memory before the next file. Returns what was asked for, and what
    /// came of it.
    fn write_some(&mut self, rest: &Rest<'_>, files: &mut FileSender, count_max: usize) -> (usize, io::Result<usize>) {
        if let Some((file, at, len)) = rest.file() {
            let asked = len.min(count_max);
            return (asked, files.send(self.socket.as_fd(), file, at, asked));
        }
        let mut slices = [io::IoSlice::new(&[]); SLICES_MAX];
        let (mut count, mut asked) = (0, 0);
        for bytes in rest.memory().take(SLICES_MAX) {
            let bytes = &bytes[..bytes.len().min(count_max - asked)];
            slices[count] = io::IoSlice::new(bytes);
            (count, asked) = (count + 1, asked + bytes.len());
        }
        (asked, self.socket.write_vectored(&slices[..count]))
    }

    /// Seals what comes first, as much as goes together.
    fn seal_some(&mut self, rest: &mut Rest<'_>, buffers: &mut Buffers) -> io::Result<()> {
        let Some(sealed) = &mut self.sealed else { return Ok(()) };
        let mut plain = buffers.take();
        let done = rest.copy_some(&mut plain, SEALED_MAX).and_then(|()| {
            rest.advance(plain.len());
            sealed.seal(&plain, &mut self.backlog, buffers).map_err(io::Error::other)
        });
        buffers.give(plain);
        done
    }

    /// Whether something waits until the kernel has room.
    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty() || self.sealed.as_ref().is_some_and(|sealed| sealed.owes_steps())
    }

    #[cfg(test)]
    pub(super) fn backlog_bytes(&self) -> usize {
        self.backlog.len()
    }

    /// Memory of all its buffers.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        let sealed = self.sealed.as_ref().map_or(0, |sealed| sealed.kept_bytes());
        self.rest.capacity() + self.backlog.capacity() + sealed
    }

    /// The connection once more, what waits to leave, and what came and was not handled. `None`: it is under a cipher, or no
    /// descriptor is left.
    pub(super) fn give_up(&self) -> Option<(OwnedFd, [Box<[u8]>; 2])> {
        let descriptor = self.socket.as_fd().try_clone_to_owned().ok().filter(|_| self.sealed.is_none())?;
        Some((descriptor, [self.backlog.bytes(), &self.rest].map(Box::from)))
    }

    /// The writer wants to be told when there is room.
    pub(super) fn watch_room(&mut self) {
        if self.room == Room::Free {
            self.room = Room::Watched;
        }
    }

    /// Whether there is room, and the writer waits for it. He is to be told, once.
    pub(super) fn announces_room(&mut self) -> bool {
        let is_awaited = matches!(self.room, Room::Watched | Room::Blocked) && !self.has_backlog();
        if is_awaited {
            self.room = Room::Announced;
        }
        is_awaited
    }

    /// The writer has heard that there is room.
    pub(super) fn end_announcement(&mut self) {
        debug_assert_eq!(self.room, Room::Announced, "it is told once");
        self.room = Room::Free;
    }

    /// Something is sent to it. True when that is the first, and such connections have limits.
    pub(super) fn answer(&mut self) -> bool {
        self.is_answered = true;
        std::mem::take(&mut self.is_stranger)
    }

    /// Whether it is not to stay as it is for ever.
    pub(super) fn is_impatient(&self) -> bool {
        let options = &self.options;
        let has_limits = options.silence_max.is_some() || options.strangers.is_some();
        // Of frames and records the beginning is kept, for a while.
        let keeps_beginnings = options.framing.is_some() || self.sealed.is_some();
        self.is_connecting() || self.is_closing() || has_limits || keeps_beginnings
    }

    /// Why it is to be closed by now, if it is. To be asked about once a second.
    pub(super) fn sweep(&mut self, now: Instant) -> Option<CloseReason> {
        if std::mem::take(&mut self.is_answered) {
            self.answered = now;
        }
        if let Phase::Closing { until } = self.phase {
            let is_over = if self.is_sealed_by_kernel() { self.end_output_of_kernel() } else { None };
            return is_over.or((until <= now).then_some(CloseReason::Asked));
        }
        if self.is_paused {
            return None;
        }
        let is_over = |since: Instant, limit| now.saturating_duration_since(since) >= limit;
        let silence_max = self.options.silence_max;
        if self.is_connecting() {
            let limit = silence_max.map_or(CONNECTING_MAX, |limit| limit.min(CONNECTING_MAX));
            return is_over(self.heard, limit).then_some(CloseReason::Silent);
        }
        if let Some(limits) = self.listener.and(self.options.strangers) {
            // What it brings is no sign of life unless the product answers: anybody can send bytes.
            if self.is_stranger && is_over(self.answered, limits.age_max) {
                return Some(CloseReason::Stranger);
            }
            if silence_max.is_some_and(|limit| is_over(self.answered, limit)) {
                return Some(CloseReason::Silent);
            }
        }
        let is_unfinished = !self.rest.is_empty() || self.sealed.as_ref().is_some_and(|sealed| sealed.is_unfinished());
        let unfinished = is_unfinished.then_some(FRAME_TIME_MAX);
        let limit = unfinished.into_iter().chain(silence_max).min()?;
        is_over(self.heard, limit).then_some(CloseReason::Silent)
    }

    /// Lets go of its buffers.
    pub(super) fn release(&mut self, buffers: &mut Buffers) {
        self.give_rest(buffers);
        self.backlog.consume(self.backlog.len(), buffers);
        if let Some(sealed) = &mut self.sealed {
            sealed.release(buffers);
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
