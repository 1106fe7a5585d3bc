//! The relay beside another TURN server, `turn-server-proto`: the same requests go to both, in any order and with time between
//! them. Both answer alike and let the same data pass, but for what `Difference` lists.

mod requests;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use relay::answer::{Seal, Writer};
use relay::auth::UserKeys;
use relay::channel::CHANNEL_LIFETIME;
use relay::limits::LimitSettings;
use relay::message::{Class, HEADER_LEN, Message, Method, attribute};
use strum::{EnumIter, IntoEnumIterator as _};
use turn_server_proto::api::{TurnServerApi, TurnServerPollRet};
use turn_server_proto::server::TurnServer;
use turn_server_proto::stun::agent::Transmit;
use turn_server_proto::types::{AddressFamily, Instant as TheirInstant, TransportType};
use wire::{Random, Rate};

use crate::client::{Answer, Client, address, channel_data, indication};
use crate::world::{PASSWORD, RELAY, SERVER, World};

/// Plays, and what is done in each. A millisecond passes with each step, so that nothing runs out in the very moment in which it
/// is looked at: theirs is good for that moment still, ours is not.
const SEEDS: u64 = 120;
const STEPS: u32 = 400;

const USERS: [&str; 3] = ["ann", "ann", "bob"];
const NUMBERS: [u16; 5] = [0x4000, 0x4001, 0x7fff, 0x3fff, 0x8000];
const PEERS: [&str; 4] = ["198.51.100.1:5000", "198.51.100.1:5001", "198.51.100.2:5000", "[2001:db8::9]:5000"];
const LIFETIMES: [u32; 5] = [0, 1, 600, 1_000, 100_000];
const SECONDS: [u64; 6] = [1, 29, 150, 299, 301, 601];
/// Attributes that nobody knows: one that has to be understood, one that has not.
const UNKNOWN: [u16; 2] = [0x7f00, 0xff00];

/// What the two do differently: the section that decides, what it says, and what theirs does instead, or where we do not follow it
/// to the letter, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumIter)]
enum Difference {
    /// RFC 8656 §7.2, RFC 8489 §6.3.1: a request that comes again is answered as before. Theirs says 437.
    Again,
    /// Who proves nothing is told so only by an answer to a whole Allocate: other answers would be for whom a forger names (our own
    /// rule; RFC 8656 §21.1.1 speaks of such). Theirs says 401 to everything.
    Silence,
    /// RFC 8489 §14: unknown is what nobody has defined. Theirs does not know attributes that other requests have.
    UnexpectedAttribute,
    /// RFC 8489 §14: of an attribute that is there twice the first counts. With theirs it is the last.
    Twice,
    /// Where several things are wrong no section says which is told. RFC 8489 §6.3.1 looks for unknown attributes first, as we do.
    Order,
    /// RFC 8656 §5: 441 is for requests other than Allocate. Theirs says it to these as well.
    OthersAllocate,
    /// RFC 8656 §7.2, step 6: 440 to a family that is not there. Theirs says 400 to Allocate, and Refresh is granted.
    UnknownFamily,
    /// RFC 8656 §7.2, step 5: a token that is not good is answered by 508. Theirs does not look at it.
    Token,
    /// RFC 8656 §7.2: who asks for a pair of ports is told of the second by a token. Theirs keeps none.
    Pair,
    /// RFC 8656 §7.2, step 7: EVEN-PORT without the bit that asks for a pair goes together with another family. Theirs says 400.
    EvenAndAdditional,
    /// RFC 8656 §12.2: a number that stands for another peer is answered by 400. Theirs binds it twice.
    NumberTaken,
    /// RFC 8656 §10.2: all peers of a request are permitted or none. Theirs permits those before the one that it refuses.
    PartOfPeers,
    /// RFC 8656 §5 has a time for each of two relayed addresses; ours is one, of both. So who refreshes one keeps the other, too.
    OneTime,
    /// RFC 8656 §9 and §12: permissions last 300 s, channels 600. A channel of ours lets its own peer pass for as long as it is
    /// bound, as coturn's, since aioice refreshes channels and nothing else.
    ChannelPermits,
}

