//! A WebRTC client on one socket, without a thread: `pump` lets it take part.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Instant;

use srtp::{Opener, Profile, Sealer, SessionKeys};
use webrtc::{Context, Media, OfferOptions, Output, Peer, Remote};

use super::{Answer, Server, wait_until};

/// How a client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Udp4,
    /// The same from 127.0.0.2, an address that nobody else has.
    Udp4Apart,
    Udp6,
    /// ICE-TCP over IPv4.
    Tcp,
}

pub struct Client {
    pub peer: Peer,
    pub socket: Socket,
    /// The socket before a move to another, where late datagrams may come.
    left: Option<Socket>,
    /// Since it goes on from another address, media has come there.
    pub has_moved: bool,
    pub media: Vec<Media>,
    /// Path of the session's resource.
    pub resource: String,
    pub etag: String,
    /// The server's user fragment and password.
    pub credentials: [String; 2],
    /// The one address of the server that the client was told of.
    pub server: SocketAddr,
    pub link: Option<SrtpLink>,
    /// The session is over: goodbye was said.
    pub has_ended: bool,
    /// Media datagrams as they came.
    inbox: VecDeque<Vec<u8>>,
}

/// What the handshake gave.
pub struct SrtpLink {
    pub profile: Profile,
    pub opener: Opener,
    pub sealer: Sealer,
}

pub enum Socket {
    Udp(UdpSocket),
    Tcp {
        stream: TcpStream,
        /// Received bytes that are no whole frame yet.
        received: Vec<u8>,
    },
}

impl Client {
    /// Sends an offer to `endpoint` and waits until ICE and DTLS are done.
    pub fn join(server: &Server, endpoint: &str, way: Way, options: &OfferOptions<'_>) -> Client {
        Client::join_with(server, endpoint, way, options, &[])
    }

    /// The same, with further lines in the request's head.
    pub fn join_with(
        server: &Server,
        endpoint: &str,
        way: Way,
        options: &OfferOptions<'_>,
        headers: &[&str],
    ) -> Client {
        let context = Context::new().expect("a certificate");
        let options = OfferOptions { tcp: way == Way::Tcp, ..*options };
        let (mut peer, offer) = Peer::offer(&context, Instant::now(), &options).expect("an offer");
        let headers = [&["Content-Type: application/sdp"], headers].concat();
        let answer = server.ask("POST", endpoint, &headers, &offer);
        assert_eq!(answer.status, 201, "{}", answer.body);
        let (sdp, server) = with_one_candidate(&answer, way);
        let media = peer.accept_answer(&sdp).expect("an answer that fits").media;
        let mut client = Client {
            peer,
            socket: Socket::open(way, server),
            left: None,
            has_moved: false,
            media,
            resource: answer.location(endpoint),
            etag: answer.header("etag").to_owned(),
            credentials: ["a=ice-ufrag:", "a=ice-pwd:"].map(|name| value_of(&sdp, name)),
            server,
            link: None,
            has_ended: false,
            inbox: VecDeque::new(),
        };
        wait_until("ICE and DTLS are done", || {
            client.pump();
            client.link.is_some()
        });
        client
    }

    /// Does what is due and takes what has come, without waiting.
    pub fn pump(&mut self) {
        loop {
            let here = self.socket.receive();
            let is_here = here.is_some();
            let Some(datagram) = here.or_else(|| self.left.as_mut()?.receive()) else { break };
            match datagram.first() {
                Some(128..=191) => {
                    self.has_moved |= is_here && self.left.is_some();
                    self.inbox.push_back(datagram);
                }
                _ => {
                    let remote = Remote { addr: self.server, tcp: self.socket.is_tcp() };
                    // What is refused here is the peer's own concern.
                    let _ = self.peer.handle_datagram(Instant::now(), remote, &datagram);
                }
            }
        }
        self.peer.handle_timeout(Instant::now());
        loop {
            match self.peer.poll() {
                Output::Transmit { data, .. } => self.socket.send(&data),
                Output::Connected { keys, .. } => self.link = Some(SrtpLink::new(&keys)),
                Output::Ended(_) => self.has_ended = true,
                Output::PathChanged(_) | Output::Channel(_) => {}
                Output::Timeout(_) => return,
            }
        }
    }

    /// Goes on from another address, as after a change of network. Checks have to follow, or nobody knows.
    pub fn change_address(&mut self) {
        let way = if self.server.is_ipv6() { Way::Udp6 } else { Way::Udp4 };
        self.left = Some(std::mem::replace(&mut self.socket, Socket::open(way, self.server)));
    }

    /// Closes the socket before `change_address`.
    pub fn forget_old_address(&mut self) {
        self.left = None;
    }

    /// The next media datagram, sealed as it came.
    pub fn next_media(&mut self) -> Option<Vec<u8>> {
        self.inbox.pop_front()
    }

