//! A client of the relay over a socket or a connection of its own, and a peer that sends back what comes.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use relay::answer::{Seal, Writer};
use relay::auth::UserKeys;
use relay::message::{Class, HEADER_LEN, Message, Method, attribute};

use super::line::{Cut, Line};
use super::{PATIENCE, Server};

/// Settings of a server with a relay on loopback, on a port that the system chooses. Loopback is refused to peers unless it
/// is allowed.
pub const RELAY: [&str; 3] =
    ["relay.listen=127.0.0.1:0", "relay.users=alice:open-sesame", "relay.allowed_peers=127.0.0.0/8"];

/// How long a request waits for its answer before it is sent again (RFC 8489 §6.2.1).
const RETRANSMIT: Duration = Duration::from_millis(500);

/// One five-tuple and who is at it.
pub struct TurnClient {
    pub line: Line,
    user: String,
    password: String,
    realm: String,
    nonce: Vec<u8>,
    transactions: u32,
}

/// What an answer says.
#[derive(Clone, Debug)]
pub struct Said {
    /// 0 is success.
    pub code: u16,
    pub lifetime: Option<u32>,
    pub relayed: Vec<SocketAddr>,
    pub reservation_token: Option<[u8; 8]>,
    pub bytes: Vec<u8>,
}

/// Where the relay of a server listens.
pub fn relay_of(server: &Server) -> SocketAddr {
    let shown = server.ask("GET", "/api/relay", &[], "").body;
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    shown["listen"][0].as_str().and_then(|addr| addr.parse().ok()).unwrap_or_else(|| panic!("{shown}"))
}

impl TurnClient {
    /// alice, from a port of her own.
    pub fn new(relay: SocketAddr) -> Self {
        TurnClient::of(relay, "alice", "open-sesame")
    }

    pub fn of(relay: SocketAddr, user: &str, password: &str) -> Self {
        TurnClient::at(Line::udp(relay), user, password)
    }

    /// alice by TCP or TLS.
    pub fn connected(relay: SocketAddr, is_tls: bool, cut: Cut) -> Self {
        TurnClient::at(Line::stream(relay, is_tls, cut), "alice", "open-sesame")
    }

    fn at(line: Line, user: &str, password: &str) -> Self {
        let (user, password) = (user.to_owned(), password.to_owned());
        TurnClient { line, user, password, realm: String::new(), nonce: Vec::new(), transactions: 0 }
    }

    /// Asks for an allocation; its first address.
    pub fn allocate(&mut self) -> SocketAddr {
        let said = self.ask_for_allocation();
        *said.relayed.first().unwrap_or_else(|| panic!("{said:?}"))
    }

    pub fn ask_for_allocation(&mut self) -> Said {
        self.request(Method::Allocate, |writer| {
            writer.number(attribute::REQUESTED_TRANSPORT, 17 << 24);
        })
    }

    pub fn refresh(&mut self, seconds: u32) -> Said {
        self.request(Method::Refresh, |writer| {
            writer.number(attribute::LIFETIME, seconds);
        })
    }

    /// Asks to reach a peer; the code of a refusal.
    pub fn permit(&mut self, peer: SocketAddr) -> u16 {
        let write = |writer: &mut Writer<'_>| {
            writer.xor_address(attribute::XOR_PEER_ADDRESS, peer);
        };
        self.request(Method::CreatePermission, write).code
    }

    pub fn bind(&mut self, channel: u16, peer: SocketAddr) -> u16 {
        let write = |writer: &mut Writer<'_>| {
            writer.number(attribute::CHANNEL_NUMBER, u32::from(channel) << 16);
            writer.xor_address(attribute::XOR_PEER_ADDRESS, peer);
        };
        self.request(Method::ChannelBind, write).code
    }

    /// Sends on a channel.
    pub fn send_on(&mut self, channel: u16, data: &[u8]) {
        self.line.send(&channel_data(channel, data));
    }

    /// Sends a Send indication.
    pub fn send_to(&mut self, peer: SocketAddr, data: &[u8]) {
        self.line.send(&send_indication(peer, data));
    }

    /// The next message that is no answer; `None` when none has come in time.
    pub fn receive(&mut self, wait: Duration) -> Option<Vec<u8>> {
        let until = Instant::now() + wait;
        loop {
            let came = self.line.receive(until.saturating_duration_since(Instant::now()))?;
            let is_answer = Message::parse(&came).is_ok_and(|it| matches!(it.class, Class::Success | Class::Error));
            if !is_answer {
                return Some(came);
            }
        }
    }

    /// Sends until something comes back: datagrams may be lost, answers may not. The payload that came on the channel.
    pub fn echo_on(&mut self, channel: u16, data: &[u8]) -> Vec<u8> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            self.send_on(channel, data);
            if let Some(came) = self.receive(RETRANSMIT) {
                assert_eq!(came[..2], channel.to_be_bytes(), "{came:?}");
                assert_eq!(usize::from(u16::from_be_bytes([came[2], came[3]])), came.len() - 4);
                return came[4..].to_vec();
            }
        }
        panic!("nothing came on channel {channel:#x}");
    }

    /// Sends one message on channel 0x4abc, which comes back, and no other.
    pub fn ping(&mut self, number: u32) {
        self.send_on(0x4abc, &number.to_be_bytes());
        let came = self.receive(PATIENCE).unwrap_or_else(|| panic!("message {number} is lost"));
        assert_eq!(came, channel_data(0x4abc, &number.to_be_bytes()));
    }

    /// A request, once more when it has still to be proved.
    pub fn request(&mut self, method: Method, write: impl Fn(&mut Writer<'_>)) -> Said {
        for _ in 0..3 {
            let said = self.exchange(method, &write);
            if ![401, 438].contains(&said.code) {
                return said;
            }
            let message = Message::parse(&said.bytes).expect("an answer");
            let is_first = self.nonce.is_empty() || said.code == 438;
            self.realm = str::from_utf8(message.realm.expect("a realm")).expect("text").to_owned();
            self.nonce = message.nonce.expect("a nonce").to_vec();
            if !is_first {
                return said;
            }
        }
        panic!("{method:?} is asked for new nonces without an end");
    }

    /// One request with what is known of realm and nonce, and its answer.
    pub fn exchange(&mut self, method: Method, write: impl Fn(&mut Writer<'_>)) -> Said {
        self.transactions += 1;
        let mut id = [0; 12];
        id[..4].copy_from_slice(&self.transactions.to_be_bytes());
        let mut buf = [0; 1_500];
        let mut writer = Writer::new(&mut buf, Class::Request, method, id);
        write(&mut writer);
        if !self.nonce.is_empty() {
            let key = UserKeys::new(&self.user, &self.realm, &self.password).md5.expect("of a password");
            writer.attribute(attribute::USERNAME, self.user.as_bytes());
            writer.attribute(attribute::REALM, self.realm.as_bytes()).attribute(attribute::NONCE, &self.nonce);
            writer.seal(&Seal::sha1(&key));
        }
        let len = writer.finish().expect("there is room");
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            self.line.send(&buf[..len]);
            if let Some(said) = self.answer(id) {
                return said;
            }
        }
        panic!("no answer to {method:?}");
    }

    /// The answer to a transaction; what else comes meanwhile is lost.
    fn answer(&mut self, id: [u8; 12]) -> Option<Said> {
        let until = Instant::now() + RETRANSMIT;
        loop {
            let came = self.line.receive(until.saturating_duration_since(Instant::now()))?;
            if Message::parse(&came).is_ok_and(|message| message.transaction() == id) {
                return Some(Said::of(&came));
            }
        }
    }
}