impl Difference {
    /// Whether that is what has happened to a request.
    fn explains(self, request: &Request, was_dual: bool, ours: &Outcome, theirs: &Outcome) -> bool {
        let codes = (ours.code(), theirs.code());
        let is = |method| request.method == method;
        match self {
            Difference::Again => request.is_again && is(Method::Allocate) && codes == (Some(0), Some(437)),
            Difference::Silence => request.proof == Proof::NoIntegrity && codes == (None, Some(401)),
            Difference::UnexpectedAttribute => theirs.unknown().iter().any(|kind| *kind != UNKNOWN[0]),
            Difference::Twice => request.has_twice(),
            Difference::Order => matches!(codes, (Some(420), Some(437 | 441 | 400)) | (Some(400), Some(443))),
            Difference::OthersAllocate => is(Method::Allocate) && codes == (Some(437), Some(441)),
            Difference::UnknownFamily => matches!(codes, (Some(440), Some(0 | 400))),
            Difference::Token => request.has(attribute::RESERVATION_TOKEN) && codes == (Some(508), Some(0)),
            Difference::Pair => {
                let without_token =
                    ours.meaning().into_iter().filter(|(kind, _)| *kind != attribute::RESERVATION_TOKEN);
                codes == (Some(0), Some(0)) && without_token.collect::<BTreeSet<_>>() == theirs.meaning()
            }
            Difference::EvenAndAdditional => {
                let has_both = request.has(attribute::EVEN_PORT) && request.has(attribute::ADDITIONAL_ADDRESS_FAMILY);
                has_both && codes == (Some(0), Some(400))
            }
            Difference::NumberTaken => is(Method::ChannelBind) && codes == (Some(400), Some(0)),
            // These are answered alike.
            Difference::PartOfPeers => is(Method::CreatePermission) && codes == (Some(443), Some(443)),
            Difference::OneTime => {
                let is_one = request.has(attribute::REQUESTED_ADDRESS_FAMILY);
                was_dual && is(Method::Refresh) && is_one && codes == (Some(0), Some(0))
            }
            // Of data.
            Difference::ChannelPermits => false,
        }
    }

    /// Whether they may know different things from then on.
    fn parts_ways(self) -> bool {
        use Difference::{Again, Order, OthersAllocate, Pair, Silence};
        !matches!(self, Again | Order | OthersAllocate | Pair | Silence)
    }

    /// The same, although they answer alike.
    fn is_hidden(self) -> bool {
        matches!(self, Difference::PartOfPeers | Difference::OneTime)
    }
}

/// What a request is proved with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    Right,
    /// Another's, who is known.
    Other,
    WrongPassword,
    Nobody,
    OldNonce,
    NoIntegrity,
    Lacks(u16),
}

#[derive(Clone, Debug)]
enum Value {
    Bytes(Vec<u8>),
    Peer(SocketAddr),
}

#[derive(Clone, Debug)]
struct Request {
    method: Method,
    id: [u8; 12],
    attributes: Vec<(u16, Value)>,
    /// What stands behind its proof, and so is nobody's word.
    behind: Option<(u16, Vec<u8>)>,
    has_fingerprint: bool,
    proof: Proof,
    user: &'static str,
    is_again: bool,
}

impl Request {
    fn has(&self, kind: u16) -> bool {
        self.attributes.iter().any(|(other, _)| *other == kind)
    }

    /// Whether an attribute is there twice that means one thing.
    fn has_twice(&self) -> bool {
        let kinds =
            || self.attributes.iter().map(|(kind, _)| kind).filter(|kind| **kind != attribute::XOR_PEER_ADDRESS);
        kinds().count() > kinds().collect::<BTreeSet<_>>().len()
    }

