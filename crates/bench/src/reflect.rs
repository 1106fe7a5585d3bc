//! `millrace bench reflect`: the least that a reflector takes, as a server for `millrace load reflect`.
//!
//! In: where the stream comes from, and how often is sent. Out: an HTTP server for measurements, until it is ended: whoever
//! asks gets the stream from then on; without start points, headers, limits, counters or second thoughts.
//! How: one thread. What came is written into a file in memory, at ever higher offsets; once in a window each viewer is sent
//! all that he has not got. What lies far behind is given back.
//! What a real reflector takes more than this at the same window is what its rules cost.
//! Source: sendfile(2), fallocate(2).

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use engine::sys::{self, Epoll, Interest};
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use wire::Bitrate;

/// How bytes are sent.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// The kernel takes the file's pages.
    #[default]
    File,
    /// They are copied.
    Copy,
}

/// Options of `millrace bench reflect`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Where viewers come to.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:19098")]
    pub listen: SocketAddrV4,
    /// An HTTP server that has the stream. It is asked until it is there.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:19001")]
    pub source: SocketAddr,
    /// Sends once in so many milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub window: u64,
    /// How bytes are sent.
    #[arg(long, value_enum, default_value_t)]
    pub way: Way,
    /// Lets the kernel send no faster to any viewer.
    #[arg(long, value_name = "RATE")]
    pub pace: Option<Bitrate>,
}

const REQUEST: &[u8] = b"GET /live HTTP/1.0\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\n\r\n";

/// Bytes behind the newest that are kept, and given back at once.
const KEPT: u64 = 64 << 20;
const HOLE: u64 = 4 << 20;

const READ_BYTES: usize = 1 << 20;

/// Of a source's answer before the stream.
const HEAD_MAX: usize = 16 << 10;

/// The listener and the source are all that is watched.
const READY_MAX: usize = 2;

/// Who wakes it; viewers do not.
const LISTENER: u64 = 0;
const SOURCE: u64 = 1;

/// How long until a source is asked once more, and how long that takes at most.
const PAUSE: Duration = Duration::from_millis(100);
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// Runs until somebody ends it.
///
/// # Errors
/// When the address or the file is not to be had.
pub fn execute(args: &Args) -> Result<Infallible> {
    sys::raise_open_files_max().context("raise the limit of open files")?;
    let mut reflector = Reflector::new(args)?;
    println!("reflects at {}", reflector.local_addr()?);
    loop {
        reflector.turn()?;
    }
}

/// A reflector without rules.
pub struct Reflector {
    args: Args,
    listener: TcpListener,
    epoll: Epoll,
    source: Option<Source>,
    /// When the source is asked, if there is none.
    ask_at: Instant,
    file: File,
    /// Bytes that came; those before `given_back` are none any more.
    end: u64,
    given_back: u64,
    viewers: Vec<Viewer>,
    /// When is sent next.
    due: Instant,
    buf: Vec<u8>,
}

struct Source {
    socket: TcpStream,
    /// Of its answer, until that is whole.
    head: Option<Vec<u8>>,
}

struct Viewer {
    socket: TcpStream,
    /// `None` until he has asked.
    at: Option<u64>,
}

impl Reflector {
    /// Opens its listener.
    ///
    /// # Errors
    /// When the address or the file is not to be had.
    pub fn new(args: &Args) -> Result<Self> {
        let listener = sys::tcp_listener(&args.listen.into()).with_context(|| format!("listen at {}", args.listen))?;
        let file = memfd_create("millrace-bench", MFdFlags::MFD_CLOEXEC).context("make a file in memory")?;
        let epoll = Epoll::new(READY_MAX).context("open an epoll set")?;
        epoll.add(listener.as_fd(), LISTENER, Interest::READ).context("watch the listener")?;
        let now = Instant::now();
        Ok(Reflector {
            args: args.clone(),
            listener,
            epoll,
            source: None,
            ask_at: now,
            file: file.into(),
            end: 0,
            given_back: 0,
            viewers: Vec::new(),
            due: now,
            buf: vec![0; READ_BYTES],
        })
    }

    /// Where viewers come to.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Takes what came, and sends when it is time.
    ///
    /// # Errors
    /// When the file takes no more.
    pub fn turn(&mut self) -> Result<()> {
        self.epoll.wait(Some(self.due.saturating_duration_since(Instant::now()))).context("wait")?;
        for index in 0..self.epoll.ready_count() {
            match self.epoll.ready(index).map(|ready| ready.token) {
                Some(SOURCE) => self.receive()?,
                Some(LISTENER) => self.accept(),
                _ => {}
            }
        }
        let now = Instant::now();
        if now >= self.due {
            self.due = (self.due + Duration::from_millis(self.args.window)).max(now);
            self.ask(now);
            self.send()?;
        }
        Ok(())
    }