impl Said {
    /// Attribute by attribute (RFC 8489 §14).
    fn of(bytes: &[u8]) -> Self {
        let mut said =
            Said { code: 0, lifetime: None, relayed: Vec::new(), reservation_token: None, bytes: bytes.to_vec() };
        let mut rest = &bytes[HEADER_LEN..];
        while let Some((&[type_high, type_low, len_high, len_low], after)) = rest.split_first_chunk() {
            let len = usize::from(u16::from_be_bytes([len_high, len_low]));
            let value = &after[..len];
            match u16::from_be_bytes([type_high, type_low]) {
                attribute::ERROR_CODE => said.code = u16::from(value[2]) * 100 + u16::from(value[3]),
                attribute::LIFETIME => said.lifetime = value.try_into().ok().map(u32::from_be_bytes),
                attribute::XOR_RELAYED_ADDRESS => said.relayed.push(address(value, &bytes[4..20])),
                attribute::RESERVATION_TOKEN => said.reservation_token = value.try_into().ok(),
                _ => {}
            }
            rest = &after[len.next_multiple_of(4)..];
        }
        said
    }
}

/// An IPv4 address behind the cookie (RFC 8489 §14.2).
fn address(value: &[u8], mask: &[u8]) -> SocketAddr {
    let port = u16::from_be_bytes([value[2] ^ mask[0], value[3] ^ mask[1]]);
    let ip: [u8; 4] = std::array::from_fn(|index| value[4 + index] ^ mask[index]);
    (ip, port).into()
}

pub fn channel_data(channel: u16, data: &[u8]) -> Vec<u8> {
    [&channel.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat()
}

pub fn send_indication(peer: SocketAddr, data: &[u8]) -> Vec<u8> {
    let mut buf = [0; 2_000];
    let mut writer = Writer::new(&mut buf, Class::Indication, Method::Send, [9; 12]);
    writer.xor_address(attribute::XOR_PEER_ADDRESS, peer).attribute(attribute::DATA, data);
    let len = writer.finish().expect("there is room");
    buf[..len].to_vec()
}

/// A client by UDP that sends to a peer and hears of it all the time, and misses nothing.
pub struct Undisturbed {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Undisturbed {
    pub fn start(relay: SocketAddr, echo: &Echo) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let told = is_over.clone();
        let mut client = TurnClient::new(relay);
        client.allocate();
        assert_eq!(client.bind(0x4abc, echo.addr), 0);
        let body = move || {
            let mut count = 0_u32;
            while !told.load(Ordering::Relaxed) {
                client.ping(count);
                count += 1;
            }
            count
        };
        Undisturbed { is_over, thread: thread::spawn(body) }
    }

    /// How many messages came back; none is missing.
    pub fn end(self) -> u32 {
        self.is_over.store(true, Ordering::Relaxed);
        let count = self.thread.join().expect("nothing was lost");
        assert!(count > 0);
        count
    }
}

/// A peer on loopback that sends back what comes, until it is dropped.
pub struct Echo {
    pub addr: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    pub fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time");
        let (addr, is_over) = (socket.local_addr().expect("bound"), Arc::new(AtomicBool::new(false)));
        let told = is_over.clone();
        let body = move || {
            let mut buf = [0; 65_536];
            while !told.load(Ordering::Relaxed) {
                if let Ok((len, from)) = socket.recv_from(&mut buf) {
                    socket.send_to(&buf[..len], from).ok();
                }
            }
        };
        Echo { addr, is_over, thread: Some(thread::spawn(body)) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}