    fn bytes(&self, nonce: &[u8]) -> Vec<u8> {
        let mut buf = [0; 1_500];
        let mut writer = Writer::new(&mut buf, Class::Request, self.method, self.id);
        for (kind, value) in &self.attributes {
            match value {
                Value::Bytes(bytes) => writer.attribute(*kind, bytes),
                Value::Peer(peer) => writer.xor_address(*kind, *peer),
            };
        }
        if self.proof != Proof::NoIntegrity && !nonce.is_empty() {
            let (user, password) = match self.proof {
                Proof::Other => (if self.user == "eve" { "ann" } else { "eve" }, PASSWORD),
                Proof::WrongPassword => (self.user, "guessed"),
                Proof::Nobody => ("nobody", PASSWORD),
                _ => (self.user, PASSWORD),
            };
            let nonce = if self.proof == Proof::OldNonce { b"of another time" } else { nonce };
            let proofs: [(u16, &[u8]); 3] =
                [(attribute::USERNAME, user.as_bytes()), (attribute::REALM, b"millrace"), (attribute::NONCE, nonce)];
            for (kind, value) in proofs.into_iter().filter(|(kind, _)| self.proof != Proof::Lacks(*kind)) {
                writer.attribute(kind, value);
            }
            let keys = UserKeys::new(user, "millrace", password);
            writer.seal(&Seal::sha1(&keys.md5.expect("it has one")));
        }
        if let Some((kind, value)) = &self.behind {
            writer.attribute(*kind, value);
        }
        if self.has_fingerprint {
            writer.fingerprint();
        }
        let len = writer.finish().expect("there is room");
        buf[..len].to_vec()
    }
}

/// An answer, or silence.
#[derive(Clone, Debug)]
struct Outcome(Option<Answer>);

impl Outcome {
    fn of(bytes: Option<Vec<u8>>) -> Self {
        Outcome(bytes.map(|bytes| Answer::of(&bytes, Message::parse(&bytes).expect("an answer").class)))
    }

    /// 0 is success.
    fn code(&self) -> Option<u16> {
        self.0.as_ref().map(|answer| answer.code)
    }

    /// What is said not to be understood.
    fn unknown(&self) -> Vec<u16> {
        let value = self.0.as_ref().and_then(|answer| answer.value(attribute::UNKNOWN_ATTRIBUTES));
        value.unwrap_or_default().chunks_exact(2).map(|kind| u16::from_be_bytes([kind[0], kind[1]])).collect()
    }

    /// Attributes that mean something to a client; of some just that they are there.
    fn meaning(&self) -> BTreeSet<(u16, Vec<u8>)> {
        let Some(answer) = &self.0 else { return BTreeSet::new() };
        let is_challenge = [401, 438].contains(&answer.code);
        let attributes = answer.attributes.iter().filter_map(|(kind, value)| match *kind {
            attribute::LIFETIME
            | attribute::XOR_RELAYED_ADDRESS
            | attribute::XOR_MAPPED_ADDRESS
            | attribute::UNKNOWN_ATTRIBUTES
            | attribute::ADDRESS_ERROR_CODE => Some((*kind, value.clone())),
            attribute::REALM if is_challenge => Some((*kind, value.clone())),
            attribute::NONCE if is_challenge => Some((*kind, Vec::new())),
            attribute::MESSAGE_INTEGRITY if is_challenge => None,
            attribute::RESERVATION_TOKEN | attribute::MESSAGE_INTEGRITY => Some((*kind, Vec::new())),
            _ => None,
        });
        attributes.collect()
    }

    fn is_like(&self, other: &Self) -> bool {
        self.code() == other.code() && self.meaning() == other.meaning()
    }
}

/// What a client hears of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Channel(u16, Vec<u8>),
    Data(SocketAddr, Vec<u8>),
}

impl Heard {
    fn of(bytes: &[u8]) -> Self {
        let Ok(message) = Message::parse(bytes) else {
            let len = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
            return Heard::Channel(u16::from_be_bytes([bytes[0], bytes[1]]), bytes[4..4 + len].to_vec());
        };
        assert_eq!((message.class, message.method), (Class::Indication, Some(Method::Data)));
        let answer = Answer::of(bytes, message.class);
        let peer = answer.value(attribute::XOR_PEER_ADDRESS).expect("a peer");
        let data = answer.value(attribute::DATA).expect("data").to_vec();
        Heard::Data(address(peer, &bytes[4..HEADER_LEN]), data)
    }
}

/// One client, as each of the two sees it.
struct Party {
    client: Client,
    /// Theirs.
    nonce: Vec<u8>,
    last: Option<Request>,
    /// Where it was reached when it last began.
    relayed: Vec<SocketAddr>,
    /// To whom a channel was bound, and when.
    bound: Vec<(SocketAddr, Instant)>,
}

