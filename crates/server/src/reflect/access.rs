//! The access log: a line for each viewer when he is gone, in the combined form that Apache made known.
//!
//! In: visits that have ended. Out: lines in a file, written by a thread of its own.
//! Whoever ends a visit never waits: lines wait in a queue (`QUEUE_MAX`), and one that finds no room there is dropped and
//! counted, as is one that the disk does not take, of which one line of the server's own log says so.
//! Cost: one allocation per viewer while he is there, and one per line.
//!
//! `192.0.2.7 - - [06/Nov/1994:08:49:37 +0000] "GET /live/news HTTP/1.1" 200 48213004 "-" "VLC/3.0.20" 192.875 0 closed`:
//! the time is that of the request, the bytes are the body's; behind what all such logs have stand the seconds that it took,
//! how often the viewer fell out of the backlog and went on elsewhere, and why he went. What others wrote is escaped
//! (`\x22`) unless it is a plain character, and cut to `FIELD_MAX` bytes; what lets somebody in (`token`, `signature`) is
//! left out.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Version, header};
use serde::{Deserialize, Serialize};

/// Lines that wait to be written, of some 200 bytes each, 3 KB at most. One more is dropped.
const QUEUE_MAX: usize = 8_192;

/// Bytes written at a time, and no fewer than a line.
const WRITE_MAX: usize = 64 * 1_024;

/// Bytes of what somebody else wrote, escaped: the target, the page that led to it, the program.
const FIELD_MAX: usize = 512;

/// Keys of a query whose values let somebody in.
const SECRETS: [&str; 2] = ["token", "signature"];

/// A viewer, as the log will tell of him: his line but for what is known at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// Up to the number of bytes, and from there on.
    line: Box<str>,
    bytes_at: usize,
    /// Bytes of the response's head, which are not counted.
    head_len: usize,
}

/// How a visit ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Bytes that the kernel took, the response's head included.
    pub sent_bytes: u64,
    /// How long he was there.
    pub age: Duration,
    /// How often he went on elsewhere in the stream.
    pub skips: u32,
    /// Why he went: a word.
    pub reason: &'static str,
}

impl Visit {
    /// Of a request that `client` sent at `begun`. The answer has this status, and a head of `head_len` bytes.
    pub fn new(client: Option<IpAddr>, begun: SystemTime, request: &Parts, status: u16, head_len: usize) -> Self {
        let mut line = client.map_or("-".to_owned(), |client| client.to_canonical().to_string());
        let _ = write!(line, " - - [{}] \"{} ", clf_time(begun), request.method);
        push_target(request, &mut line);
        let version = match request.version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_11 => "1.1",
            Version::HTTP_2 => "2.0",
            _ => "?",
        };
        let _ = write!(line, " HTTP/{version}\" {status} ");
        let bytes_at = line.len();
        for name in [header::REFERER, header::USER_AGENT] {
            line.push_str(" \"");
            push_field(&request.headers, &name, &mut line);
            line.push('"');
        }
        Visit { line: line.into(), bytes_at, head_len }
    }

    /// The line in the log, with its end.
    pub fn line(&self, end: &End) -> String {
        // One that comes from another process is whatever that says.
        let (before, behind) = self.line.split_at_checked(self.bytes_at).unwrap_or((&self.line, ""));
        let bytes = end.sent_bytes.saturating_sub(self.head_len as u64);
        let (seconds, skips, reason) = (end.age.as_secs_f64(), end.skips, end.reason);
        format!("{before}{bytes}{behind} {seconds:.3} {skips} {reason}\n")
    }
}

/// Day and time as such logs have them: `06/Nov/1994:08:49:37 +0000`.
fn clf_time(at: SystemTime) -> String {
    // "Sun, 06 Nov 1994 08:49:37 GMT"
    let date = httpdate::fmt_http_date(at);
    let mut words = date.split(' ').skip(1);
    let [day, month, year, time] = std::array::from_fn(|_| words.next().unwrap_or_default());
    format!("{day}/{month}/{year}:{time} +0000")
}

/// Path and query, without the values that let somebody in.
fn push_target(request: &Parts, line: &mut String) {
    let mut target = request.uri.path().to_owned();
    for (index, pair) in request.uri.query().into_iter().flat_map(|query| query.split('&')).enumerate() {
        target.push(if index == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((key, _)) if SECRETS.iter().any(|secret| is_key(key, secret)) => {
                let _ = write!(target, "{key}=-");
            }
            _ => target.push_str(pair),
        }
    }
    push_escaped(target.as_bytes(), line);
}