    /// Seals and sends one compound RTCP packet.
    pub fn send_rtcp(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) {
        let mut buf = [0; 1_400];
        let len = write(&mut buf[..1_200]).expect("room");
        let len = self.link.as_mut().expect("keys").sealer.seal_rtcp(&mut buf, len);
        self.socket.send(&buf[..len]);
    }

    /// Ends the session by HTTP.
    pub fn leave(&self, server: &Server) {
        assert_eq!(server.ask("DELETE", &self.resource, &[], "").status, 200);
    }
}

impl SrtpLink {
    fn new(keys: &SessionKeys) -> Self {
        let (opener, sealer) = (Opener::new(keys).expect("keys"), Sealer::new(keys).expect("keys"));
        SrtpLink { profile: keys.profile(), opener, sealer }
    }
}

impl Socket {
    fn open(way: Way, server: SocketAddr) -> Self {
        if way == Way::Tcp {
            let stream = TcpStream::connect(server).expect("the worker listens");
            stream.set_nonblocking(true).expect("nonblocking");
            return Socket::Tcp { stream, received: Vec::new() };
        }
        let own = match way {
            Way::Udp6 => "[::1]:0",
            Way::Udp4Apart => "127.0.0.2:0",
            Way::Udp4 | Way::Tcp => "127.0.0.1:0",
        };
        let socket = UdpSocket::bind(own).expect("a free port");
        socket.connect(server).expect("connected");
        socket.set_nonblocking(true).expect("nonblocking");
        Socket::Udp(socket)
    }

    pub fn local_addr(&self) -> SocketAddr {
        let addr = match self {
            Socket::Udp(socket) => socket.local_addr(),
            Socket::Tcp { stream, .. } => stream.local_addr(),
        };
        addr.expect("it is connected")
    }

    fn is_tcp(&self) -> bool {
        matches!(self, Socket::Tcp { .. })
    }

    pub fn send(&mut self, datagram: &[u8]) {
        match self {
            // As on any network, a datagram may be lost.
            Socket::Udp(socket) => drop(socket.send(datagram)),
            // RFC 4571 §2: the length, then the packet. So little is sent that the kernel always has room.
            Socket::Tcp { stream, .. } => {
                let frame = [&(datagram.len() as u16).to_be_bytes(), datagram].concat();
                stream.write_all(&frame).expect("room in the socket");
            }
        }
    }

    /// The next datagram, when one is there.
    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut buf = [0; 4_096];
        match self {
            Socket::Udp(socket) => socket.recv(&mut buf).ok().map(|len| buf[..len].to_vec()),
            Socket::Tcp { stream, received } => {
                if let Ok(len) = stream.read(&mut buf) {
                    received.extend_from_slice(&buf[..len]);
                }
                let end = 2 + usize::from(u16::from_be_bytes(*received.first_chunk()?));
                let frame = received.get(2..end)?.to_vec();
                received.drain(..end);
                Some(frame)
            }
        }
    }
}

/// What a browser does whose network has changed.
pub fn restart_from_another_address(server: &Server, client: &mut Client) {
    let fragment = client.peer.start_restart().unwrap();
    let if_match = format!("If-Match: {}", client.etag);
    let answer = server.ask("PATCH", &client.resource, &[FRAGMENT, &if_match], &fragment);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_ne!(answer.header("etag"), client.etag, "another ICE session has another name");
    client.change_address();
    client.peer.accept_restart(&answer.body).expect("a fragment that fits");
}

/// The content type of what a PATCH has.
pub const FRAGMENT: &str = "Content-Type: application/trickle-ice-sdpfrag";

/// The rest of the first line that begins so.
fn value_of(sdp: &str, name: &str) -> String {
    sdp.lines().find_map(|line| line.strip_prefix(name)).expect("a line of that name").to_owned()
}

/// Leaves one candidate in an answer: the loopback address that `way` goes to.
fn with_one_candidate(answer: &Answer, way: Way) -> (String, SocketAddr) {
    let (ip, protocol) = match way {
        Way::Udp4 | Way::Udp4Apart => ("127.0.0.1", "udp"),
        Way::Udp6 => ("::1", "udp"),
        Way::Tcp => ("127.0.0.1", "tcp"),
    };
    let mut server = None;
    let mut sdp = String::new();
    for line in answer.body.lines() {
        if let Some(candidate) = line.strip_prefix("a=candidate:") {
            // foundation, component, transport, priority, address, port (RFC 8839 §5.1).
            let words: Vec<&str> = candidate.split(' ').collect();
            if words[4] != ip || !words[2].eq_ignore_ascii_case(protocol) {
                continue;
            }
            let port = words[5].parse().expect("a port");
            server = Some(SocketAddr::new(ip.parse().expect("an address"), port));
        }
        sdp.push_str(line);
        sdp.push_str("\r\n");
    }
    (sdp, server.expect("a candidate on loopback"))
}