struct Play {
    seed: u64,
    step: u32,
    random: Random,
    world: World,
    theirs: TurnServer,
    start: Instant,
    parties: Vec<Party>,
    seen: BTreeSet<Difference>,
    /// Requests that both granted, and data that both let pass.
    granted: u32,
    passed: u32,
}

#[test]
fn it_answers_as_another_server_does() {
    let (mut seen, mut granted, mut passed) = (BTreeSet::new(), 0, 0);
    for seed in 0..SEEDS {
        let mut play = Play::new(seed);
        for step in 0..STEPS {
            play.step = step;
            play.act();
        }
        seen.extend(play.seen);
        (granted, passed) = (granted + play.granted, passed + play.passed);
    }
    let never: Vec<_> = Difference::iter().filter(|difference| !seen.contains(difference)).collect();
    assert!(never.is_empty(), "they agree on that by now: {never:?}");
    println!("{granted} requests were granted and {passed} datagrams passed, by both");
    assert!(granted > 1_000 && passed > 300, "{granted} {passed}");
}

impl Play {
    fn new(seed: u64) -> Self {
        let often = Rate { burst: 1_000_000, interval: Duration::from_nanos(1) };
        let world = World::new(|settings| {
            settings.limits = LimitSettings { source: often, total: often, ..Default::default() };
            settings.auth.nonce_age_max = Duration::from_secs(1_000_000);
            settings.allows_tcp = true;
        });
        let mut theirs = TurnServer::new(TransportType::Udp, SERVER.into(), "millrace".to_owned());
        theirs.set_nonce_expiry_duration(Duration::from_secs(1_000_000));
        for user in ["ann", "bob", "eve"] {
            theirs.add_user(user.to_owned(), PASSWORD.to_owned());
        }
        let party = |(user, port)| Party {
            client: Client::of(user, port),
            nonce: Vec::new(),
            last: None,
            relayed: Vec::new(),
            bound: Vec::new(),
        };
        let parties = USERS.into_iter().zip(1..).map(party).collect();
        let start = world.now;
        let random = Random::new(seed);
        let mut play =
            Play { seed, step: 0, random, world, theirs, start, parties, seen: BTreeSet::new(), granted: 0, passed: 0 };
        // Each knows its nonces: who has none is answered nothing by ours but to an Allocate.
        for who in 0..USERS.len() {
            let value = Value::Bytes(vec![17, 0, 0, 0]);
            let allocate = play.plain(who, Method::Allocate, (attribute::REQUESTED_TRANSPORT, value));
            play.ask(who, &allocate);
            play.end(who);
        }
        play
    }

