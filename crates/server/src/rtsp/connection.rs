//! One RTSP connection: bytes from TCP to requests, one after the other, and back responses.
//!
//! Its task reads and writes it, until a session is to be interleaved in it. Then the worker of that session has the
//! connection, which puts packets between the responses, and what comes is told here.
//! Cost: a task, with a buffer for what is the longest request.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};
use wire::Token;
use wire::rtsp::{Item, Method, Response, RtspError, Status, next_item, session_id};

use super::Rtsp;
use super::interleaved::{Ends, Interleaved};
use crate::accept::{Leave, Place};
use crate::pump::connections;
use crate::{guard, owner};

/// Bytes that the kernel takes beyond what is on its way to the client. More would wait there for a slow one, and is
/// better kept back, where what is too late goes as whole packets.
const UNSENT_MAX: u32 = 64 * 1024;

/// Bytes read at once.
const READ_LEN: usize = 4 * 1024;

struct Connection<'a> {
    rtsp: &'a Arc<Rtsp>,
    interleaved: Interleaved,
    line: Line,
    inbox: Vec<u8>,
    /// When bytes came last.
    moved: Instant,
    /// Since when there is less than a whole request.
    begun: Option<Instant>,
    /// The session that was set up or spoken of last.
    session: Option<String>,
    /// Those that were set up here. While there is one of them the connection makes no room.
    set_up: Vec<String>,
    place: Place,
    /// Resolves when it is to make room.
    told: oneshot::Receiver<Leave>,
}

/// Who has the socket.
enum Line {
    Own(TcpStream),
    Worker(connections::Connection),
}

/// Serves a connection from its first byte to its end. What is interleaved in it ends with it.
pub(super) async fn converse(
    rtsp: &Arc<Rtsp>,
    stream: TcpStream,
    client: SocketAddr,
    (place, told): (Place, oneshot::Receiver<Leave>),
) -> io::Result<()> {
    let server = stream.local_addr()?.ip().to_canonical();
    let ends = Ends { client: client.ip().to_canonical(), client_port: client.port(), server };
    set_options(&stream)?;
    let number = rtsp.count(|stats| {
        stats.connections += 1;
        stats.accepted += 1;
        stats.accepted
    });
    let token = Token { owner: owner::RTSP, number: number as u32 };
    let mut connection = Connection {
        rtsp,
        interleaved: Interleaved::new(token, ends),
        line: Line::Own(stream),
        inbox: Vec::with_capacity(READ_LEN),
        moved: Instant::now(),
        begun: None,
        session: None,
        set_up: Vec::new(),
        place,
        told,
    };
    let result = guard::answering(connection.run()).await.unwrap_or_else(|| {
        rtsp.count(|stats| stats.panicked += 1);
        Err(io::Error::other("a library panicked"))
    });
    for session in connection.interleaved.sessions() {
        rtsp.end(session);
    }
    if let Line::Worker(line) = connection.line {
        line.close().await;
    }
    rtsp.count(|stats| stats.connections -= 1);
    result
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    // A response or a packet does not wait for the one before to be acknowledged.
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_MAX)
}

