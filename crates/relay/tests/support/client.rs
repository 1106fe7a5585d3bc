//! A client that does what RFC 8656 asks of one, and looks at each answer.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::net::SocketAddr;

use aws_lc_rs::hmac;
use relay::answer::{Seal, Writer};
use relay::message::{Class, Family, HEADER_LEN, Message, Method, attribute};
use relay::spec::ClientTransport;
use wire::{LinkId, Path};

use super::world::World;

/// One five-tuple and who is at it.
#[derive(Clone, Debug)]
pub struct Client {
    pub number: u32,
    pub path: Path,
    pub user: String,
    pub key: Vec<u8>,
    pub realm: Vec<u8>,
    pub nonce: Vec<u8>,
    last_transaction: u32,
}

/// What an answer says.
#[derive(Clone, Debug)]
pub struct Answer {
    pub class: Class,
    pub code: u16,
    pub bytes: Vec<u8>,
    pub attributes: Vec<(u16, Vec<u8>)>,
}

impl Client {
    pub fn new(port: u16) -> Self {
        Client::of("ann", port)
    }

    pub fn of(user: &str, port: u16) -> Self {
        let remote = ([192, 0, 2, 200], port).into();
        Client {
            number: 0,
            path: Path { link: LinkId::datagrams(0), remote, local: None },
            user: user.to_owned(),
            key: super::key(user),
            realm: Vec::new(),
            nonce: Vec::new(),
            last_transaction: 0,
        }
    }

    /// One who connects.
    pub fn over(transport: ClientTransport, world: &mut World, port: u16) -> Self {
        let mut client = Client::new(port);
        (client.number, client.path) = world.connect(client.path.remote, transport).expect("it is taken over");
        client
    }

    /// The transaction of the next request.
    pub fn transaction(&mut self) -> [u8; 12] {
        self.last_transaction += 1;
        let mut id = [0; 12];
        id[..4].copy_from_slice(&self.last_transaction.to_be_bytes());
        id[4..6].copy_from_slice(&self.path.remote.port().to_be_bytes());
        id
    }

    /// A request that is proved, as far as realm and nonce are known.
    pub fn sealed(&self, method: Method, id: [u8; 12], write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut buf = [0; 1_500];
        let mut writer = Writer::new(&mut buf, Class::Request, method, id);
        write(&mut writer);
        if !self.nonce.is_empty() {
            writer.attribute(attribute::USERNAME, self.user.as_bytes());
            writer.attribute(attribute::REALM, &self.realm).attribute(attribute::NONCE, &self.nonce);
            writer.seal(&Seal::sha1(&self.key));
        }
        let len = writer.finish().expect("there is room");
        buf[..len].to_vec()
    }

    /// Sends one datagram; what comes back to this client.
    pub fn exchange(&self, world: &mut World, datagram: &[u8]) -> Vec<Vec<u8>> {
        world.receive(self.number, self.path, &[datagram]);
        self.take(world)
    }

    /// What was sent to this client and nobody has looked at.
    pub fn take(&self, world: &mut World) -> Vec<Vec<u8>> {
        let mine = world.sent.extract_if(.., |sent| sent.path == self.path);
        mine.flat_map(|sent| sent.datagrams).collect()
    }

    /// Asks for something, once more when it has still to be proved; the one answer.
    pub fn request(&mut self, world: &mut World, method: Method, write: impl Fn(&mut Writer<'_>)) -> Answer {
        for _ in 0..2 {
            let id = self.transaction();
            let request = self.sealed(method, id, &write);
            let answers = self.exchange(world, &request);
            assert_eq!(answers.len(), 1, "one answer to {method:?}");
            let answer = self.read(&answers[0], method, id);
            if ![401, 438].contains(&answer.code) {
                return answer;
            }
            self.realm = answer.value(attribute::REALM).expect("it is told").to_vec();
            self.nonce = answer.value(attribute::NONCE).expect("it is told").to_vec();
        }
        panic!("{method:?} of {} is not granted", self.user);
    }

    /// Reads an answer to a request. Those that are no challenge are sealed, and whole.
    pub fn read(&self, bytes: &[u8], method: Method, id: [u8; 12]) -> Answer {
        let message = Message::parse(bytes).expect("an answer");
        assert_eq!((message.method, message.transaction()), (Some(method), id));
        let answer = Answer::of(bytes, message.class);
        if ![400, 401, 438, 500].contains(&answer.code) {
            let integrity = message.integrity.expect("it is sealed");
            let mut covered = bytes[..integrity.at].to_vec();
            covered[2..4].copy_from_slice(&integrity.covered_length().to_be_bytes());
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.key);
            hmac::verify(&key, &covered, integrity.mac).expect("by the client's key");
        }
        answer
    }

    pub fn allocate(&mut self, world: &mut World) -> SocketAddr {
        self.allocate_with(world, |_| {}).relayed()
    }

