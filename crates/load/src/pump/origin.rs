//! An HTTP origin with as many titles as one asks for: all are the same bytes, and to a server each is another one.
//!
//! In: the bytes, and where to listen. Out: `/NAME.ts`, whole or by range, with an ETag of its own. What is called
//! `slow-`, `dead-`, `truncated-`, `wrong-`, `gone-` or `error-` something begins well and then breaks that promise.
//! Cost: a thread with a task for each connection; the bytes are in memory once.
//! Source: RFC 9110 §14 (ranges).

use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, RANGE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::serve::ListenerExt as _;
use clap::ValueEnum;
use futures_util::stream::{self, StreamExt as _};
use tokio::runtime::{self, Runtime};

/// A title that breaks does so from this byte on: by then it is played.
pub(super) const SOUND_BYTES: usize = 512 << 10;

/// A slow title comes in pieces of this many bytes, so many a second: far less than it plays, and never a stall.
const SLOW_BYTES: usize = 1_316;
const SLOW_PAUSE: Duration = Duration::from_millis(100);

/// What a title that breaks does. Its name begins with the fault's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

/// The name of a title that breaks; their faults take turns.
pub(super) fn faulty_title(number: usize) -> String {
    let fault = Fault::value_variants()[number % Fault::value_variants().len()];
    format!("{fault:?}-{number}.ts").to_lowercase()
}

/// A running origin. It and all its connections end when this is dropped.
pub(super) struct Origin {
    _runtime: Runtime,
}

/// What every name stands for, and how long each response takes to begin.
#[derive(Clone)]
struct Title {
    bytes: Bytes,
    delay: Duration,
}

impl Origin {
    /// Answers who connects to `listener`, each request after `delay`.
    pub(super) fn start(listener: TcpListener, bytes: Bytes, delay: Duration) -> Result<Origin> {
        let mut runtime = runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("origin").enable_all().build().context("start a thread")?;
        let titles = Router::new().fallback(answer).with_state(Title { bytes, delay });
        listener.set_nonblocking(true)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).context("listen as an origin")?
        };
        // Without it a slow title is slower still.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        runtime.spawn(axum::serve(listener, titles).into_future());
        Ok(Origin { _runtime: runtime })
    }
}

async fn answer(State(title): State<Title>, uri: Uri, headers: HeaderMap) -> Response {
    tokio::time::sleep(title.delay).await;
    let name = uri.path().trim_start_matches('/');
    if !name.ends_with(".ts") || name.contains('/') {
        return StatusCode::NOT_FOUND.into_response();
    }
    let (etag, len) = ((ETAG, format!("\"{name}\"")), title.bytes.len());
    let Some(range) = headers.get(RANGE) else { return ([etag], title.bytes).into_response() };
    let Some(range) = range.to_str().ok().and_then(|range| parse_range(range, len)) else {
        return StatusCode::RANGE_NOT_SATISFIABLE.into_response();
    };
    let fault = Fault::of(name).filter(|_| range.start >= SOUND_BYTES);
    let shift = if fault == Some(Fault::Wrong) { 188 } else { 0 };
    let content_range = format!("bytes {}-{}/{len}", range.start - shift, range.end - 1 - shift);
    let head = [etag, (CONTENT_RANGE, content_range), (CONTENT_LENGTH, range.len().to_string())];
    let bytes = title.bytes.slice(range);
    let body = match fault {
        Some(Fault::Gone) => return StatusCode::NOT_FOUND.into_response(),
        Some(Fault::Error) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Some(Fault::Dead) => Body::from_stream(stream::pending::<io::Result<Bytes>>()),
        Some(Fault::Slow) => Body::from_stream(stream::unfold(bytes, slowly)),
        Some(Fault::Truncated) => {
            let end = stream::once(async {
                // What is there leaves before that.
                tokio::task::yield_now().await;
                Err(io::ErrorKind::ConnectionAborted.into())
            });
            Body::from_stream(stream::iter([Ok::<_, io::Error>(bytes.slice(..bytes.len() / 2))]).chain(end))
        }
        Some(Fault::Wrong) | None => bytes.into(),
    };
    (StatusCode::PARTIAL_CONTENT, head, body).into_response()
}

/// The next piece of what comes slowly, and what is left then.
async fn slowly(mut rest: Bytes) -> Option<(io::Result<Bytes>, Bytes)> {
    let piece = rest.split_to(rest.len().min(SLOW_BYTES));
    tokio::time::sleep(SLOW_PAUSE).await;
    (!piece.is_empty()).then_some((Ok(piece), rest))
}

impl Fault {
    fn of(name: &str) -> Option<Fault> {
        Fault::from_str(name.split_once('-')?.0, false).ok()
    }
}

/// `bytes=FIRST-LAST`, the only form that is asked for here, of what has `len` bytes.
fn parse_range(value: &str, len: usize) -> Option<Range<usize>> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let range = first.parse().ok()?..last.parse::<usize>().ok()?.checked_add(1)?.min(len);
    Some(range).filter(|range| !range.is_empty())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use super::*;

    fn origin() -> (Origin, SocketAddr, Bytes) {
        let title: Bytes = (0..2 * SOUND_BYTES).map(|at| (at % 251) as u8).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        (Origin::start(listener, title.clone(), Duration::ZERO).unwrap(), addr, title)
    }

    /// Head and body, as far as they come before the connection ends or `max` bytes are there.
    fn ask(addr: SocketAddr, path: &str, range: &str, max: u64) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(addr).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n{range}\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).unwrap() > 2 {
            head += &line;
            line.clear();
        }
        let mut body = Vec::new();
        reader.take(max).read_to_end(&mut body).unwrap();
        (head.to_lowercase(), body)
    }

    #[test]
    fn every_name_is_a_title_with_ranges_and_an_etag_of_its_own() {
        let (_origin, addr, title) = origin();
        let (head, body) = ask(addr, "/17.ts", "Range: bytes=1000-1999\r\n", 1_000);
        assert!(head.starts_with("http/1.1 206 ") && head.contains("etag: \"17.ts\""), "{head}");
        assert!(head.contains(&format!("content-range: bytes 1000-1999/{}", title.len())), "{head}");
        assert_eq!(body, title[1_000..2_000]);
        let (head, body) = ask(addr, "/dead-4.ts", "Range: bytes=0-9\r\n", 10);
        assert!(head.contains("206") && body == title[..10], "it begins well");
        let (head, body) = ask(addr, "/18.ts", "", title.len() as u64);
        assert!(head.starts_with("http/1.1 200 ") && body == title, "{head}");
        assert!(ask(addr, "/17.ts", "Range: bytes=9999999-99999999\r\n", 0).0.contains("416"));
        assert!(ask(addr, "/folder/", "", 0).0.contains("404"));
    }

    #[test]
    fn what_breaks_does_so_in_the_middle_each_in_its_way() {
        let (_origin, addr, title) = origin();
        let at = SOUND_BYTES;
        let range = format!("Range: bytes={at}-{}\r\n", at + 99_999);
        let ask = |name: &str, max| ask(addr, &format!("/{name}"), &range, max);
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
