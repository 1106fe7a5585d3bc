//! A stream for those whose connection stays HTTP's: by HTTP/2, or behind other requests.
//!
//! In: the stream's backlog. Out: a body that goes on for as long as the stream does, from a start point, behind its header.
//! Cost: a task per viewer, and two pieces of the backlog.
//!
//! Pieces end between two units wherever they are not the last bytes there are, so who falls out of the window goes on at a start
//! point and nothing is torn; who was in the middle of the last bytes is closed. What was read is taken only when the window has
//! it still: a hole is punched after that has moved.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Bytes;
use hyper::body::{Body, Frame};
use reflect::coalesce::Share;
use reflect::spec::{DRAIN_MAX, EndReason, Join, Lag};
use reflect::window::{Growth, StartPoint, Units, Window};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;

use super::{COPIES, Stream};
use crate::reflect::inlet::Inlet;

/// Read at a time.
const PIECE: u64 = 64 * 1_024;

/// One edition of a stream, for those for whom it is copied. They get the rest of it when there is another one.
#[derive(Debug)]
pub(super) struct Copies {
    file: Arc<File>,
    there: Mutex<There>,
    /// That there is more; what it says is that no more comes.
    told: watch::Sender<bool>,
}

#[derive(Debug)]
struct There {
    /// `None`: it is another process's.
    window: Option<Window>,
    lag: Lag,
    /// Who copies.
    count: usize,
    /// Of a turn of all, in thousandths, what came of it since the last.
    turn: usize,
}

/// One viewer's.
pub struct Copier {
    stream: Arc<Stream>,
    copies: Arc<Copies>,
    told: watch::Receiver<bool>,
    place: Place,
    /// The header that he has seen.
    header: Option<u64>,
    /// A unit ends where he is.
    is_between: bool,
    skips: u32,
    sent_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// He waits for a start point that is not before this.
    Waits(u64),
    /// He begins there, behind its header.
    Begins(StartPoint),
    /// The next byte that he gets.
    At(u64),
}

/// What is to be done for him.
enum Next {
    /// Sent: a header.
    Send(Bytes),
    /// Read, and sent when it is still there. Whether it ends between units.
    Read(Range<u64>, bool),
    /// Nothing yet.
    Wait,
    End(EndReason),
}

impl Copies {
    /// Of what an inlet has; nobody copies it yet.
    fn new(inlet: &mut Inlet, lag: Lag, is_over: bool) -> Arc<Self> {
        let (file, units, growth) = inlet.add_reader(COPIES);
        let mut window = Window::new(units);
        window.grow(&growth);
        let there = There { window: Some(window), lag, count: 0, turn: 0 };
        Arc::new(Copies { file, there: Mutex::new(there), told: watch::Sender::new(is_over) })
    }

    /// There is more. Who copies is told once in a turn of all, as others are sent to.
    pub(super) fn grow(&self, growth: &Growth, share: Share) {
        let is_turn = {
            let mut there = self.there();
            if let Some(window) = &mut there.window {
                window.grow(growth);
                window.forget();
            }
            there.turn += share.thousandths();
            let is_turn = there.turn >= Share::ALL.thousandths();
            there.turn %= Share::ALL.thousandths();
            is_turn
        };
        if is_turn {
            self.told.send_modify(|_| {});
        }
    }

    pub(super) fn set_lag(&self, lag: Lag) {
        self.there().lag = lag;
    }

    /// No more comes. Who copies gets what is left, for `DRAIN_MAX` at most.
    pub(super) fn end(&self) {
        self.told.send_replace(true);
    }

    /// It goes over to another process, and nobody copies any more.
    pub(super) fn give_away(&self) {
        self.there().window = None;
        self.end();
    }

    fn there(&self) -> MutexGuard<'_, There> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    /// Begins a copy.
    pub(in crate::reflect) fn copy(self: &Arc<Self>, now: Instant, join: Join) -> Copier {
        let mut writer = self.lock();
        let (writer, is_over) = (&mut *writer, self.is_over());
        let copies =
            writer.copies.get_or_insert_with(|| Copies::new(&mut writer.inlet, writer.terms.lag, is_over)).clone();
        let mut there = copies.there();
        there.count += 1;
        let window = there.window.as_ref();
        let start = window.and_then(|window| match join {
            Join::Next => None,
            Join::Newest => window.last_start(),
            Join::Back(time) => window.start_at(now.checked_sub(time).unwrap_or(now)),
        });
        let from = window.filter(|_| join == Join::Next).map_or(0, |window| window.extent().end);
        drop(there);
        Copier {
            stream: self.clone(),
            told: copies.told.subscribe(),
            copies,
            place: start.map_or(Place::Waits(from), Place::Begins),
            header: None,
            is_between: true,
            skips: 0,
            sent_bytes: 0,
        }
    }
}

impl Copier {
    /// Begins; what comes is the body. It ends when that is `asked`, too; `ended` hears how it did.
    pub(in crate::reflect) fn start(self, asked: Arc<Notify>, ended: impl FnOnce(Copied) + Send + 'static) -> Copying {
        let (sender, pieces) = mpsc::channel(1);
        let mut told = self.told.clone();
        tokio::spawn(async move {
            let mut copy = self;
            let drained = async {
                // The sender is there for as long as the copy is.
                told.wait_for(|is_over| *is_over).await.ok();
                sleep(DRAIN_MAX).await;
            };
            let reason = tokio::select! {
                () = asked.notified() => EndReason::Asked,
                () = drained => EndReason::StreamEnded,
                reason = copy.run(sender) => reason,
            };
            ended(Copied { reason, skips: copy.skips, sent_bytes: copy.sent_bytes });
        });
        Copying(pieces)
    }

