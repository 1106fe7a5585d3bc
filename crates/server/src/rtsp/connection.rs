//! One RTSP connection: bytes from TCP to requests, one after the other, and back responses and interleaved data.
//!
//! Cost: a task, with a buffer for what is the longest request, and one for what waits to be written. Whoever takes too
//! little loses interleaved data first, is then not listened to, and is closed when it takes nothing at all.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::sleep_until;
use wire::rtsp::{Item, Response, RtspError, Status, next_item};

use super::Rtsp;
use super::interleaved::{Carried, Ends, Interleaved, write_frame};

/// Bytes that wait to be written, until no more interleaved data is taken from the pump's socket.
const MEDIA_MAX: usize = 256 * 1024;

/// And until no more is read from the client. Above the other, so that one who takes too little can still pause.
const OUTBOX_MAX: usize = 384 * 1024;

/// Bytes that the kernel takes beyond what is on its way to the client. More would wait there for a slow one, and is
/// better kept back here, where what is too late goes as whole datagrams.
const UNSENT_MAX: u32 = 64 * 1024;

/// Bytes read at once.
const READ_LEN: usize = 4 * 1024;

struct Connection<'a> {
    rtsp: &'a Arc<Rtsp>,
    interleaved: Interleaved,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// What waits is still written, and nothing more is read.
    is_closing: bool,
    /// When bytes came or went last.
    moved: Instant,
    /// Since when there is less than a whole request.
    begun: Option<Instant>,
    /// Since when the client has taken nothing of what waits.
    stalled: Option<Instant>,
}

/// Serves a connection from its first byte to its end. What is interleaved in it ends with it.
pub(super) async fn converse(rtsp: &Arc<Rtsp>, mut stream: TcpStream, client: SocketAddr) -> io::Result<()> {
    let server = stream.local_addr()?.ip().to_canonical();
    let ends = Ends { client: client.ip().to_canonical(), client_port: client.port(), server };
    set_options(&stream)?;
    let mut connection = Connection {
        rtsp,
        interleaved: Interleaved::new(rtsp.counters.open_connection(), ends, rtsp.sockets.senders()),
        inbox: Vec::with_capacity(READ_LEN),
        outbox: Vec::new(),
        is_closing: false,
        moved: Instant::now(),
        begun: None,
        stalled: None,
    };
    let (mut reader, mut writer) = stream.split();
    let result = connection.run(&mut reader, &mut writer).await;
    for session in connection.interleaved.sessions() {
        rtsp.end(session).await;
    }
    rtsp.counters.close_connection();
    result
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    // A response or a packet does not wait for the one before to be acknowledged.
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_MAX)
}

impl Connection<'_> {
    async fn run(&mut self, reader: &mut ReadHalf<'_>, writer: &mut WriteHalf<'_>) -> io::Result<()> {
        loop {
            self.handle_requests().await;
            if self.is_closing && self.outbox.is_empty() {
                return Ok(());
            }
            let (reads, carries) = (self.reads(), !self.is_closing && self.outbox.len() < MEDIA_MAX);
            let deadline = self.deadline();
            tokio::select! {
                read = reader.read_buf(&mut self.inbox), if reads => {
                    // Whoever closes its half may still read what it asked for.
                    self.is_closing |= read? == 0;
                    self.moved = Instant::now();
                }
                written = writer.write(&self.outbox), if !self.outbox.is_empty() => {
                    self.outbox.drain(..written?);
                    self.moved = Instant::now();
                    self.stalled = None;
                    self.rtsp.keep(self.moved, &mut self.interleaved);
                }
                carried = self.interleaved.ready(), if carries => match carried {
                    Carried::Datagrams => {
                        let read = self.interleaved.read_datagrams(&mut self.outbox, MEDIA_MAX);
                        self.rtsp.counters.count_datagrams(read.carried, read.lost);
                    }
                    Carried::Report(report) => write_frame(&mut self.outbox, report.channel, &report.compound),
                },
                () = sleep_until(deadline.into()) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }

    fn reads(&self) -> bool {
        !self.is_closing && self.outbox.len() < OUTBOX_MAX
    }

    /// When it is given up.
    fn deadline(&mut self) -> Instant {
        let limits = &self.rtsp.limits;
        self.stalled = self.stalled.or(Some(Instant::now())).filter(|_| !self.outbox.is_empty());
        let stalled = self.stalled.map(|since| since + limits.write_timeout);
        let begun = self.begun.filter(|_| self.reads()).map(|since| since + limits.request_timeout);
        let idle = self.moved + limits.idle_timeout();
        stalled.into_iter().chain(begun).fold(idle, Instant::min)
    }

    /// Answers the requests that are whole.
    async fn handle_requests(&mut self) {
        while self.reads() {
            let len = match next_item(&self.inbox) {
                Ok(None) => {
                    self.begun = self.begun.or(Some(Instant::now())).filter(|_| !self.inbox.is_empty());
                    return;
                }
                Ok(Some((Item::Interleaved { data, .. }, len))) => {
                    self.rtsp.handle_report(Instant::now(), self.interleaved.ends.client, data);
                    len
                }
                Ok(Some((Item::Request(request), len))) => {
                    let response = self.rtsp.answer(Instant::now(), &mut self.interleaved, &request).await;
                    self.rtsp.counters.count_request(Some(request.method), response.status);
                    self.outbox.extend(response.to_text(request.cseq()).into_bytes());
                    len
                }
                Err(error) => {
                    let status = match error {
                        RtspError::Version => Status::VersionNotSupported,
                        _ => Status::BadRequest,
                    };
                    self.rtsp.counters.count_request(None, status);
                    let text = Response::new(status).with("Connection", "close").to_text(None);
                    self.outbox.extend(text.into_bytes());
                    self.is_closing = true;
                    return;
                }
            };
            self.inbox.drain(..len);
            self.begun = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        assert!(tokio::time::timeout(Duration::from_millis(300), take).await.is_err(), "it never ends");
        assert!(taken > 0 && taken < 512 << 10, "{taken}");
    }
}