    pub fn allocate_with(&mut self, world: &mut World, write: impl Fn(&mut Writer<'_>)) -> Answer {
        self.request(world, Method::Allocate, |writer| {
            writer.number(attribute::REQUESTED_TRANSPORT, 17 << 24);
            write(writer);
        })
    }

    pub fn refresh(&mut self, world: &mut World, seconds: u32) -> Answer {
        self.request(world, Method::Refresh, |writer| {
            writer.number(attribute::LIFETIME, seconds);
        })
    }

    pub fn permit(&mut self, world: &mut World, peers: &[SocketAddr]) -> u16 {
        let answer = self.request(world, Method::CreatePermission, |writer| {
            for peer in peers {
                writer.xor_address(attribute::XOR_PEER_ADDRESS, *peer);
            }
        });
        answer.code
    }

    pub fn bind(&mut self, world: &mut World, number: u16, peer: SocketAddr) -> u16 {
        let answer = self.request(world, Method::ChannelBind, |writer| {
            writer.number(attribute::CHANNEL_NUMBER, u32::from(number) << 16);
            writer.xor_address(attribute::XOR_PEER_ADDRESS, peer);
        });
        answer.code
    }

    /// Sends data by Send indications; what goes to the peer.
    pub fn send(&self, world: &mut World, peer: SocketAddr, data: &[u8]) -> Vec<Vec<u8>> {
        world.receive(self.number, self.path, &[&indication(Method::Send, peer, data)]);
        to_peer(world, peer)
    }

    /// Sends ChannelData; what goes to the peer.
    pub fn send_on(&self, world: &mut World, number: u16, data: &[u8], peer: SocketAddr) -> Vec<Vec<u8>> {
        world.receive(self.number, self.path, &[&channel_data(number, data)]);
        to_peer(world, peer)
    }

    /// What a peer sends to a relayed address, as the client hears it.
    pub fn hear(&self, world: &mut World, relayed: SocketAddr, peer: SocketAddr, data: &[u8]) -> Vec<Vec<u8>> {
        world.receive_from_peer(relayed, peer, &[data]);
        self.take(world)
    }
}

/// What was sent to a peer and nobody has looked at.
pub fn to_peer(world: &mut World, peer: SocketAddr) -> Vec<Vec<u8>> {
    let its = world.sent.extract_if(.., |sent| sent.path.remote == peer);
    its.flat_map(|sent| sent.datagrams).collect()
}

pub fn indication(method: Method, peer: SocketAddr, data: &[u8]) -> Vec<u8> {
    let mut buf = [0; 2_000];
    let mut writer = Writer::new(&mut buf, Class::Indication, method, [9; 12]);
    writer.xor_address(attribute::XOR_PEER_ADDRESS, peer).attribute(attribute::DATA, data);
    let len = writer.finish().expect("there is room");
    buf[..len].to_vec()
}

pub fn channel_data(number: u16, data: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat()
}

impl Answer {
    pub fn of(bytes: &[u8], class: Class) -> Self {
        let mut attributes = Vec::new();
        let mut rest = &bytes[HEADER_LEN..];
        while let Some((&[type_high, type_low, len_high, len_low], after)) = rest.split_first_chunk() {
            let len = usize::from(u16::from_be_bytes([len_high, len_low]));
            attributes.push((u16::from_be_bytes([type_high, type_low]), after[..len].to_vec()));
            rest = &after[len.next_multiple_of(4)..];
        }
        let mut answer = Answer { class, code: 0, bytes: bytes.to_vec(), attributes };
        let code = answer.value(attribute::ERROR_CODE).map(|value| u16::from(value[2]) * 100 + u16::from(value[3]));
        answer.code = code.unwrap_or_default();
        assert_eq!(answer.code != 0, class == Class::Error, "an error has a code");
        answer
    }

    pub fn value(&self, kind: u16) -> Option<&[u8]> {
        self.attributes.iter().find(|(other, _)| *other == kind).map(|(_, value)| &value[..])
    }

    pub fn number(&self, kind: u16) -> Option<u32> {
        Some(u32::from_be_bytes(self.value(kind)?.try_into().expect("four bytes")))
    }

    /// All addresses of a kind.
    pub fn addresses(&self, kind: u16) -> Vec<SocketAddr> {
        let values = self.attributes.iter().filter(|(other, _)| *other == kind);
        let transaction = &self.bytes[4..20];
        values.map(|(_, value)| address(value, transaction)).collect()
    }

    pub fn relayed(&self) -> SocketAddr {
        *self.addresses(attribute::XOR_RELAYED_ADDRESS).first().unwrap_or_else(|| panic!("{self:?}"))
    }
}

/// An address behind cookie and transaction.
pub fn address(value: &[u8], mask: &[u8]) -> SocketAddr {
    let port = u16::from_be_bytes([value[2] ^ mask[0], value[3] ^ mask[1]]);
    let ip: Vec<u8> = value[4..].iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
    match value[1] == Family::V4.number() {
        true => (<[u8; 4]>::try_from(&ip[..]).expect("four bytes"), port).into(),
        false => (<[u8; 16]>::try_from(&ip[..]).expect("sixteen bytes"), port).into(),
    }
}