    /// Sends until there is no more, or nobody takes it.
    async fn run(&mut self, sender: mpsc::Sender<io::Result<Bytes>>) -> EndReason {
        loop {
            // What comes from here on is not missed.
            self.told.mark_unchanged();
            let bytes = match self.look() {
                Next::Send(bytes) => bytes,
                Next::Read(range, is_between) => match self.read(range, is_between) {
                    Some(bytes) => bytes,
                    None => continue,
                },
                Next::Wait => {
                    tokio::select! {
                        _ = self.told.changed() => {}
                        () = sender.closed() => return EndReason::Closed,
                    }
                    continue;
                }
                Next::End(reason) => {
                    if reason == EndReason::Lagged {
                        sender.send(Err(io::Error::other("too far behind"))).await.ok();
                    }
                    return reason;
                }
            };
            let len = bytes.len() as u64;
            if sender.send(Ok(bytes)).await.is_err() {
                return EndReason::Closed;
            }
            self.sent_bytes += len;
        }
    }

    fn look(&mut self) -> Next {
        let copies = self.copies.clone();
        // Before what is there: that is complete when it is over.
        let end = if *copies.told.borrow() { Next::End(EndReason::StreamEnded) } else { Next::Wait };
        let there = copies.there();
        let Some(window) = &there.window else { return Next::End(EndReason::StreamEnded) };
        let begin = window.extent().begin;
        match self.place {
            Place::At(position) if position < begin => {
                if there.lag == Lag::Close || !self.is_between {
                    return Next::End(EndReason::Lagged);
                }
                self.skips += 1;
                self.place = Place::Waits(begin);
            }
            Place::Begins(start) if start.at < begin => self.place = Place::Waits(begin),
            _ => {}
        }
        if let Place::Waits(from) = self.place {
            let Some(start) = window.last_start().filter(|start| start.at >= from) else { return end };
            self.place = Place::Begins(start);
        }
        if let Place::Begins(start) = self.place {
            self.place = Place::At(start.at);
            let header = window.header_of(start).filter(|header| self.header.replace(header.from) != Some(header.from));
            if let Some(header) = header.filter(|header| !header.bytes.is_empty()) {
                return Next::Send(Bytes::copy_from_slice(&header.bytes));
            }
        }
        let Place::At(position) = self.place else { return end };
        let (piece_end, is_between) = piece_end(window, position);
        if piece_end == position { end } else { Next::Read(position..piece_end, is_between) }
    }

    /// `None`: it is no longer there.
    fn read(&mut self, range: Range<u64>, is_between: bool) -> Option<Bytes> {
        let mut piece = vec![0; (range.end - range.start) as usize];
        self.copies.file.read_exact_at(&mut piece, range.start).ok()?;
        // Only now it is known that there was no hole.
        if range.start < self.copies.there().window.as_ref()?.extent().begin {
            return None;
        }
        (self.place, self.is_between) = (Place::At(range.end), is_between);
        Some(piece.into())
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        let mut writer = self.stream.lock();
        let is_last = {
            let mut there = self.copies.there();
            there.count -= 1;
            there.count == 0
        };
        if is_last && writer.copies.take_if(|copies| Arc::ptr_eq(copies, &self.copies)).is_some() {
            writer.inlet.remove_reader(COPIES);
            self.stream.room.notify_waiters();
        }
    }
}

/// Where a piece ends that begins at `at`, and whether that is between two units: so where it can be, if it is not the end.
fn piece_end(window: &Window, at: u64) -> (u64, bool) {
    let end = window.extent().end;
    let max = end.min(at + PIECE);
    let mut between = None;
    match window.units() {
        Units::Fixed(len) => between = Some(max / len * len).filter(|between| *between > at),
        Units::Marked => {
            while let Some(next) = window.unit_end(between.unwrap_or(at) + 1).filter(|next| *next <= max) {
                between = Some(next);
            }
        }
    }
    match between {
        Some(between) if between == max || max < end => (between, true),
        _ => (max, false),
    }
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reflect) struct Copied {
    pub(in crate::reflect) reason: EndReason,
    pub(in crate::reflect) skips: u32,
    /// Bytes that the connection took, some of which it may hold still.
    pub(in crate::reflect) sent_bytes: u64,
}

/// The body of an answer.
pub(in crate::reflect) struct Copying(mpsc::Receiver<io::Result<Bytes>>);

impl Body for Copying {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use reflect::window::{Extent, Growth};

    use super::*;

    #[test]
    fn pieces_end_between_units_but_at_the_end() {
        let growth = |boundaries: &[u64], end| Growth {
            extent: Extent { begin: 0, end },
            starts: vec![],
            boundaries: boundaries.to_vec(),
            headers: vec![],
            fresh: None,
        };
        let mut window = Window::new(Units::Marked);
        window.grow(&growth(&[100, 60_000, 70_000], 70_100));
        assert_eq!(piece_end(&window, 0), (60_000, true));
        assert_eq!(piece_end(&window, 100), (60_000, true));
        assert_eq!(piece_end(&window, 60_000), (70_100, false), "all there is");
        assert_eq!(piece_end(&window, 70_100), (70_100, false));
        window.grow(&growth(&[70_200], 70_200));
        assert_eq!(piece_end(&window, 70_100), (70_200, true));
        window.grow(&growth(&[], 200_000));
        assert_eq!(piece_end(&window, 70_200), (70_200 + PIECE, false), "one that is longer");
        let mut packets = Window::new(Units::Fixed(188));
        packets.grow(&growth(&[], 1 << 20));
        assert_eq!(piece_end(&packets, 188), ((188 + PIECE) / 188 * 188, true));
    }
}