/// Whether that is how somebody may have written a key.
fn is_key(written: &str, key: &str) -> bool {
    url::form_urlencoded::parse(written.as_bytes()).any(|(written, _)| written == key)
}

fn push_field(headers: &HeaderMap, name: &HeaderName, line: &mut String) {
    match headers.get(name) {
        Some(value) if !value.is_empty() => push_escaped(value.as_bytes(), line),
        _ => line.push('-'),
    }
}

/// What ends no field and no line, and does nothing to a terminal.
fn push_escaped(bytes: &[u8], line: &mut String) {
    let begin = line.len();
    for &byte in bytes {
        if line.len() - begin + 4 > FIELD_MAX {
            return;
        }
        match byte {
            b'"' | b'\\' | ..0x20 | 0x7f.. => {
                let _ = write!(line, "\\x{byte:02X}");
            }
            plain => line.push(char::from(plain)),
        }
    }
}

/// The log, and the thread that writes it. What waits is written when it is dropped.
#[derive(Debug)]
pub struct AccessLog {
    queue: Option<SyncSender<Job>>,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    wants_reopen: AtomicBool,
    written: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
}

/// Lines since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// In the file.
    pub written: u64,
    /// That found no room in the queue.
    pub dropped: u64,
    /// That the file did not take, as when the disk is full.
    pub refused: u64,
}

#[derive(Debug)]
enum Job {
    Line(String),
    /// There may be something else to do.
    Look,
}

impl AccessLog {
    /// Appends to a file, which is made where there is none.
    ///
    /// # Errors
    /// When it cannot be opened for that, or there is no thread for it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let writer = Writer { file: append_to(path)?, path: path.to_owned(), is_torn: false, lost: 0 };
        let (queue, jobs) = sync_channel(QUEUE_MAX);
        let shared = Arc::new(Shared::default());
        let its = shared.clone();
        let thread = thread::Builder::new().name("access log".to_owned()).spawn(move || writer.run(&jobs, &its))?;
        Ok(AccessLog { queue: Some(queue), shared, writer: Some(thread) })
    }

    /// Looks whether it can be opened.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(name: &str) -> io::Result<()> {
        append_to(Path::new(name)).map(drop)
    }

    /// A viewer is gone. Never waits.
    pub fn write(&self, visit: &Visit, end: &End) {
        if !self.send(Job::Line(visit.line(end))) {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has the file opened anew, by its name: what was moved away (logrotate) is left. What waits may get into the new one.
    pub fn reopen(&self) {
        self.shared.wants_reopen.store(true, Ordering::Release);
        // When there is no room, something else makes it look.
        self.send(Job::Look);
    }

    /// What became of lines.
    pub fn totals(&self) -> Totals {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Shared { written, dropped, refused, .. } = &*self.shared;
        Totals { written: read(written), dropped: read(dropped), refused: read(refused) }
    }

    fn send(&self, job: Job) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.try_send(job).is_ok())
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // It has said so itself if it panicked.
            let _ = writer.join();
        }
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// What the thread has.
struct Writer {
    path: PathBuf,
    file: File,
    /// The last line that was written is not whole.
    is_torn: bool,
    /// Lines since the file has refused one.
    lost: u64,
}

impl Writer {
    fn run(mut self, jobs: &Receiver<Job>, shared: &Shared) {
        let mut lines = Vec::new();
        while let Ok(job) = jobs.recv() {
            lines.clear();
            let mut next = Some(job);
            while let Some(job) = next {
                if let Job::Line(line) = job {
                    lines.extend_from_slice(line.as_bytes());
                }
                next = if lines.len() < WRITE_MAX { jobs.try_recv().ok() } else { None };
            }
            if shared.wants_reopen.swap(false, Ordering::Acquire) {
                self.reopen();
            }
            self.write(&lines, shared);
        }
    }

    fn reopen(&mut self) {
        match append_to(&self.path) {
            Ok(file) => (self.file, self.is_torn) = (file, false),
            Err(error) => {
                let file = self.path.display();
                tracing::error!(%error, %file, "the access log cannot be opened anew, and goes on in the old file");
            }
        }
    }

