//! An HTTP origin with as many titles as one asks for: all are the same bytes, and to a server each is another one.
//!
//! In: the bytes, and where to listen. Out: `/NAME.ts`, whole or by range, with an ETag of its own. What is called
//! `slow-`, `dead-`, `truncated-`, `wrong-`, `gone-` or `error-` something begins well and then breaks that promise.
//! Cost: a thread for each connection; the bytes are in memory once.
//! Source: RFC 9110 §14 (ranges).

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Connections at a time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 1_024;

/// A connection without a request for this long is closed, and so is one whose client reads nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request's line and headers; longer ones are no requests.
const REQUEST_BYTES_MAX: u64 = 16 << 10;

/// A title that breaks does so from this byte on: by then it is played.
pub(super) const SOUND_BYTES: u64 = 512 << 10;

/// A slow title comes in pieces of this many bytes, so many a second: far less than it plays, and never a stall.
const SLOW_BYTES: usize = 1_316;
const SLOW_PAUSE: Duration = Duration::from_millis(100);

/// What a title that breaks does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It comes much slower than it plays.
    Slow,
    /// It is promised, and does not come.
    Dead,
    /// The connection ends in the middle.
    Truncated,
    /// Other bytes come than were asked for.
    Wrong,
    /// It is not there any more (404).
    Gone,
    /// The origin has an error (500).
    Error,
}

const FAULTS: [(&str, Fault); 6] = [
    ("slow", Fault::Slow),
    ("dead", Fault::Dead),
    ("truncated", Fault::Truncated),
    ("wrong", Fault::Wrong),
    ("gone", Fault::Gone),
    ("error", Fault::Error),
];

/// The name of a title that breaks; their faults take turns.
pub(super) fn faulty_title(number: usize) -> String {
    let (name, _) = FAULTS[number % FAULTS.len()];
    format!("{name}-{number}.ts")
}

/// A running origin. It takes no more connections when this is dropped; those that are there end with their clients.
pub(super) struct Origin {
    pub(super) addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    title: Vec<u8>,
    /// Before each response.
    delay: Duration,
    connections: AtomicUsize,
    is_over: AtomicBool,
}

impl Origin {
    pub(super) fn start(listen: SocketAddr, title: Vec<u8>, delay: Duration) -> Result<Origin> {
        let listener = TcpListener::bind(listen).with_context(|| format!("listen at {listen}, as an origin"))?;
        let addr = listener.local_addr().context("the origin's address")?;
        let shared =
            Arc::new(Shared { title, delay, connections: AtomicUsize::new(0), is_over: AtomicBool::new(false) });
        let listening = Arc::clone(&shared);
        let accept = move || listening.accept(&listener);
        let thread = thread::Builder::new().name("origin".into()).spawn(accept).context("start a thread")?;
        Ok(Origin { addr, shared, thread: Some(thread) })
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // A connection only wakes it.
        let woken = TcpStream::connect(self.addr).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let Ok(stream) = stream else { continue };
            if self.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                self.connections.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let shared = Arc::clone(self);
            let serve = move || {
                // Whoever asked sees that the connection ends.
                let _ = shared.serve(&stream);
                shared.connections.fetch_sub(1, Ordering::Relaxed);
            };
            if thread::Builder::new().name("origin".into()).stack_size(128 << 10).spawn(serve).is_err() {
                self.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Answers the requests of a connection, until its client closes it or an answer is not to be kept.
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::new(stream);
        while let Some(request) = Request::read(&mut reader)? {
            thread::sleep(self.delay);
            self.answer(stream, &request)?;
        }
        Ok(())
    }

    fn answer(&self, mut stream: &TcpStream, request: &Request) -> io::Result<()> {
        let len = self.title.len() as u64;
        let Some(name) = request.path.strip_prefix('/').filter(|name| name.ends_with(".ts") && !name.contains('/'))
        else {
            return write_status(stream, "404 Not Found");
        };
        let Some(range) = &request.range else {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nETag: \"{name}\"\r\n\r\n");
            stream.write_all(head.as_bytes())?;
            return stream.write_all(&self.title);
        };
        let range = range.start..range.end.min(len);
        if range.is_empty() {
            return write_status(stream, "416 Range Not Satisfiable");
        }
        let fault = Fault::of(name).filter(|_| range.start >= SOUND_BYTES);
        let shift = if fault == Some(Fault::Wrong) { 188 } else { 0 };
        let (first, last) = (range.start - shift, range.end - 1 - shift);
        let body = &self.title[range.start as usize..range.end as usize];
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{last}/{len}\r\nContent-Length: {}\r\n\
             ETag: \"{name}\"\r\n\r\n",
            body.len()
        );
        match fault {
            Some(Fault::Gone) => return write_status(stream, "404 Not Found"),
            Some(Fault::Error) => return write_status(stream, "500 Internal Server Error"),
            _ => stream.write_all(head.as_bytes())?,
        }
        match fault {
            Some(Fault::Dead) => wait_for_end(stream),
            Some(Fault::Slow) => write_slowly(stream, body),
            Some(Fault::Truncated) => {
                stream.write_all(&body[..body.len() / 2])?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            _ => stream.write_all(body),
        }
    }
}