impl Connection<'_> {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            let deadline = self.deadline().into();
            let read = tokio::select! {
                read = timeout_at(deadline, self.line.read(&mut self.inbox)) => read,
                _ = &mut self.told => return Ok(()),
            };
            let read = match read {
                // Whoever closes its half has had all that it asked for.
                Ok(Ok(0)) => return Ok(()),
                Ok(read) => read.map(drop),
                Err(_) if self.begun.is_none() && self.carries_sessions() => {
                    self.keep_place();
                    Ok(())
                }
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            };
            read?;
            self.moved = Instant::now();
            if !self.handle_requests().await? {
                return Ok(());
            }
        }
    }

    /// When it is given up.
    fn deadline(&self) -> Instant {
        let limits = &self.rtsp.limits;
        let begun = self.begun.map(|since| since + limits.request_timeout);
        begun.into_iter().fold(self.moved + limits.idle_timeout(self.has_session()), Instant::min)
    }

    /// Makes room while no session is left of those that were set up here, and only then.
    fn keep_place(&mut self) {
        self.set_up.retain(|id| self.rtsp.sessions.has(id));
        self.place.keep(!self.set_up.is_empty());
    }

    /// Whether there is a session that was spoken of here.
    fn has_session(&self) -> bool {
        self.session.as_ref().is_some_and(|id| self.rtsp.sessions.has(id))
    }

    /// Sessions that are interleaved keep it, also when their client says nothing; they time out by themselves.
    fn carries_sessions(&self) -> bool {
        self.interleaved.sessions().any(|id| self.rtsp.sessions.has(id))
    }

    /// Answers the requests that are whole; false when what follows cannot be understood.
    async fn handle_requests(&mut self) -> io::Result<bool> {
        let mut done = 0;
        loop {
            let len = match next_item(&self.inbox[done..]) {
                Ok(None) => {
                    self.inbox.drain(..done);
                    self.begun = self.begun.or(Some(Instant::now())).filter(|_| !self.inbox.is_empty());
                    return Ok(true);
                }
                Ok(Some((Item::Interleaved { data, .. }, len))) => {
                    self.rtsp.handle_report(Instant::now(), self.interleaved.ends.client, data);
                    len
                }
                Ok(Some((Item::Request(request), len))) => {
                    let response = self.rtsp.answer(Instant::now(), &mut self.interleaved, &request).await;
                    self.rtsp.count(|stats| stats.requests.count(Some(request.method), response.status));
                    if response.status == Status::Ok
                        && let Some(named) = response.header("Session")
                    {
                        self.session = Some(session_id(named).to_owned());
                    }
                    if request.method == Method::Setup && response.status == Status::Ok {
                        self.set_up.extend(self.session.clone());
                    }
                    let (text, is_play) = (response.to_text(request.cseq()), request.method == Method::Play);
                    // Before its client hears of it.
                    self.keep_place();
                    self.write(text).await?;
                    // What it held, also when it was refused.
                    if let (true, Some(worker)) = (is_play, self.interleaved.worker) {
                        self.rtsp.pump.let_go(worker, self.interleaved.connection);
                    }
                    len
                }
                Err(error) => {
                    let status = match error {
                        RtspError::Version => Status::VersionNotSupported,
                        _ => Status::BadRequest,
                    };
                    self.rtsp.count(|stats| stats.requests.count(None, status));
                    let response = Response::new(status).with("Connection", "close");
                    self.write(response.with_body("text/plain", error.to_string()).to_text(None)).await?;
                    return Ok(false);
                }
            };
            done += len;
            self.begun = None;
        }
    }

    async fn write(&mut self, text: String) -> io::Result<()> {
        let patience = self.rtsp.limits.write_timeout;
        if let (Line::Own(stream), Some(worker)) = (&self.line, self.interleaved.worker) {
            let descriptor = stream.as_fd().try_clone_to_owned()?;
            self.line = Line::Worker(self.rtsp.pump.adopt(worker, self.interleaved.connection, descriptor, patience));
        }
        tokio::select! {
            biased;
            written = self.line.write(text.into_bytes(), patience) => written,
            _ = &mut self.told => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Line {
    /// Waits for more; 0: nothing more comes.
    async fn read(&mut self, inbox: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Line::Own(stream) => stream.read_buf(inbox).await,
            Line::Worker(line) => {
                let bytes = line.hear().await.unwrap_or_default();
                inbox.extend_from_slice(&bytes);
                Ok(bytes.len())
            }
        }
    }

    async fn write(&mut self, bytes: Vec<u8>, patience: Duration) -> io::Result<()> {
        match self {
            Line::Own(stream) => timeout(patience, stream.write_all(&bytes)).await?,
            Line::Worker(line) => {
                line.say(bytes);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_a_client_does_not_take_waits_here_and_not_in_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        let (stream, _) = listener.accept().await.expect("accepted");
        SockRef::from(&client).set_recv_buffer_size(16 << 10).expect("set");
        set_options(&stream).expect("set");
        let mut taken = 0;
        let take = async {
            loop {
                stream.writable().await.expect("writable");
                taken += stream.try_write(&[0; 4_096]).unwrap_or(0);
            }
        };
        assert!(timeout(Duration::from_millis(300), take).await.is_err(), "it never ends");
        assert!(taken > 0 && taken < 512 << 10, "{taken}");
    }
}
