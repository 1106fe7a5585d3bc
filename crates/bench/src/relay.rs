//! `millrace bench relay`: the least that a relay takes, as a server for `millrace load relay`.
//!
//! In: an address, and how datagrams are moved. Out: a TURN server for measurements, until it is ended: allocations and
//! channels without credentials, permissions, timers, limits or counters.
//! How: one thread. What all ready sockets have is received first, then handled, then sent. A message of one client or peer,
//! which may be many datagrams, costs one lookup; payloads are not copied:
//! the header's bytes are left out on the way up, and written before each datagram on the way down (`Outbox::push_prefixed`).
//! What a real relay takes more than this is what its rules cost.
//! Source: RFC 8656 for what little is understood of it; recvmmsg(2), sendmmsg(2), udp(7).

mod stun;

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::BuildHasherDefault;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;

use anyhow::{Context as _, Result};
use engine::sys::{Epoll, Interest, Outgoing, Payload, RecvBatch, SendBatch};
use engine::udp::{Options, UdpSocket, recv_batch};
use rustc_hash::FxHasher;
use wire::{DatagramRun, LinkId, Outbox, Path, Run, RunBytes, Token};

use stun::Request;

/// How datagrams are moved.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Joined by the kernel on the way in, and split by it on the way out.
    #[default]
    Gro,
    /// Many at a time on the way in, and split on the way out.
    Gso,
    /// Many at a time, each on its own.
    Plain,
}

/// Options of `millrace bench relay`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Where clients come to. Relayed addresses are of the same host.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:3478")]
    pub listen: SocketAddrV4,
    /// How datagrams are moved.
    #[arg(long, value_enum, default_value_t)]
    pub way: Way,
}

/// The listener's link; the relay sockets' follow.
const LISTENER: u32 = 0;

/// Batches received from one socket before the others get their turn.
const BATCHES_MAX: usize = 4;

/// Sockets of which one wait reports.
const READY_MAX: usize = 256;

const OUTBOX_BYTES: usize = 512 << 10;

/// Datagrams of one message at most, as far as senders join them.
const SEGMENTS_MAX: usize = 64;

/// Runs the relay until somebody ends it.
///
/// # Errors
/// When a socket is not to be had.
pub fn execute(args: &Args) -> Result<Infallible> {
    engine::sys::raise_open_files_max().context("raise the limit of open files")?;
    let relay = Relay::new(args)?;
    println!("relays at {}", relay.local_addr());
    relay.run()
}

/// A client's allocation.
struct Allocation {
    socket: UdpSocket,
    client: Path,
    channel: u16,
    /// Where the channel leads.
    peer: Option<Path>,
}

/// A relay without rules.
pub struct Relay {
    way: Way,
    listener: UdpSocket,
    allocations: Vec<Option<Allocation>>,
    /// Numbers of allocations, by the client's address.
    clients: HashMap<SocketAddr, u32, BuildHasherDefault<FxHasher>>,
    epoll: Epoll,
    batch: RecvBatch,
    /// Whose messages these are, one socket after the other, and where each one's end.
    sources: Vec<(u32, usize)>,
    out: Outbox,
    sender: SendBatch,
}

impl Relay {
    /// Opens its listener.
    ///
    /// # Errors
    /// When the address is not to be had.
    pub fn new(args: &Args) -> Result<Self> {
        let listener = UdpSocket::bind(args.listen.into(), &args.way.options())
            .with_context(|| format!("bind {}", args.listen))?;
        let epoll = Epoll::new(READY_MAX).context("open an epoll set")?;
        epoll.add(listener.as_fd(), LISTENER.into(), Interest::READ).context("watch the listener")?;
        Ok(Relay {
            way: args.way,
            listener,
            allocations: Vec::new(),
            clients: HashMap::default(),
            epoll,
            batch: recv_batch(args.way == Way::Gro),
            sources: Vec::with_capacity(READY_MAX),
            out: Outbox::new(OUTBOX_BYTES),
            sender: SendBatch::default(),
        })
    }

    /// Where clients come to.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Relays for ever.
    ///
    /// # Errors
    /// When a socket is not to be had.
    pub fn run(mut self) -> Result<Infallible> {
        loop {
            self.turn()?;
        }
    }

    /// Receives what all ready sockets have, then sends what it becomes.
    fn turn(&mut self) -> Result<()> {
        self.epoll.wait(None).context("wait for datagrams")?;
        for index in 0..self.epoll.ready_count() {
            let Some(ready) = self.epoll.ready(index) else { break };
            self.receive(ready.token as u32)?;
        }
        self.handle_received()
    }

    fn receive(&mut self, link: u32) -> Result<()> {
        for _ in 0..BATCHES_MAX {
            let Some(socket) = socket(&self.listener, &self.allocations, link) else { return Ok(()) };
            // What ICMP says is nothing to us.
            self.batch.fill(socket).ok();
            self.sources.push((link, self.batch.message_count()));
            if !self.batch.is_full() {
                break;
            }
            self.handle_received()?;
        }
        Ok(())
    }

