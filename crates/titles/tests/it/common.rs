//! An origin that does what the test says, byte by byte; and what all tests need.
//!
//! It speaks just enough HTTP/1.1 to break any promise of it.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pump::chunk::Chunk;
use pump::sample::Sample;
use pump::title::Title;
use titles::{Library, Settings, Stats, Url};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Packets of a chunk in these tests.
pub const CHUNK_PACKETS: usize = 700;

pub const CHUNK_BYTES: usize = CHUNK_PACKETS * 188;

/// What an origin does with a request instead of answering it.
#[derive(Clone)]
pub enum Fault {
    Status(u16),
    /// 500 for what begins there.
    Hole(u64),
    /// Never an answer for what begins there.
    HangAt(u64),
    /// The connection ends after so many bytes of the body.
    Truncate(usize),
    /// A Content-Length, and a body, of so many bytes less than Content-Range says.
    Shorter(usize),
    /// Content-Range begins so many bytes later.
    Shift(u64),
    NoContentRange,
    /// Everything, with 200.
    IgnoreRange,
    /// Another length of the whole.
    Len(u64),
    /// Never an answer.
    Hang,
    /// Nothing more after so many bytes of the body.
    Stall(usize),
    /// A byte now and then.
    Trickle,
    Redirect(String),
    /// The right answer once the test says so.
    Gate(Arc<Semaphore>),
}

/// A title at an origin.
#[derive(Clone, Default)]
pub struct Item {
    pub bytes: Arc<Vec<u8>>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// One for each request, in this order.
    pub next: VecDeque<Fault>,
    /// When there is no next one.
    pub always: Option<Fault>,
}

#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub range: Range<u64>,
    pub if_range: Option<String>,
}

pub struct Origin {
    pub addr: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    items: HashMap<String, Item>,
    asked: Vec<Asked>,
    connections: usize,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Origin {
    pub async fn start() -> Origin {
        Origin::start_with(None).await
    }

    pub async fn start_with(tls: Option<TlsAcceptor>) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let state: Arc<Mutex<State>> = Arc::default();
        let task = tokio::spawn(accept(listener, state.clone(), tls));
        Origin { addr, state, task }
    }

    pub fn url(&self) -> Url {
        format!("http://{}/", self.addr).parse().unwrap()
    }

    pub fn put(&self, path: &str, item: Item) {
        self.state.lock().unwrap().items.insert(path.to_owned(), item);
    }

    pub fn remove(&self, path: &str) {
        self.state.lock().unwrap().items.remove(path);
    }

    /// What to do with the next requests for this title.
    pub fn break_next(&self, path: &str, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().unwrap().items.get_mut(path).unwrap().next.extend(faults);
    }

    pub fn break_always(&self, path: &str, fault: Fault) {
        self.state.lock().unwrap().items.get_mut(path).unwrap().always = Some(fault);
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.state.lock().unwrap().asked.clone()
    }

    pub fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>, tls: Option<TlsAcceptor>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        state.lock().unwrap().connections += 1;
        let (state, tls) = (state.clone(), tls.clone());
        connections.spawn(async move {
            match tls {
                None => serve::<TcpStream>(stream, state).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, state).await;
                    }
                }
            }
        });
    }
}

/// Requests of one connection, until one of them breaks it.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, state: Arc<Mutex<State>>) {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = read_request(&mut stream).await {
        let (item, fault) = {
            let mut state = state.lock().unwrap();
            state.asked.push(asked.clone());
            let item = state.items.get_mut(&asked.path);
            let fault = item.and_then(|item| item.next.pop_front().or(item.always.clone()));
            (state.items.get(&asked.path).cloned(), fault)
        };
        let is_kept = match item {
            None => write(&mut stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", b"").await,
            Some(item) => answer(&mut stream, &asked, &item, fault).await,
        };
        if is_kept.is_none() {
            return;
        }
    }
}

async fn read_request<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Option<Asked> {
    let (mut path, mut range, mut if_range) = (None, None, None);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim();
        if line.is_empty() {
            return Some(Asked { path: path?, range: range?, if_range });
        }
        match line.split_once(": ") {
            None => path = line.split(' ').nth(1).map(str::to_owned),
            Some((name, value)) if name.eq_ignore_ascii_case("range") => {
                let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
                range = Some(first.parse().ok()?..last.parse::<u64>().ok()? + 1);
            }
            Some((name, value)) if name.eq_ignore_ascii_case("if-range") => if_range = Some(value.to_owned()),
            Some(_) => (),
        }
    }
}