    fn write(&mut self, lines: &[u8], shared: &Shared) {
        let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let all = count(lines);
        if all == 0 {
            return;
        }
        let (len, result) = self.write_all(lines);
        let written = count(&lines[..len]);
        shared.written.fetch_add(written, Ordering::Relaxed);
        shared.refused.fetch_add(all - written, Ordering::Relaxed);
        let file = self.path.display();
        match result {
            Ok(()) if self.lost > 0 => {
                let lost = std::mem::take(&mut self.lost);
                tracing::info!(lost, %file, "the access log is written again");
            }
            Ok(()) => {}
            Err(error) if self.lost == 0 => {
                tracing::error!(%error, %file, "the access log cannot be written: its lines are lost until it can");
                self.lost = all - written;
            }
            Err(_) => self.lost += all - written,
        }
    }

    /// Returns how many bytes were written, and what ended that.
    fn write_all(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        if self.is_torn {
            match self.file.write_all(b"\n") {
                Ok(()) => self.is_torn = false,
                Err(error) => return (0, Err(error)),
            }
        }
        let mut len = 0;
        while len < lines.len() {
            match self.file.write(&lines[len..]) {
                Ok(0) => return (len, Err(ErrorKind::WriteZero.into())),
                Ok(count) => len += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_torn = len > 0 && lines[len - 1] != b'\n';
                    return (len, Err(error));
                }
            }
        }
        (len, Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::time::UNIX_EPOCH;

    use axum::http::Request;

    use super::*;

    const END: End = End { sent_bytes: 1_500, age: Duration::from_millis(2_500), skips: 1, reason: "closed" };

    fn request(target: &str, fields: &[(&str, &[u8])]) -> Parts {
        let request = fields.iter().fold(Request::get(target), |request, (name, value)| request.header(*name, *value));
        request.body(()).expect("a request").into_parts().0
    }

    fn visit(target: &str, fields: &[(&str, &[u8])]) -> Visit {
        let at = UNIX_EPOCH + Duration::from_secs(784_111_777);
        Visit::new("::ffff:192.0.2.7".parse().ok(), at, &request(target, fields), 200, 500)
    }

    #[test]
    fn a_line_has_the_combined_form_and_what_a_stream_has_more() {
        let fields: [(&str, &[u8]); 2] = [("user-agent", b"VLC/3.0.20 LibVLC"), ("referer", b"https://a.example/?b")];
        let line = visit("/live/news?join=next", &fields).line(&END);
        let expected = "192.0.2.7 - - [06/Nov/1994:08:49:37 +0000] \"GET /live/news?join=next HTTP/1.1\" 200 1000 \
                        \"https://a.example/?b\" \"VLC/3.0.20 LibVLC\" 2.500 1 closed\n";
        assert_eq!(line, expected);
        let short = visit("/live/news", &[]).line(&End { sent_bytes: 100, ..END });
        assert!(short.ends_with("\"GET /live/news HTTP/1.1\" 200 0 \"-\" \"-\" 2.500 1 closed\n"), "{short}");
    }

    #[test]
    fn nothing_that_a_client_writes_ends_a_field_or_a_line() {
        let agent = b"a\" 200 0 \"-\" \\\x1b[2J\t\xc3\xa9\x7f";
        // A header value cannot have these, and a target neither.
        let mut line = String::new();
        push_escaped(b"\r\n\0", &mut line);
        assert_eq!(line, "\\x0D\\x0A\\x00");
        let mut request = request("/live/news", &[]);
        let value = axum::http::HeaderValue::from_bytes(b"a\" 200 0 \"-\" \\\t\xc3\xa9").expect("a value");
        request.headers.insert(header::USER_AGENT, value);
        let line = Visit::new(None, UNIX_EPOCH, &request, 200, 0).line(&END);
        let field = "\"a\\x22 200 0 \\x22-\\x22 \\x5C\\x09\\xC3\\xA9\"";
        assert!(line.contains(field) && line.starts_with("- - - ["), "{line}");
        let mut line = String::new();
        push_escaped(agent, &mut line);
        assert!(line.bytes().all(|byte| (b' '..0x7f).contains(&byte)) && line.contains("\\x1B[2J"), "{line}");
    }

    #[test]
    fn what_lets_somebody_in_is_not_written() {
        let line = visit("/live/news?token=abc&a=token&%74oken=abc&signature=abc&expires=5&token", &[]).line(&END);
        assert!(line.contains("?token=-&a=token&%74oken=-&signature=-&expires=5&token HTTP"), "{line}");
    }

    #[test]
    fn what_is_long_is_cut() {
        let long = [b'"'; 5_000];
        let target = format!("/{}", "a".repeat(5_000));
        let line = visit(&target, &[("user-agent", &long), ("referer", &long)]).line(&END);
        assert!(line.len() < 3 * FIELD_MAX + 200, "{}", line.len());
    }

    #[test]
    fn lines_are_in_the_file_when_the_log_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("access.log");
        fs::write(&path, "before\n").expect("written");
        let log = AccessLog::open(&path).expect("a log");
        for number in 0..3_000 {
            log.write(&visit(&format!("/{number}"), &[]), &END);
        }
        let shared = log.shared.clone();
        drop(log);
        let text = fs::read_to_string(&path).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0], shared.written.load(Ordering::Relaxed)), (3_001, "before", 3_000));
        assert!(lines[3_000].contains("\"GET /2999 "), "{}", lines[3_000]);
        assert!(AccessLog::open(&path.join("below")).is_err());
    }

    #[test]
    fn a_file_that_was_moved_away_is_left_when_the_log_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, moved] = ["access.log", "access.log.1"].map(|name| folder.path().join(name));
        let log = AccessLog::open(&path).expect("a log");
        log.write(&visit("/1", &[]), &END);
        wait_until(|| log.totals().written == 1);
        fs::rename(&path, &moved).expect("moved");
        log.write(&visit("/2", &[]), &END);
        wait_until(|| log.totals().written == 2);
        log.reopen();
        wait_until(|| path.exists());
        log.write(&visit("/3", &[]), &END);
        drop(log);
        let count = |path: &Path| fs::read_to_string(path).expect("text").lines().count();
        assert_eq!((count(&moved), count(&path)), (2, 1));
    }

    #[test]
    fn a_full_disk_costs_lines_and_is_told_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("access.log");
        std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
        let log = AccessLog::open(&path).expect("a log");
        (0..10).for_each(|_| log.write(&visit("/1", &[]), &END));
        wait_until(|| log.totals().refused == 10);
        fs::remove_file(&path).expect("removed");
        log.reopen();
        wait_until(|| path.exists());
        log.write(&visit("/2", &[]), &END);
        wait_until(|| log.totals().written == 1);
        assert_eq!(log.totals(), Totals { written: 1, dropped: 0, refused: 10 });
        drop(log);
        assert_eq!(fs::read_to_string(&path).expect("text").lines().count(), 1);
    }

    #[test]
    fn a_line_that_was_torn_is_ended_before_the_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("access.log");
        fs::write(&path, "half a li").expect("written");
        let mut writer = Writer { file: append_to(&path).expect("a file"), path: path.clone(), is_torn: true, lost: 1 };
        writer.write(b"whole\n", &Shared::default());
        assert_eq!(fs::read_to_string(&path).expect("text"), "half a li\nwhole\n");
        assert_eq!((writer.is_torn, writer.lost), (false, 0));
    }

    /// Behind a pipe that nobody reads the thread waits, and nobody else.
    #[test]
    fn who_writes_never_waits_for_the_file() {
        const VISITS: u64 = 3 * QUEUE_MAX as u64;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        // Either end is opened when there is the other; both are here.
        let mut reader = OpenOptions::new().read(true).write(true).open(&path).expect("a pipe");
        let log = AccessLog::open(&path).expect("a log");
        let visit = visit("/1", &[]);
        (0..VISITS).for_each(|_| log.write(&visit, &END));
        let dropped = log.totals().dropped;
        assert!(dropped > 0 && dropped < VISITS, "{dropped}");
        let line = visit.line(&END);
        let ended = thread::spawn(move || drop(log));
        let mut all = vec![0; (VISITS - dropped) as usize * line.len()];
        reader.read_exact(&mut all).expect("all others");
        assert!(all.chunks(line.len()).all(|read| read == line.as_bytes()));
        ended.join().expect("it ended");
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        let begun = std::time::Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(40), "it takes too long");
            thread::yield_now();
        }
    }
}