    fn handle_received(&mut self) -> Result<()> {
        let mut first = 0;
        for place in 0..self.sources.len() {
            let (link, end) = self.sources[place];
            for index in first..end {
                if !self.out.has_room_for(SEGMENTS_MAX) {
                    self.flush();
                }
                self.handle(link, index)?;
            }
            first = end;
        }
        self.flush();
        self.sources.clear();
        self.batch.clear();
        Ok(())
    }

    /// Takes one message of the batch.
    fn handle(&mut self, link: u32, index: usize) -> Result<()> {
        let Some(message) = self.batch.message(index) else { return Ok(()) };
        let token = Token { owner: 0, number: link };
        let run = message.into_run(token, LinkId::datagrams(link), 0, usize::MAX);
        if link != LISTENER {
            let place = self.allocations.get((link - 1) as usize);
            if let Some(allocation) = place.and_then(Option::as_ref) {
                allocation.down(&run, &mut self.out);
            }
            return Ok(());
        }
        if run.data.first().is_some_and(|first| first >> 6 == 0) {
            let (client, bytes) = (run.path, run.data.to_vec());
            for bytes in bytes.chunks(run.segment_size.get()) {
                self.answer(client, bytes)?;
            }
            return Ok(());
        }
        let number = self.clients.get(&run.path.remote);
        if let Some(Some(allocation)) = number.map(|number| &self.allocations[*number as usize]) {
            allocation.up(&run, &mut self.out);
        }
        Ok(())
    }

    fn answer(&mut self, client: Path, bytes: &[u8]) -> Result<()> {
        let Some(request) = stun::read(bytes) else { return Ok(()) };
        let number = self.clients.get(&client.remote).copied();
        let relayed = match (&request, number) {
            (Request::Allocate, None) => Some(self.allocate(client)?),
            (_, Some(number)) => {
                let allocation = self.allocations[number as usize].as_mut();
                match (request, allocation) {
                    (Request::Bind { channel, peer }, Some(allocation)) => {
                        allocation.channel = channel;
                        let link = LinkId::datagrams(number + 1);
                        allocation.peer = Some(Path { link, remote: peer.into(), local: None });
                    }
                    (Request::Free, _) => {
                        self.allocations[number as usize] = None;
                        self.clients.remove(&client.remote);
                    }
                    _ => {}
                }
                self.allocations[number as usize].as_ref().map(|allocation| allocation.socket.local_addr())
            }
            (_, None) => None,
        };
        let answer = stun::answer(bytes, client.remote, relayed);
        self.out.push(&client, &answer);
        Ok(())
    }

    fn allocate(&mut self, client: Path) -> Result<SocketAddr> {
        let options = Options { receive_buffer_bytes: None, send_buffer_bytes: None, ..self.way.options() };
        let socket =
            UdpSocket::bind((self.listener.local_addr().ip(), 0).into(), &options).context("bind a relay socket")?;
        let free = self.allocations.iter().position(Option::is_none);
        let number = free.unwrap_or(self.allocations.len());
        self.epoll.add(socket.as_fd(), number as u64 + 1, Interest::READ).context("watch a relay socket")?;
        let relayed = socket.local_addr();
        let allocation = Some(Allocation { socket, client, channel: 0, peer: None });
        match self.allocations.get_mut(number) {
            Some(place) => *place = allocation,
            None => self.allocations.push(allocation),
        }
        self.clients.insert(client.remote, number as u32);
        Ok(relayed)
    }

    /// Hands all to the kernel; what it does not take is dropped.
    fn flush(&mut self) {
        let (out, received) = (&self.out, self.batch.received());
        for runs in out.runs().chunk_by(|one, other| one.path.link == other.path.link) {
            let link = runs[0].path.link.slot() as u32;
            let Some(socket) = socket(&self.listener, &self.allocations, link) else { continue };
            let mut messages = messages(out, runs, received, self.way).peekable();
            while messages.peek().is_some() {
                // The kernel takes some; what it took is not offered again.
                match self.sender.send(socket.as_fd(), messages.clone()) {
                    Ok(count) => drop(messages.by_ref().take(count).last()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => drop(messages.next()),
                }
            }
        }
        self.out.clear();
    }
}

impl Way {
    fn options(self) -> Options {
        Options { gro: self == Way::Gro, gso: self != Way::Plain, ..Options::default() }
    }
}

impl Allocation {
    /// ChannelData of one client: each must be of the channel and as long as it says.
    fn up(&self, run: &DatagramRun<'_>, out: &mut Outbox) {
        let Some(peer) = &self.peer else { return };
        let is_sound = |data: &[u8]| {
            data.first_chunk().is_some_and(|[high, low, len_high, len_low]| {
                u16::from_be_bytes([*high, *low]) == self.channel
                    && usize::from(u16::from_be_bytes([*len_high, *len_low])) == data.len() - 4
            })
        };
        let count = run.data.chunks(run.segment_size.get()).take_while(|data| is_sound(data)).count();
        out.push_prefixed(peer, run, 0..count, 4..run.segment_size.get(), |_| []);
    }

