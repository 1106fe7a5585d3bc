//! What the fuzz target of clients by DTLS does with its bytes: let clients shake hands, lose what they send, come back and
//! leave, let an attacker send what it has heard or made up in anybody's name, and time pass. Shared by the fuzz target and by
//! `crates/relay/tests`, which replays the corpus and plays inputs of its own.
//!
//! Each record is four bytes: what is done, by which client, and how; made up datagrams take what follows.

#[path = "../../crates/relay/tests/support/client.rs"]
mod client;
#[path = "../../crates/relay/tests/support/sealed.rs"]
mod sealed;
#[path = "../../crates/relay/tests/support/world.rs"]
mod world;

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use client::{Client, channel_data, to_peer};
use relay::limits::LimitSettings;
use sealed::{Control, LISTENER, Sealed, with_dtls};
use wire::{Path, Rate};
use world::World;

/// Records of one input that are looked at.
const RECORDS_MAX: usize = 100;

/// Datagrams that the attacker remembers: all that clients and the relay have sent lately.
const HEARD_MAX: usize = 64;

/// Clients: one that stays and must not be harmed, and two that come and go.
const CLIENTS: usize = 3;

/// Associations that there may be: one more than there are clients.
const ASSOCIATIONS_MAX: usize = CLIENTS + 1;

/// Datagrams of one handshake that the relay takes.
const HANDSHAKE_DATAGRAMS_MAX: usize = 32;

const NUMBER: u16 = 0x4000;
const STEPS_MS: [u64; 8] = [1, 600, 1_100, 4_000, 5_000, 9_900, 31_000, 61_000];

/// The key of a user.
fn key(user: &str) -> Vec<u8> {
    relay::auth::UserKeys::new(user, "millrace", world::PASSWORD).md5.expect("it has one").to_vec()
}

struct Play {
    world: World,
    control: Control,
    clients: Vec<Sealed>,
    /// Nobody has ever heard a cookie here.
    stranger: Path,
    heard: VecDeque<Vec<u8>>,
    /// The address of the client that stays.
    relayed: Option<SocketAddr>,
    payloads: u32,
    /// Those that were sealed and did not come to the peer.
    under_way: HashSet<Vec<u8>>,
}

pub fn relay_dtls(data: &[u8]) {
    let mut play = Play::new();
    let mut rest = data;
    for _ in 0..RECORDS_MAX {
        let Some((&[what, who, how, more], after)) = rest.split_first_chunk() else { break };
        rest = after;
        let own = usize::from(who) % CLIENTS;
        match what % 16 {
            0 => play.begin(own, how),
            1 => play.bring(own, how),
            2 => play.work(),
            3 => drop(play.hear(own)),
            4 | 5 => play.connect(own),
            6 => play.allocate(own),
            7 | 8 => play.send(own, how),
            9 => play.pass(Duration::from_millis(STEPS_MS[usize::from(how) % STEPS_MS.len()])),
            10 => play.close(own),
            11 => {
                let datagram = play.changed(how, more, who >> 4);
                play.attack(who, &[&datagram]);
            }
            12 => {
                let (one, other) = (play.remembered(how), play.remembered(more));
                match who & 0x80 {
                    0 => play.attack(who, &[&[one, other].concat()]),
                    _ => play.attack(who, &[&one, &other[..other.len().min(one.len())]]),
                }
            }
            13 => play.attack(who, &[&play.remembered(how)]),
            _ => {
                let (bytes, after) = rest.split_at(rest.len().min(usize::from(how)));
                rest = after;
                match what % 16 {
                    14 => play.attack(who, &[bytes]),
                    _ => play.attack(who, &[&record(more, bytes)]),
                }
            }
        }
        play.check();
    }
    play.finish();
}

/// A record that looks like one, of some type, epoch and number.
fn record(more: u8, body: &[u8]) -> Vec<u8> {
    let header = [20 + (more & 3), 0xfe, 0xfd, 0, more >> 2 & 3, 0, 0, 0, 0, 0, more >> 4, 0, body.len() as u8];
    [&header, body].concat()
}

fn peer() -> SocketAddr {
    ([198, 51, 100, 1], 5_000).into()
}