    /// A request without anything odd.
    fn plain(&mut self, who: usize, method: Method, attribute: (u16, Value)) -> Request {
        Request {
            method,
            id: self.parties[who].client.transaction(),
            attributes: vec![attribute],
            behind: None,
            has_fingerprint: false,
            proof: Proof::Right,
            user: USERS[who],
            is_again: false,
        }
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len() as u64) as usize]
    }

    fn peer(&mut self) -> SocketAddr {
        self.pick(&PEERS).parse().expect("an address")
    }

    fn their_now(&self) -> TheirInstant {
        TheirInstant::from_nanos((self.world.now - self.start).as_nanos() as i64)
    }

    fn act(&mut self) {
        self.pass(Duration::from_millis(1));
        let who = self.random.below(USERS.len() as u64) as usize;
        match self.random.below(16) {
            0..=6 => {
                let request = self.request(who);
                self.ask(who, &request);
                self.parties[who].last = Some(request);
            }
            7 => {
                if let Some(last) = &self.parties[who].last {
                    let again = Request { is_again: true, ..last.clone() };
                    self.ask(who, &again);
                }
            }
            8..=9 => {
                let (peer, data) = (self.peer(), self.data());
                self.send(who, &indication(Method::Send, peer, &data));
            }
            10..=11 => {
                let (number, data) = (self.pick(&NUMBERS), self.data());
                self.send(who, &channel_data(number, &data));
            }
            12..=14 => self.hear(who),
            _ => {
                let seconds = self.pick(&SECONDS);
                self.pass(Duration::from_secs(seconds));
            }
        }
    }

    fn data(&mut self) -> Vec<u8> {
        let len = self.random.below(20) as usize;
        vec![self.step as u8; len]
    }

    fn pass(&mut self, time: Duration) {
        self.world.advance(time);
        self.settle(&[]);
        assert!(self.world.sent.is_empty(), "{:?}", self.world.sent);
    }

    /// Opens sockets for them, at these addresses; what they send then.
    fn settle(&mut self, relayed: &[SocketAddr]) -> Vec<Transmit<Vec<u8>>> {
        let now = self.their_now();
        loop {
            match self.theirs.poll(now) {
                TurnServerPollRet::AllocateSocket {
                    transport,
                    listen_addr,
                    client_addr,
                    allocation_transport,
                    family,
                } => {
                    let is_v4 = family == AddressFamily::IPV4;
                    let other: IpAddr = if is_v4 { RELAY.into() } else { "2001:db8::2".parse().expect("an address") };
                    let own = relayed.iter().copied().find(|addr| addr.is_ipv4() == is_v4);
                    let addr = own.unwrap_or(SocketAddr::new(other, 40_000));
                    let (from, to) = (listen_addr, client_addr);
                    self.theirs.allocated_socket(transport, from, to, allocation_transport, family, Ok(addr), now);
                }
                TurnServerPollRet::WaitUntil(_) => break,
                _ => {}
            }
        }
        std::iter::from_fn(|| self.theirs.poll_transmit(now)).collect()
    }

    fn receive(&mut self, from: SocketAddr, to: SocketAddr, data: &[u8]) -> Option<Transmit<Vec<u8>>> {
        let now = self.their_now();
        self.theirs
            .recv(Transmit::new(data.to_vec(), TransportType::Udp, from, to), now)
            .map(|transmit| transmit.build())
    }

    /// Asks both, each once more if it wants another nonce. Where they differ, and that is known, the client begins anew.
    fn ask(&mut self, who: usize, request: &Request) {
        let was_dual = self.parties[who].relayed.len() == 2;
        let ours = self.ask_ours(who, request);
        if ours.code() == Some(0) {
            self.note(who, request, &ours);
        }
        let theirs = self.ask_theirs(who, request);
        let is_like = ours.is_like(&theirs);
        let explains =
            |known: &Difference| known.is_hidden() == is_like && known.explains(request, was_dual, &ours, &theirs);
        let known = Difference::iter().find(explains);
        self.granted += u32::from(is_like && ours.code() == Some(0));
        assert!(
            is_like || known.is_some(),
            "seed {}, step {}: {request:?}\nours: {ours:?}\ntheirs: {theirs:?}",
            self.seed,
            self.step
        );
        if let Some(known) = known {
            self.seen.insert(known);
            if known.parts_ways() {
                self.end(who);
            }
        }
    }

    /// What a client knows that was granted something.
    fn note(&mut self, who: usize, request: &Request, answer: &Outcome) {
        let now = self.world.now;
        let party = &mut self.parties[who];
        match request.method {
            Method::Allocate => {
                let answer = answer.0.as_ref().expect("success");
                party.relayed = answer.addresses(attribute::XOR_RELAYED_ADDRESS);
            }
            Method::ChannelBind => {
                let peers = request.attributes.iter().filter_map(|(_, value)| match value {
                    Value::Peer(peer) => Some((*peer, now)),
                    Value::Bytes(_) => None,
                });
                party.bound.extend(peers);
            }
            _ => {}
        }
    }

    /// Whether ours may let a peer's data pass and theirs not.
    fn is_bound(&self, who: usize, peer: SocketAddr) -> bool {
        let is_fresh = |at: Instant| self.world.now - at < CHANNEL_LIFETIME;
        self.parties[who].bound.iter().any(|(bound, at)| *bound == peer && is_fresh(*at))
    }

    fn ask_ours(&mut self, who: usize, request: &Request) -> Outcome {
        for _ in 0..2 {
            let party = &mut self.parties[who];
            let bytes = request.bytes(&party.client.nonce);
            let mut answers = party.client.exchange(&mut self.world, &bytes);
            assert!(answers.len() <= 1, "{answers:?}");
            let outcome = Outcome::of(answers.pop());
            if !learns(request, &outcome, &mut party.client.nonce) {
                return outcome;
            }
        }
        panic!("it wants another nonce each time");
    }

    fn ask_theirs(&mut self, who: usize, request: &Request) -> Outcome {
        let (remote, relayed) = (self.parties[who].client.path.remote, self.parties[who].relayed.clone());
        for _ in 0..2 {
            let bytes = request.bytes(&self.parties[who].nonce);
            let mut answers: Vec<_> = self.receive(remote, SERVER.into(), &bytes).into_iter().collect();
            answers.extend(self.settle(&relayed));
            assert!(answers.len() <= 1, "{answers:?}");
            let outcome = Outcome::of(answers.pop().map(|answer| answer.data));
            if !learns(request, &outcome, &mut self.parties[who].nonce) {
                return outcome;
            }
        }
        panic!("they want another nonce each time");
    }

    /// Ends what a client has, with both, whoever made it.
    fn end(&mut self, who: usize) {
        let is_over = |outcome: &Outcome| matches!(outcome.code(), Some(0 | 437));
        for proof in [Proof::Right, Proof::Other] {
            let request = self.plain(who, Method::Refresh, (attribute::LIFETIME, Value::Bytes(vec![0; 4])));
            let request = Request { proof, ..request };
            let outcomes = [self.ask_ours(who, &request), self.ask_theirs(who, &request)];
            if outcomes.iter().all(is_over) {
                return;
            }
        }
        panic!("somebody else has it: seed {}, step {}", self.seed, self.step);
    }

    /// A client sends to a peer.
    fn send(&mut self, who: usize, bytes: &[u8]) {
        let client = self.parties[who].client.clone();
        self.world.receive(client.number, client.path, &[bytes]);
        let sent = std::mem::take(&mut self.world.sent);
        let mut ours = sent.into_iter().flat_map(|sent| {
            let from = self.world.sockets[&sent.path.link.slot()].2;
            sent.datagrams.into_iter().map(move |data| (from, sent.path.remote, data))
        });
        let ours = ours.next();
        let theirs = self.receive(client.path.remote, SERVER.into(), bytes).map(|sent| (sent.from, sent.to, sent.data));
        match (&ours, &theirs) {
            _ if ours == theirs => self.passed += u32::from(ours.is_some()),
            (Some((_, peer, _)), None) if self.is_bound(who, *peer) => {
                self.seen.insert(Difference::ChannelPermits);
            }
            _ => panic!("seed {}, step {}: ours {ours:?}, theirs {theirs:?}", self.seed, self.step),
        }
    }

    /// A peer sends to a client.
    fn hear(&mut self, who: usize) {
        let (peer, data) = (self.peer(), self.data());
        let Some(relayed) = self.parties[who].relayed.iter().copied().find(|addr| addr.is_ipv4() == peer.is_ipv4())
        else {
            return;
        };
        let ours = self.parties[who].client.hear(&mut self.world, relayed, peer, &data);
        let theirs = self.receive(peer, relayed, &data);
        let ours: Vec<_> = ours.iter().map(|bytes| Heard::of(bytes)).collect();
        let theirs: Vec<_> = theirs.iter().map(|sent| Heard::of(&sent.data)).collect();
        if ours != theirs && theirs.is_empty() && self.is_bound(who, peer) {
            self.seen.insert(Difference::ChannelPermits);
            return;
        }
        assert_eq!(ours, theirs, "seed {}, step {}", self.seed, self.step);
        self.passed += ours.len() as u32;
    }
}

/// Whether an answer told a nonce without which nothing can be proved.
fn learns(request: &Request, outcome: &Outcome, nonce: &mut Vec<u8>) -> bool {
    let Some(answer) = outcome.0.as_ref().filter(|answer| [401, 438].contains(&answer.code)) else { return false };
    let told = answer.value(attribute::NONCE).expect("it is told").to_vec();
    let was_first = nonce.is_empty();
    *nonce = told;
    request.proof != Proof::OldNonce && (answer.code == 438 || (was_first && request.proof != Proof::NoIntegrity))
}
