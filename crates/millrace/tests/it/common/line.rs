//! How a client of the relay reaches it: by UDP, or by TCP or TLS, cut into pieces of which the server reads each by itself.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::ops::Range;
use std::time::{Duration, Instant};

use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use wire::framing::{Frame, Framing};

use super::wait_until;

/// The longest message.
const FRAME_MAX: usize = (1 << 16) + 4;

/// A client's socket, and what stands around its messages.
pub enum Line {
    Udp(UdpSocket),
    Stream(Box<StreamLine>),
}

/// One connection.
pub struct StreamLine {
    tcp: TcpStream,
    /// None: it is plain TCP.
    tls: Option<ClientConnection>,
    /// Plain bytes that came and were not taken.
    came: Vec<u8>,
    /// Where what is sent is cut; the server has read all before the next piece leaves.
    pub cut: Cut,
}

/// Where bytes that are sent together are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Nowhere,
    Everywhere,
    At(usize),
}

impl Line {
    pub fn udp(relay: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(relay).expect("loopback");
        Line::Udp(socket)
    }

    pub fn stream(relay: SocketAddr, is_tls: bool, cut: Cut) -> Self {
        let tcp = TcpStream::connect(relay).expect("it listens");
        tcp.set_nodelay(true).expect("an option");
        let mut line = StreamLine { tcp, tls: None, came: Vec::new(), cut };
        if is_tls {
            line.shake_hands();
        }
        Line::Stream(Box::new(line))
    }

    pub fn local_addr(&self) -> SocketAddr {
        match self {
            Line::Udp(socket) => socket.local_addr().expect("bound"),
            Line::Stream(line) => line.tcp.local_addr().expect("bound"),
        }
    }

    /// Its connection.
    pub fn connection(&mut self) -> &mut StreamLine {
        match self {
            Line::Udp(_) => panic!("a client by UDP"),
            Line::Stream(line) => line,
        }
    }

    /// Sends one message.
    pub fn send(&mut self, message: &[u8]) {
        match self {
            Line::Udp(socket) => assert_eq!(socket.send(message).expect("loopback"), message.len()),
            Line::Stream(line) => {
                let padding = Framing::Turn.wrap(message.len()).expect("it is short");
                line.write(&[message, padding.padding()].concat());
            }
        }
    }

    /// The next message; `None` when none has come in time.
    pub fn receive(&mut self, wait: Duration) -> Option<Vec<u8>> {
        match self {
            Line::Udp(socket) => {
                let until = Instant::now() + wait;
                let mut buf = [0; 65_536];
                loop {
                    let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
                    socket.set_read_timeout(Some(left)).expect("a time");
                    // One that was refused by ICMP is a datagram that has not come.
                    if let Ok(len) = socket.recv(&mut buf) {
                        return Some(buf[..len].to_vec());
                    }
                }
            }
            Line::Stream(line) => line.receive(wait),
        }
    }
}

impl StreamLine {
    fn shake_hands(&mut self) {
        let name = ServerName::IpAddress(IpAddr::from([127, 0, 0, 1]).into());
        let config = load::relay::tls_config().expect("TLS");
        let mut tls = ClientConnection::new(config, name).expect("TLS");
        tls.set_buffer_limit(None);
        while tls.is_handshaking() || tls.wants_write() {
            let mut bytes = Vec::new();
            while tls.wants_write() {
                tls.write_tls(&mut bytes).expect("memory");
            }
            self.write_cut(&bytes);
            if tls.is_handshaking() {
                assert!(tls.read_tls(&mut self.tcp).expect("it is there") > 0, "the server has hung up");
                tls.process_new_packets().expect("TLS");
            }
        }
        self.tls = Some(tls);
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, plain: &[u8]) {
        let bytes = self.sealed(plain);
        self.write_cut(&bytes);
    }

    /// The bytes as they leave.
    pub fn sealed(&mut self, plain: &[u8]) -> Vec<u8> {
        let Some(tls) = &mut self.tls else { return plain.to_vec() };
        tls.writer().write_all(plain).expect("memory");
        let mut bytes = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut bytes).expect("memory");
        }
        bytes
    }

    /// Sends what stands on the network. Whoever hangs up need not have read it.
    pub fn write_cut(&mut self, bytes: &[u8]) {
        let len = bytes.len();
        let pieces: Vec<Range<usize>> = match self.cut {
            Cut::Nowhere => std::iter::once(0..len).collect(),
            Cut::Everywhere => (0..len).map(|at| at..at + 1).collect(),
            Cut::At(at) => vec![0..at.min(len), at.min(len)..len],
        };
        for piece in pieces {
            if self.tcp.write_all(&bytes[piece]).is_err() {
                return;
            }
            if self.cut != Cut::Nowhere {
                self.await_read();
            }
        }
    }

    /// Waits until the server has read all that was sent.
    fn await_read(&self) {
        let (own, server) = (self.tcp.local_addr().expect("bound"), self.tcp.peer_addr().expect("connected"));
        let (own, server) = (kernels_name(own), kernels_name(server));
        wait_until("it is read", || {
            let table = fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
            let mut rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
            // What waits to be sent at our end, and to be read at the server's.
            rows.all(|row| match (row[1] == own, row[1] == server && row[2] == own) {
                (true, _) => row[4].starts_with("00000000:"),
                (_, true) => row[4].ends_with(":00000000"),
                _ => true,
            })
        });
    }

    fn receive(&mut self, wait: Duration) -> Option<Vec<u8>> {
        let until = Instant::now() + wait;
        loop {
            match Framing::Turn.next_frame(&self.came, FRAME_MAX) {
                Frame::Datagram { range, end } => {
                    let message = self.came[range].to_vec();
                    self.came.drain(..end);
                    return Some(message);
                }
                Frame::Incomplete { .. } => {}
                Frame::Invalid => panic!("that is no message: {:?}", self.came),
            }
            let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            self.tcp.set_read_timeout(Some(left)).expect("a time");
            if !self.read() {
                return None;
            }
        }
    }

    /// Reads once. False when nothing came in time, or nothing more will.
    fn read(&mut self) -> bool {
        let mut buf = [0; 16_384];
        let Ok(len @ 1..) = self.tcp.read(&mut buf) else { return false };
        let Some(tls) = &mut self.tls else {
            self.came.extend_from_slice(&buf[..len]);
            return true;
        };
        let mut bytes = &buf[..len];
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes).expect("memory");
            let Ok(state) = tls.process_new_packets() else { return false };
            let start = self.came.len();
            self.came.resize(start + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut self.came[start..]).expect("it is there");
        }
        true
    }

    /// Waits until the server has hung up.
    pub fn await_end(&mut self) {
        self.tcp.set_read_timeout(Some(super::PATIENCE)).expect("a time");
        let mut buf = [0; 16_384];
        loop {
            match self.tcp.read(&mut buf) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => return,
                Err(error) => panic!("the server does not hang up: {error}"),
            }
        }
    }
}

/// An address as /proc/net/tcp has it.
fn kernels_name(addr: SocketAddr) -> String {
    let IpAddr::V4(ip) = addr.ip() else { panic!("loopback is IPv4 here") };
    format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), addr.port())
}