impl Play {
    fn new() -> Self {
        let often = Rate { burst: 10_000, interval: Duration::from_micros(1) };
        let world = with_dtls(|settings| {
            (settings.connections_max, settings.associations_max) = (0, ASSOCIATIONS_MAX);
            settings.auth.nonce_age_max = Duration::from_secs(10_000_000);
            settings.limits = LimitSettings {
                source: often,
                total: often,
                cookies: often,
                source_handshakes: often,
                handshakes: often,
            };
        });
        let clients = (1..=CLIENTS as u16).map(|port| Sealed::new(&world, port)).collect();
        let mut stranger = Client::new(99).path;
        stranger.link = wire::LinkId::datagrams(LISTENER);
        let (heard, under_way) = (VecDeque::new(), HashSet::new());
        let mut play =
            Play { world, control: Control::new(), clients, stranger, heard, relayed: None, payloads: 0, under_way };
        play.connect(0);
        play.allocate(0);
        play
    }

    /// What a client has to say next, which the attacker hears.
    fn said(&mut self, who: usize) -> Vec<Vec<u8>> {
        let said = std::mem::take(&mut self.clients[who].sends);
        said.iter().for_each(|datagram| self.remember(datagram));
        said
    }

    fn remember(&mut self, datagram: &[u8]) {
        self.heard.push_back(datagram.to_vec());
        if self.heard.len() > HEARD_MAX {
            self.heard.pop_front();
        }
    }

    fn remembered(&self, which: u8) -> Vec<u8> {
        // The last first.
        self.heard.iter().rev().cycle().nth(usize::from(which)).cloned().unwrap_or_default()
    }

    /// Something that was heard, cut off or with another byte, early in it more often than late.
    fn changed(&self, which: u8, at: u8, how: u8) -> Vec<u8> {
        let mut datagram = self.remembered(which % 8);
        let at = usize::from(at) % datagram.len().max(1);
        match (how & 7, datagram.get_mut(at)) {
            (0, _) => datagram.truncate(at),
            (1, _) => datagram.extend_from_within(at..),
            (how, Some(byte)) => {
                *byte = [*byte ^ 1, *byte ^ 0x80, 0, 0xff, byte.wrapping_add(1), 20][usize::from(how) - 2]
            }
            _ => {}
        }
        datagram
    }

    /// A client that comes and goes knows nothing any more.
    fn begin(&mut self, who: usize, how: u8) {
        if !Play::is_witness(who) {
            let port = self.clients[who].client.path.remote.port();
            self.clients[who] = Sealed::new(&self.world, port);
            if how & 1 == 1 {
                // Its first datagram is lost.
                self.said(who);
            }
        }
    }

    /// What a client has to say comes to the relay, but for what is lost.
    fn bring(&mut self, who: usize, lost: u8) {
        let path = self.clients[who].client.path;
        for (index, datagram) in self.said(who).iter().enumerate() {
            if Play::is_witness(who) || lost >> (index & 7) & 1 == 0 {
                self.world.receive(LISTENER, path, &[datagram]);
            }
        }
        self.told();
    }

    fn work(&mut self) {
        self.control.work(&mut self.world);
        self.world.events.clear();
        self.told();
    }

    /// The attacker hears what the relay says, too.
    fn told(&mut self) {
        let paths: Vec<Path> = self.clients.iter().map(|it| it.client.path).collect();
        let said = self.world.sent.iter().filter(|sent| paths.contains(&sent.path));
        let said: Vec<Vec<u8>> = said.flat_map(|sent| sent.datagrams.iter().cloned()).collect();
        said.iter().rev().take(2).for_each(|datagram| self.remember(datagram));
    }

    /// What came for a client; it says nothing to what makes no sense. One that is connected listens to nothing without keys.
    fn hear(&mut self, who: usize) -> Vec<Vec<u8>> {
        let client = &mut self.clients[who];
        for datagram in client.client.take(&mut self.world) {
            if !client.is_connected || datagram[4] == 1 {
                client.has_ended |= client.hear_one(&datagram).is_err();
            }
        }
        client.heard()
    }

    /// Shakes hands, which may have been spoilt.
    fn connect(&mut self, who: usize) {
        for _ in 0..6 {
            if self.clients[who].is_connected {
                return;
            }
            self.bring(who, 0);
            self.work();
            self.hear(who);
        }
        assert!(!Play::is_witness(who) || self.clients[who].is_connected, "nobody was in its way");
    }

    /// Whether it is the one that stays.
    fn is_witness(who: usize) -> bool {
        who == 0
    }

    fn allocate(&mut self, who: usize) {
        if Play::is_witness(who) {
            self.hear(0);
            let client = &mut self.clients[0];
            match self.relayed {
                Some(_) => assert_eq!(client.refresh(&mut self.world, 600), 0),
                None => self.relayed = Some(client.allocate(&mut self.world)),
            }
            assert_eq!(client.bind(&mut self.world, NUMBER, peer()), 0);
        } else if self.clients[who].is_connected && !self.clients[who].has_ended {
            let id = self.clients[who].client.transaction();
            let request = self.clients[who].client.sealed(relay::message::Method::Allocate, id, |writer| {
                writer.number(relay::message::attribute::REQUESTED_TRANSPORT, 17 << 24);
            });
            let records = self.clients[who].seal(&[&request]);
            self.clients[who].sends.extend(records);
            self.bring(who, 0);
            self.hear(who);
        }
    }