    /// What a peer sent.
    fn down(&self, run: &DatagramRun<'_>, out: &mut Outbox) {
        if self.peer.is_none_or(|peer| peer.remote != run.path.remote) {
            return;
        }
        let [high, low] = self.channel.to_be_bytes();
        out.push_prefixed(&self.client, run, 0..run.datagram_count(), 0..run.segment_size.get(), |payload| {
            let [len_high, len_low] = (payload.len() as u16).to_be_bytes();
            [high, low, len_high, len_low]
        });
    }
}

fn socket<'a>(listener: &'a UdpSocket, allocations: &'a [Option<Allocation>], link: u32) -> Option<&'a UdpSocket> {
    match link.checked_sub(1) {
        None => Some(listener),
        Some(number) => Some(&allocations.get(number as usize)?.as_ref()?.socket),
    }
}

/// What runs become: a message each, or one for each datagram.
fn messages<'a>(
    out: &'a Outbox,
    runs: &'a [Run],
    received: &'a [u8],
    way: Way,
) -> impl Iterator<Item = Outgoing<'a>> + Clone {
    runs.iter().flat_map(move |run| {
        let at_once = if way == Way::Plain { 1 } else { run.segment_count() };
        (0..run.segment_count()).step_by(at_once).map(move |first| {
            let start = first * run.segment_size();
            let len = (run.len_bytes() - start).min(at_once * run.segment_size());
            let data = match out.run_bytes(run, received) {
                RunBytes::Whole(bytes) => Payload::Whole(&bytes[start..start + len]),
                RunBytes::Gathered(gathered) => Payload::Gathered { run: gathered, first, count: at_once, len },
            };
            let segment_bytes = (at_once > 1).then_some(run.segment_size() as u16);
            Outgoing { path: &run.path, data, segment_bytes }
        })
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as Plain;
    use std::time::Duration;

    use super::*;

    fn request(kind: u16, attributes: &[u8]) -> Vec<u8> {
        let len = (attributes.len() as u16).to_be_bytes();
        [&kind.to_be_bytes()[..], &len, &[0x21, 0x12, 0xa4, 0x42], &[7; 12], attributes].concat()
    }

    fn xor_peer(addr: SocketAddr) -> Vec<u8> {
        let SocketAddr::V4(addr) = addr else { panic!("not of IPv4") };
        let port = (addr.port() ^ 0x2112).to_be_bytes();
        let ip = (addr.ip().to_bits() ^ 0x2112_a442).to_be_bytes();
        [&[0, 0x12, 0, 8, 0, 1][..], &port, &ip].concat()
    }

    fn bound() -> Plain {
        let socket = Plain::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    }

    /// Lets the relay work until the socket has something.
    fn next(relay: &mut Relay, socket: &Plain) -> Vec<u8> {
        let mut buf = [0; 2_000];
        socket.set_nonblocking(true).unwrap();
        loop {
            match socket.recv(&mut buf) {
                Ok(len) => return buf[..len].to_vec(),
                Err(_) => relay.turn().unwrap(),
            }
        }
    }

    #[test]
    fn what_a_client_sends_comes_to_its_peer_and_back_in_every_way() {
        for way in [Way::Gro, Way::Gso, Way::Plain] {
            let mut relay = Relay::new(&Args { listen: "127.0.0.1:0".parse().unwrap(), way }).unwrap();
            let (client, peer) = (bound(), bound());
            client.connect(relay.local_addr()).unwrap();
            client.send(&request(0x0003, &[])).unwrap();
            assert_eq!(next(&mut relay, &client)[..2], [1, 3]);
            let channel = [0, 0x0c, 0, 4, 0x40, 5, 0, 0];
            client.send(&request(0x0009, &[&channel[..], &xor_peer(peer.local_addr().unwrap())].concat())).unwrap();
            assert_eq!(next(&mut relay, &client)[..2], [1, 9]);
            for number in 0..3 {
                client.send(&[0x40, 5, 0, 3, 1, 2, number]).unwrap();
                assert_eq!(next(&mut relay, &peer), [1, 2, number], "{way:?}");
            }
            let relayed = relay.allocations[0].as_ref().unwrap().socket.local_addr();
            peer.set_nonblocking(false).unwrap();
            peer.send_to(&[9, 8], relayed).unwrap();
            assert_eq!(next(&mut relay, &client), [0x40, 5, 0, 2, 9, 8], "{way:?}");
            // Another channel leads nowhere, and who has freed his allocation has none.
            client.send(&[0x40, 6, 0, 3, 1, 2, 3]).unwrap();
            client.send(&request(0x0004, &[0, 0x0d, 0, 4, 0, 0, 0, 0])).unwrap();
            assert_eq!(next(&mut relay, &client)[..2], [1, 4]);
            assert!(relay.allocations[0].is_none() && relay.clients.is_empty());
        }
    }
}