    /// Asks for the stream, if there is none.
    fn ask(&mut self, now: Instant) {
        if self.source.is_some() || now < self.ask_at {
            return;
        }
        self.ask_at = now + PAUSE;
        let Ok(mut socket) = TcpStream::connect_timeout(&self.args.source, CONNECT_MAX) else { return };
        let is_asked = socket.write_all(REQUEST).is_ok()
            && socket.set_nonblocking(true).is_ok()
            && self.epoll.add(socket.as_fd(), SOURCE, Interest::READ).is_ok();
        self.source = is_asked.then(|| Source { socket, head: Some(Vec::new()) });
    }

    /// Writes what came into the file.
    fn receive(&mut self) -> Result<()> {
        let Some(source) = &mut self.source else { return Ok(()) };
        let len = match source.socket.read(&mut self.buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Ok(len) if len > 0 => len,
            _ => {
                self.source = None;
                return Ok(());
            }
        };
        let mut bytes = &self.buf[..len];
        if let Some(head) = &mut source.head {
            let before = head.len();
            head.extend_from_slice(bytes);
            let Some(end) = head.windows(4).position(|end| end == b"\r\n\r\n") else {
                if head.len() > HEAD_MAX {
                    self.source = None;
                }
                return Ok(());
            };
            bytes = &bytes[end + 4 - before..];
            source.head = None;
        }
        self.file.write_all_at(bytes, self.end).context("write into a file in memory")?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            let is_set = socket.set_nonblocking(true).is_ok() && socket.set_nodelay(true).is_ok();
            if let Some(rate) = self.args.pace {
                // Without it he gets the stream faster.
                let _ = sys::set_pacing(socket.as_fd(), rate);
            }
            if is_set {
                self.viewers.push(Viewer { socket, at: None });
            }
        }
    }

    fn send(&mut self) -> Result<()> {
        let Reflector { viewers, file, end, given_back, buf, args, .. } = self;
        viewers.retain_mut(|viewer| viewer.go_on(file, *end, *given_back, args.way, buf).is_ok());
        if *end > *given_back + KEPT + HOLE {
            let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            fallocate(&*file, flags, *given_back as i64, HOLE as i64).context("give memory back")?;
            *given_back += HOLE;
        }
        Ok(())
    }
}

impl Viewer {
    /// Sends all that he has not got, as far as there is room.
    fn go_on(&mut self, file: &File, end: u64, given_back: u64, way: Way, buf: &mut [u8]) -> io::Result<()> {
        let Some(at) = &mut self.at else { return self.hear(end) };
        if *at < given_back {
            return Err(io::ErrorKind::TimedOut.into());
        }
        while *at < end {
            let len = (end - *at) as usize;
            let sent = match way {
                Way::File => sys::send_file(self.socket.as_fd(), file.as_fd(), *at, len),
                Way::Copy => {
                    let len = len.min(buf.len());
                    file.read_exact_at(&mut buf[..len], *at)?;
                    self.socket.write(&buf[..len])
                }
            };
            match sent {
                Ok(sent) => *at += sent as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whatever he asks, he gets the stream.
    fn hear(&mut self, end: u64) -> io::Result<()> {
        let mut request = [0; 1_024];
        match self.socket.read(&mut request) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
            Ok(0) => return Err(io::ErrorKind::ConnectionReset.into()),
            Ok(_) => {}
        }
        self.socket.write_all(ANSWER)?;
        self.at = Some(end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").unwrap()
    }

    /// Lets the reflector work until the socket has so many bytes.
    fn read(reflector: &mut Reflector, socket: &mut TcpStream, len: usize) -> Vec<u8> {
        socket.set_nonblocking(true).unwrap();
        let (mut got, mut buf) = (Vec::new(), [0; 4_096]);
        while got.len() < len {
            match socket.read(&mut buf) {
                Ok(count) => got.extend_from_slice(&buf[..count]),
                Err(_) => reflector.turn().unwrap(),
            }
        }
        got
    }

    #[test]
    fn who_asks_gets_what_comes_from_then_on() {
        for way in [Way::File, Way::Copy] {
            let origin = listener();
            let (listen, source) = ("127.0.0.1:0".parse().unwrap(), origin.local_addr().unwrap());
            let mut reflector = Reflector::new(&Args { listen, source, window: 1, way, pace: None }).unwrap();
            reflector.turn().unwrap();
            let (mut feed, _) = origin.accept().unwrap();
            feed.write_all(b"HTTP/1.0 200 OK\r\n\r\nbefore").unwrap();
            while reflector.end < 6 {
                reflector.turn().unwrap();
            }
            let mut viewer = TcpStream::connect(reflector.local_addr().unwrap()).unwrap();
            viewer.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            assert_eq!(read(&mut reflector, &mut viewer, ANSWER.len()), ANSWER);
            for piece in [&b"one"[..], b"two"] {
                feed.write_all(piece).unwrap();
                assert_eq!(read(&mut reflector, &mut viewer, piece.len()), piece);
            }
            drop(viewer);
            while !reflector.viewers.is_empty() {
                feed.write_all(b"more").unwrap();
                reflector.turn().unwrap();
            }
        }
    }
}