    /// A client that is connected sends to the peer.
    fn send(&mut self, who: usize, how: u8) {
        if !self.clients[who].is_connected || self.clients[who].has_ended {
            return;
        }
        self.payloads += 1;
        let data = [&self.payloads.to_be_bytes()[..], &vec![how; usize::from(how)]].concat();
        let records = self.clients[who].seal(&[&channel_data(NUMBER, &data)]);
        self.clients[who].sends.extend(records);
        self.under_way.insert(data.clone());
        self.bring(who, 0);
        let reached = self.at_peer();
        if Play::is_witness(who) {
            assert_eq!(reached, [&data[..]], "it is not harmed");
            let relayed = self.relayed.expect("it has one");
            self.world.receive_from_peer(relayed, peer(), &[&data]);
            assert_eq!(self.hear(who), [channel_data(NUMBER, &data)]);
        }
    }

    /// What has come to the peer: each once, and as it was sent.
    fn at_peer(&mut self) -> Vec<Vec<u8>> {
        let came = to_peer(&mut self.world, peer());
        for data in &came {
            assert!(self.under_way.remove(data), "{data:?} was never sent, or was there before");
        }
        came
    }

    fn pass(&mut self, time: Duration) {
        self.world.advance(time);
        self.control.wait(&mut self.world);
        self.work();
        for client in &mut self.clients[1..] {
            client.wait(self.world.now);
        }
        self.allocate(0);
    }

    fn close(&mut self, who: usize) {
        if !Play::is_witness(who) && self.clients[who].is_connected {
            self.clients[who].dtls.close().ok();
            self.clients[who].has_ended = true;
            self.clients[who].wait(self.world.now);
            self.bring(who, 0);
        }
    }

    /// An attacker sends in somebody's name: of a client, or of one who is nobody.
    fn attack(&mut self, who: u8, datagrams: &[&[u8]]) {
        let datagrams: Vec<&[u8]> = datagrams.iter().copied().filter(|datagram| !datagram.is_empty()).collect();
        let who = usize::from(who & 0xf) % (CLIENTS + 1);
        let path = self.clients.get(who).map_or(self.stranger, |client| client.client.path);
        let begun = self.world.relay.counters().dtls_handshakes_begun;
        self.world.receive(LISTENER, path, &datagrams);
        self.at_peer();
        if path != self.stranger {
            return;
        }
        let answers = self.world.sent.extract_if(.., |sent| sent.path == path);
        let answers: Vec<Vec<u8>> = answers.flat_map(|sent| sent.datagrams).collect();
        assert!(answers.len() <= datagrams.len());
        let lens = [&datagrams.concat(), &answers.concat()].map(|all| all.len());
        assert!(lens[1] < lens[0] || lens[1] == 0, "{lens:?}");
        assert_eq!(self.world.relay.counters().dtls_handshakes_begun, begun, "no cookie came here");
    }

    /// What holds after each step.
    fn check(&mut self) {
        let to_nobody = self.world.sent.iter().find(|sent| sent.path == self.stranger);
        assert_eq!(to_nobody, None, "it has asked for nothing");
        assert!(self.at_peer().is_empty(), "what is for the peer leaves at once");
        assert!(
            self.world.events.len() <= (CLIENTS + 1) * (HANDSHAKE_DATAGRAMS_MAX + 8),
            "{}",
            self.world.events.len()
        );
        self.work();
        let counters = self.world.relay.counters();
        assert!(counters.dtls_associations <= ASSOCIATIONS_MAX as u64);
        assert!(counters.dtls_handshakes <= CLIENTS as u64);
        assert_eq!(self.control.count() as u64, counters.dtls_handshakes, "each side knows of the same");
    }

    /// Who comes now is let in as ever, who was there is unharmed, and when all have gone nothing is left.
    fn finish(mut self) {
        self.send(0, 100);
        let mut newcomer = Sealed::connected(&mut self.world, &mut self.control, 50);
        newcomer.allocate(&mut self.world);
        self.world.advance(Duration::from_secs(800));
        self.control.work(&mut self.world);
        let counters = self.world.relay.counters();
        let left = (counters.dtls_associations, counters.dtls_handshakes, counters.allocations.total());
        assert_eq!((left, self.world.sockets.len(), self.control.count()), ((0, 0, 0), 0, 0));
    }
}
