//! A stream to players that speak HLS: its playlist, and the segments behind it, from its backlog.
//!
//! In: what the stream's inlet finds in it, and requests for `index.m3u8`, `NUMBER.ts` and the like. Out: answers.
//!
//! A segment is read from the backlog in pieces, as its viewer takes them; of one that the backlog forgets meanwhile the answer
//! breaks off, so that nobody takes the zeros behind a hole for the stream. Who asks for the next segment, or for a playlist
//! that has it, waits for it (draft-pantos-hls-rfc8216bis §6.2.5.2), and no longer than three target durations.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use reflect::hls::{Found, Playlist, PlaylistState, Reached, Settings};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::http::Problem;

/// The name of a playlist; its stream's address stands before it.
pub const PLAYLIST: &str = "index.m3u8";

/// How long the first segment of a stream is waited for.
const FIRST_MAX: Duration = Duration::from_secs(15);

/// Read from the backlog, and held per viewer, at a time.
const PIECE: u64 = 64 * 1_024;

/// A playlist that is older has something new; a cache may spare us those who ask within that.
const PLAYLIST_CACHED: &str = "max-age=1";

/// A segment never changes, and nothing else ever has its address.
const SEGMENT_CACHED: &str = "max-age=3600, immutable";

/// One stream's.
#[derive(Debug)]
pub struct Hls {
    playlist: Mutex<Playlist>,
    /// What is at the end of it, for those who wait.
    edge: watch::Sender<Edge>,
    backlog: Arc<File>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edge {
    /// `Playlist::edge`.
    of: (u64, usize, bool),
    /// It has gone over to another process: nothing comes here any more.
    is_away: bool,
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Playlist,
    Segment(u64),
    Part(u64, u64),
    Map(u64),
}

impl Hls {
    /// Of a stream without a byte, whose bytes will stand in `backlog`, each at its own place.
    pub fn new(settings: Settings, backlog: Arc<File>) -> Self {
        Hls::of(Playlist::new(settings), backlog)
    }

    /// Of a stream that comes from another process; `end` is where its backlog ends. `None`: it cannot have been.
    pub fn restore(now: Instant, state: PlaylistState, end: u64, backlog: Arc<File>) -> Option<Self> {
        Playlist::restore(now, state, end).map(|playlist| Hls::of(playlist, backlog))
    }

    fn of(playlist: Playlist, backlog: Arc<File>) -> Self {
        let edge = Edge { of: playlist.edge(), is_away: false };
        Hls { edge: watch::Sender::new(edge), playlist: Mutex::new(playlist), backlog }
    }

    /// The playlist, for another process. Who waits here is answered with what is there, and asks again.
    pub fn give_away(&self, now: Instant) -> PlaylistState {
        let state = self.playlist().state(now);
        self.edge.send_modify(|edge| edge.is_away = true);
        state
    }

    /// Tells the playlist what is new. Bytes are written before, and a hole is punched after it is told to forget them.
    pub fn tell(&self, news: impl FnOnce(&mut Playlist)) {
        let mut playlist = self.playlist();
        news(&mut playlist);
        let edge = playlist.edge();
        drop(playlist);
        self.edge.send_if_modified(|before| std::mem::replace(&mut before.of, edge) != edge);
    }