/// `None`: the connection is over.
async fn answer<S: AsyncWrite + Unpin>(stream: &mut S, asked: &Asked, item: &Item, fault: Option<Fault>) -> Option<()> {
    let len = item.bytes.len() as u64;
    let range = asked.range.start..asked.range.end.min(len);
    let mut validators = String::new();
    if let Some(etag) = &item.etag {
        validators += &format!("ETag: {etag}\r\n");
    }
    if let Some(date) = &item.last_modified {
        validators += &format!("Last-Modified: {date}\r\n");
    }
    let is_other = asked.if_range.is_some()
        && asked.if_range.as_ref() != item.etag.as_ref()
        && asked.if_range.as_ref() != item.last_modified.as_ref();
    if range.is_empty() {
        return write(stream, "HTTP/1.1 416 No\r\nContent-Length: 0\r\n\r\n", b"").await;
    }
    let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n{validators}\r\n");
    let body = &item.bytes[range.start as usize..range.end as usize];
    let partial = |shift: u64, len: u64, cut: usize| {
        let (first, last, body_len) = (range.start + shift, range.end - 1 + shift, body.len() - cut);
        let head = format!("HTTP/1.1 206 Partial\r\nContent-Range: bytes {first}-{last}/{len}\r\n");
        format!("{head}Content-Length: {body_len}\r\n{validators}\r\n")
    };
    let fault = fault.filter(|fault| !matches!(fault, Fault::Hole(at) | Fault::HangAt(at) if *at != range.start));
    match fault {
        None if is_other => write(stream, &whole, &item.bytes).await,
        None => write(stream, &partial(0, len, 0), body).await,
        Some(Fault::Hole(_)) => write(stream, "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", b"").await,
        Some(Fault::Status(status)) => {
            write(stream, &format!("HTTP/1.1 {status} No\r\nContent-Length: 2\r\n\r\nno"), b"").await
        }
        Some(Fault::Truncate(at)) => {
            write(stream, &partial(0, len, 0), &body[..at]).await;
            None
        }
        Some(Fault::Shorter(by)) => write(stream, &partial(0, len, by), &body[by..]).await,
        Some(Fault::Shift(by)) => write(stream, &partial(by, len + by, 0), body).await,
        Some(Fault::NoContentRange) => {
            let head = format!("HTTP/1.1 206 Partial\r\nContent-Length: {}\r\n{validators}\r\n", body.len());
            write(stream, &head, body).await
        }
        Some(Fault::IgnoreRange) => write(stream, &whole, &item.bytes).await,
        Some(Fault::Len(len)) => write(stream, &partial(0, len, 0), body).await,
        Some(Fault::Hang | Fault::HangAt(_)) => std::future::pending().await,
        Some(Fault::Stall(at)) => {
            write(stream, &partial(0, len, 0), &body[..at]).await;
            std::future::pending().await
        }
        Some(Fault::Trickle) => {
            write(stream, &partial(0, len, 0), b"").await;
            for byte in body {
                write(stream, "", &[*byte]).await?;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Some(())
        }
        Some(Fault::Redirect(to)) => {
            write(stream, &format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"), b"").await
        }
        Some(Fault::Gate(gate)) => {
            let _permit = gate.acquire().await.ok()?;
            write(stream, &partial(0, len, 0), body).await
        }
    }
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, head: &str, body: &[u8]) -> Option<()> {
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body).await.ok()?;
    stream.flush().await.ok()
}

/// A title of four seconds, 17 chunks.
pub fn sample(seed: u64) -> Arc<Vec<u8>> {
    Arc::new(Sample { pictures: 100, seed, ..Sample::default() }.make())
}

pub fn item(seed: u64) -> Item {
    Item { bytes: sample(seed), etag: Some(format!("\"{seed}\"")), ..Item::default() }
}

/// Settings for these origins, without any pause.
pub fn settings(origins: &[&Origin]) -> Settings {
    Settings {
        origins: origins.iter().map(|origin| origin.url()).collect(),
        chunk_bytes: CHUNK_BYTES,
        retries: 1,
        retry_backoff: Duration::ZERO,
        // Nothing in these tests is late because the machine is busy.
        connect_timeout: Duration::from_secs(60),
        stall_timeout: Duration::from_secs(60),
        fetch_timeout: Duration::from_secs(120),
        ..Settings::default()
    }
}

pub fn library(origins: &[&Origin]) -> Library {
    Library::new(settings(origins)).unwrap()
}

/// The packets that a chunk has to have.
pub fn packets_of(bytes: &[u8], number: u64) -> &[u8] {
    let start = number as usize * CHUNK_BYTES;
    &bytes[start..(start + CHUNK_BYTES).min(bytes.len())]
}

/// Reads all chunks, and compares them with what they have to be.
pub async fn play(library: &Library, title: &Arc<Title>, bytes: &[u8]) -> Vec<Arc<Chunk>> {
    let mut chunks = Vec::new();
    for number in 0..u64::from(title.chunk_count()) {
        let chunk = library.chunk(title, number).await.unwrap();
        assert!(chunk.bytes() == packets_of(bytes, number), "chunk {number}");
        chunks.push(chunk);
    }
    chunks
}

/// Waits until the numbers are as they should be; that they will be is what is tested.
pub async fn until(library: &Library, is_reached: impl Fn(&Stats) -> bool) {
    while !is_reached(&library.stats()) {
        tokio::task::yield_now().await;
    }
}