impl Fault {
    fn of(name: &str) -> Option<Fault> {
        let (kind, _) = name.split_once('-')?;
        FAULTS.iter().find(|(name, _)| *name == kind).map(|(_, fault)| *fault)
    }
}

fn write_status(mut stream: &TcpStream, status: &str) -> io::Result<()> {
    stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes())
}

/// Until the client closes, or has been silent for long.
fn wait_for_end(stream: &TcpStream) -> io::Result<()> {
    stream.peek(&mut [0])?;
    Err(io::ErrorKind::ConnectionAborted.into())
}

fn write_slowly(mut stream: &TcpStream, body: &[u8]) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    for piece in body.chunks(SLOW_BYTES) {
        if Instant::now() > end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.write_all(piece)?;
        thread::sleep(SLOW_PAUSE);
    }
    Ok(())
}

/// What is of interest in a request.
struct Request {
    path: String,
    /// Of bytes; `None`: all.
    range: Option<Range<u64>>,
}

impl Request {
    /// `None` when there is no further one.
    fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
        let mut lines = io::Read::take(&mut *reader, REQUEST_BYTES_MAX);
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let path = line.split(' ').nth(1).ok_or(io::ErrorKind::InvalidData)?.to_owned();
        let mut range = None;
        loop {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let Some((name, value)) = line.trim().split_once(':') else { break };
            if name.eq_ignore_ascii_case("range") {
                range = Some(parse_range(value.trim()).ok_or(io::ErrorKind::InvalidData)?);
            }
        }
        Ok(Some(Request { path, range }))
    }
}

/// `bytes=FIRST-LAST`, the only form that is asked for here.
fn parse_range(value: &str) -> Option<Range<u64>> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    Some(first.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn origin() -> (Origin, Vec<u8>) {
        let title: Vec<u8> = (0..2 * SOUND_BYTES).map(|at| (at % 251) as u8).collect();
        (Origin::start(([127, 0, 0, 1], 0).into(), title.clone(), Duration::ZERO).unwrap(), title)
    }

    /// Head and body, as far as they come before the connection ends or `max` bytes are there.
    fn ask(origin: &Origin, path: &str, range: &str, max: u64) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(origin.addr).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n{range}\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).unwrap() > 2 {
            head += &line;
            line.clear();
        }
        let mut body = Vec::new();
        reader.take(max).read_to_end(&mut body).unwrap();
        (head, body)
    }

    #[test]
    fn every_name_is_a_title_with_ranges_and_an_etag_of_its_own() {
        let (origin, title) = origin();
        let (head, body) = ask(&origin, "/17.ts", "Range: bytes=1000-1999\r\n", 1_000);
        assert!(head.starts_with("HTTP/1.1 206 ") && head.contains("ETag: \"17.ts\""), "{head}");
        assert!(head.contains(&format!("Content-Range: bytes 1000-1999/{}", title.len())), "{head}");
        assert_eq!(body, title[1_000..2_000]);
        let (head, body) = ask(&origin, "/dead-4.ts", "Range: bytes=0-9\r\n", 10);
        assert!(head.contains("206") && body == title[..10], "it begins well");
        let (head, body) = ask(&origin, "/18.ts", "", title.len() as u64);
        assert!(head.starts_with("HTTP/1.1 200 ") && body == title, "{head}");
        assert!(ask(&origin, "/17.ts", "Range: bytes=9999999-99999999\r\n", 0).0.contains("416"));
        assert!(ask(&origin, "/folder/", "", 0).0.contains("404"));
    }

    #[test]
    fn what_breaks_does_so_in_the_middle_each_in_its_way() {
        let (origin, title) = origin();
        let at = SOUND_BYTES as usize;
        let range = format!("Range: bytes={at}-{}\r\n", at + 99_999);
        let ask = |name: &str, max| ask(&origin, &format!("/{name}"), &range, max);
        assert!(ask("gone-1.ts", 0).0.contains("404") && ask("error-1.ts", 0).0.contains("500"));
        assert_eq!(ask("truncated-1.ts", 100_000).1, title[at..at + 50_000]);
        let (head, _) = ask("wrong-1.ts", 100_000);
        assert!(head.contains(&format!("bytes {}-", at - 188)), "{head}");
        let (head, body) = ask("slow-1.ts", 2_000);
        assert!(head.contains("206") && body == title[at..at + 2_000]);
        assert!(ask("dead-1.ts", 0).0.contains("206"));
        assert_eq!(faulty_title(6), "slow-6.ts");
        assert!((0..6).all(|number| Fault::of(&faulty_title(number)).is_some()) && Fault::of("17.ts").is_none());
    }
}