    /// Answers a request for something beside the playlist, or for that; `query` is what stands behind the question mark.
    ///
    /// # Errors
    /// When there is no such thing.
    pub async fn answer(self: &Arc<Self>, name: &str, query: Option<&str>) -> Result<Response, Problem> {
        let nothing = || Problem::new(StatusCode::NOT_FOUND, "this stream has nothing of that name, or no longer");
        let wanted = Wanted::parse(name).ok_or_else(nothing)?;
        match wanted {
            Wanted::Playlist => self.answer_playlist(query.unwrap_or_default()).await,
            Wanted::Map(number) => {
                let map = self.playlist().map(number).ok_or_else(nothing)?;
                Ok(segment("video/mp4", Body::from(map.to_vec())))
            }
            Wanted::Segment(number) | Wanted::Part(number, _) => {
                self.wait(self.patience(), |playlist| wanted.find(playlist) != Found::Next).await;
                let (header, range) = match wanted.find(&self.playlist()) {
                    Found::There { header, range } => (header, range),
                    Found::Next => return Err(Problem::unavailable("what was waited for did not come", 1)),
                    Found::Gone => return Err(nothing()),
                };
                let content_type = if name.ends_with(".ts") { "video/mp2t" } else { "video/mp4" };
                let header = Some(Bytes::from(header.to_vec())).filter(|header| !header.is_empty());
                Ok(segment(content_type, Body::new(Pieces { hls: self.clone(), number, header, range })))
            }
        }
    }

    async fn answer_playlist(&self, query: &str) -> Result<Response, Problem> {
        let waits = Waits::parse(query)?;
        let is_there = |playlist: &Playlist| match waits.number {
            Some(number) => playlist.text("").is_some() && playlist.reaches(number, waits.part) != Reached::NotYet,
            None => playlist.target().is_some(),
        };
        let came = self.wait(self.patience(), is_there).await;
        let (text, reached) = {
            let playlist = self.playlist();
            (playlist.text(&waits.rest), waits.number.map(|number| playlist.reaches(number, waits.part)))
        };
        let text = text.ok_or_else(|| Problem::unavailable("the stream has no segment yet", 1))?;
        match reached {
            Some(Reached::TooFar) => {
                Err(Problem::new(StatusCode::BAD_REQUEST, "_HLS_msn or _HLS_part is far from what is there"))
            }
            Some(Reached::NotYet) if !came => Err(Problem::unavailable("what was waited for did not come", 1)),
            _ => {
                let headers =
                    [(header::CONTENT_TYPE, "application/vnd.apple.mpegurl"), (header::CACHE_CONTROL, PLAYLIST_CACHED)];
                Ok((headers, text).into_response())
            }
        }
    }

    /// The longest that a segment may play, rounded to seconds. `None` before the first segment.
    pub fn target(&self) -> Option<Duration> {
        self.playlist().target()
    }

    /// How long what comes next is waited for (§6.2.5.2 of the draft: three target durations).
    fn patience(&self) -> Duration {
        self.target().map_or(FIRST_MAX, |target| 3 * target)
    }

    /// Waits until it is so, or can no longer become so here; returns whether that was in time.
    async fn wait(&self, patience: Duration, is_so: impl Fn(&Playlist) -> bool) -> bool {
        let mut edge = self.edge.subscribe();
        let waited = timeout(patience, edge.wait_for(|edge| edge.is_away || is_so(&self.playlist()))).await;
        waited.is_ok()
    }

    /// A panic while it was told something leaves it behind by that, no more.
    fn playlist(&self) -> MutexGuard<'_, Playlist> {
        self.playlist.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn segment(content_type: &'static str, body: Body) -> Response {
    ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, SEGMENT_CACHED)], body).into_response()
}

impl Wanted {
    fn parse(name: &str) -> Option<Wanted> {
        if name == PLAYLIST {
            return Some(Wanted::Playlist);
        }
        if let Some(number) = name.strip_prefix("init-") {
            return number.strip_suffix(".mp4").and_then(number_of).map(Wanted::Map);
        }
        let name = name.strip_suffix(".ts").or_else(|| name.strip_suffix(".m4s"))?;
        match name.split_once('.') {
            Some((number, index)) => Some(Wanted::Part(number_of(number)?, number_of(index)?)),
            None => number_of(name).map(Wanted::Segment),
        }
    }

    fn find(self, playlist: &Playlist) -> Found {
        match self {
            Wanted::Segment(number) => playlist.segment(number),
            Wanted::Part(number, index) => playlist.part(number, index),
            Wanted::Playlist | Wanted::Map(_) => Found::Gone,
        }
    }
}

/// Digits alone, and no sign: each thing has one address.
fn number_of(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

/// What a player waits for, by the query of its request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Waits {
    number: Option<u64>,
    part: Option<u64>,
    /// The rest of the query, with a question mark, for the addresses in the playlist: a token goes with them.
    rest: String,
}

impl Waits {
    /// # Errors
    /// When one of the directives is no number, or the part stands without its segment.
    fn parse(query: &str) -> Result<Waits, Problem> {
        let mut waits = Waits { rest: passed_on(query), ..Waits::default() };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let wrong = || Problem::new(StatusCode::BAD_REQUEST, format!("{key} is no number"));
            match key {
                "_HLS_msn" => waits.number = Some(number_of(value).ok_or_else(wrong)?),
                "_HLS_part" => waits.part = Some(number_of(value).ok_or_else(wrong)?),
                // Those that are not known are to be ignored.
                _ => {}
            }
        }
        if waits.part.is_some() && waits.number.is_none() {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "_HLS_part goes with _HLS_msn"));
        }
        Ok(waits)
    }
}

/// What of a query goes on in the addresses of a playlist, with a question mark: not what is for the playlist alone. What would
/// end a line, or a quoted address, goes on in percent signs (RFC 3986 §2.1), and so is the same to who reads it.
pub(super) fn passed_on(query: &str) -> String {
    let mut passed = String::with_capacity(query.len() + 1);
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("_HLS_")) {
        passed.push(if passed.is_empty() { '?' } else { '&' });
        for byte in pair.bytes() {
            if byte.is_ascii_graphic() && byte != b'"' {
                passed.push(byte.into());
            } else {
                // Writing to a string cannot fail.
                let _ = write!(passed, "%{byte:02X}");
            }
        }
    }
    passed
}

/// A segment, or a part of one, piece by piece.
struct Pieces {
    hls: Arc<Hls>,
    /// The segment's.
    number: u64,
    header: Option<Bytes>,
    /// What is still to be read.
    range: Range<u64>,
}

impl Pieces {
    fn read(&mut self) -> io::Result<Bytes> {
        let mut piece = vec![0; (self.range.end - self.range.start).min(PIECE) as usize];
        self.hls.backlog.read_exact_at(&mut piece, self.range.start)?;
        // Only now it is known that there was no hole.
        if self.hls.playlist().segment(self.number) == Found::Gone {
            return Err(io::Error::other("the backlog has gone on"));
        }
        self.range.start += piece.len() as u64;
        Ok(piece.into())
    }
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(match self.header.take() {
            Some(header) => Some(Ok(Frame::data(header))),
            None if self.is_end_stream() => None,
            None => Some(self.read().map(Frame::data)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.header.is_none() && self.range.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let header_len = self.header.as_ref().map_or(0, Bytes::len) as u64;
        SizeHint::with_exact(header_len + self.range.end - self.range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_in_the_playlist_ends_no_line_and_no_quotes() {
        let waits = Waits::parse("a=1&_HLS_msn=7&\"&_HLS_part=0&&b=\n \u{e9}%20&c&_HLS_skip=YES").expect("numbers");
        assert_eq!(waits, Waits { number: Some(7), part: Some(0), rest: "?a=1&%22&b=%0A%20%C3%A9%20&c".to_owned() });
        assert_eq!(passed_on(&waits.rest[1..]), waits.rest, "a player's next request is its own");
    }

    #[test]
    fn each_thing_has_one_name() {
        let names = ["index.m3u8", "7.ts", "7.0.m4s", "init-7.mp4"].map(Wanted::parse);
        let wanted = [Wanted::Playlist, Wanted::Segment(7), Wanted::Part(7, 0), Wanted::Map(7)];
        assert_eq!(names, wanted.map(Some));
        let wrong = ["", ".ts", "07.ts", "+7.ts", "7..ts", "7.0.0.ts", "7.mp4", "init-.mp4", "18446744073709551616.ts"];
        assert!(wrong.iter().all(|name| Wanted::parse(name).is_none()));
    }
}
