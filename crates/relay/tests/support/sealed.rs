//! A client by DTLS, with dimpl below it, and what control does for a relay: it shakes hands.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use dimpl::{Config, Dtls, Output};
use dtls::{Handshake, Identity, Progress};
use relay::answer::Writer;
use relay::message::{Method, attribute};
use relay::spec::{AssociationId, ClientTransport, Command, Event, HandshakeInput, HandshakeStep};

use super::client::{Answer, Client};
use super::world::World;

/// The listener for DTLS in `with_dtls`.
pub const LISTENER: u32 = 2;

/// A world with a listener for DTLS, on the port that is usual.
pub fn with_dtls(change: impl FnOnce(&mut relay::settings::Settings)) -> World {
    World::new(|settings| {
        let addr = ([192, 0, 2, 1], 5_349).into();
        settings.listeners.push(relay::settings::Listener { addr, transport: ClientTransport::Dtls });
        change(settings);
    })
}

/// Shakes hands as control does.
pub struct Control {
    identity: Identity,
    handshakes: BTreeMap<AssociationId, Handshake>,
    /// Blocks that the keys of those who come seal, where that is to be another number.
    pub key_blocks: Option<u64>,
}

impl Control {
    pub fn new() -> Self {
        Control { identity: Identity::made_up().expect("randomness"), handshakes: BTreeMap::new(), key_blocks: None }
    }

    /// How many handshakes go on.
    pub fn count(&self) -> usize {
        self.handshakes.len()
    }

    /// Does what the relay has asked for.
    pub fn work(&mut self, world: &mut World) {
        for event in std::mem::take(&mut world.events) {
            match event {
                Event::Handshake { association, input } => self.handle(world, association, input),
                other => world.events.push(other),
            }
        }
    }

    /// Lets handshakes see that time has passed.
    pub fn wait(&mut self, world: &mut World) {
        let all: Vec<_> = self.handshakes.keys().copied().collect();
        all.into_iter().for_each(|association| self.step(world, association, None));
    }

    fn handle(&mut self, world: &mut World, association: AssociationId, input: HandshakeInput) {
        let datagram = match input {
            HandshakeInput::Begin { numbers, hello } => {
                self.handshakes.insert(association, Handshake::new(&self.identity, world.now, numbers));
                hello
            }
            HandshakeInput::Datagram(datagram) => datagram,
            HandshakeInput::End => return drop(self.handshakes.remove(&association)),
        };
        self.step(world, association, Some(&datagram));
    }

    fn step(&mut self, world: &mut World, association: AssociationId, datagram: Option<&[u8]>) {
        let Some(handshake) = self.handshakes.get_mut(&association) else { return };
        let progress = handshake.handle(world.now, datagram);
        let mut tell = |step| world.command(Command::Handshake { association, step });
        match progress {
            Ok(Progress::Answers(datagrams)) => datagrams.into_iter().for_each(|it| tell(HandshakeStep::Send(it))),
            Ok(Progress::Done(mut established)) => {
                if let Some(blocks) = self.key_blocks {
                    established.records.use_up(blocks);
                }
                tell(HandshakeStep::Done(Box::new(established)));
                self.handshakes.remove(&association);
            }
            Err(error) => {
                assert!(!error.to_string().contains("panicked"), "{error}");
                tell(HandshakeStep::Failed);
                self.handshakes.remove(&association);
            }
        }
    }
}

/// One client.
pub struct Sealed {
    pub client: Client,
    pub dtls: Dtls,
    /// What it sends next.
    pub sends: Vec<Vec<u8>>,
    /// What records to it have carried.
    heard: Vec<Vec<u8>>,
    pub is_connected: bool,
    pub has_ended: bool,
}

impl Sealed {
    /// One who has said nothing yet.
    pub fn new(world: &World, port: u16) -> Self {
        let mut client = Client::new(port);
        client.number = LISTENER;
        client.path.link = wire::LinkId::datagrams(LISTENER);
        let certificate = dimpl::certificate::generate_self_signed_certificate().expect("randomness");
        let config = Config::builder().build().expect("a configuration");
        let mut dtls = Dtls::new_12(Arc::new(config), certificate, world.now);
        dtls.set_active(true);
        dtls.handle_timeout(world.now).expect("a client");
        let (sends, heard) = (Vec::new(), Vec::new());
        let mut sealed = Sealed { client, dtls, sends, heard, is_connected: false, has_ended: false };
        sealed.poll();
        sealed
    }

    /// One who has shaken hands.
    pub fn connected(world: &mut World, control: &mut Control, port: u16) -> Self {
        let mut sealed = Sealed::new(world, port);
        sealed.connect(world, control);
        sealed
    }

    /// Shakes hands, or goes on with it.
    pub fn connect(&mut self, world: &mut World, control: &mut Control) {
        for _ in 0..8 {
            self.flush(world);
            control.work(world);
            self.hear(world);
        }
        assert!(self.is_connected, "a handshake is shorter");
    }

    /// What it has to say comes to the relay.
    pub fn flush(&mut self, world: &mut World) {
        for datagram in std::mem::take(&mut self.sends) {
            world.receive(LISTENER, self.client.path, &[&datagram]);
        }
    }

    /// What the relay has sent comes to it; all messages that it has not looked at.
    pub fn hear(&mut self, world: &mut World) -> Vec<Vec<u8>> {
        for datagram in self.client.take(world) {
            self.hear_one(&datagram).expect("a client");
        }
        self.heard()
    }

    /// A datagram comes to it. It may be of anybody.
    ///
    /// # Errors
    /// When it makes nothing of it.
    pub fn hear_one(&mut self, datagram: &[u8]) -> Result<(), dimpl::Error> {
        self.dtls.handle_packet(datagram)?;
        self.poll();
        Ok(())
    }

    /// All messages that have come and that it has not looked at.
    pub fn heard(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.heard)
    }

    /// Time passes: it repeats what was not answered.
    pub fn wait(&mut self, now: std::time::Instant) {
        // It may have given up.
        self.dtls.handle_timeout(now).ok();
        self.poll();
    }

    fn poll(&mut self) {
        let mut buf = vec![0; 3_000];
        loop {
            match self.dtls.poll_output(&mut buf) {
                Output::Packet(packet) => self.sends.push(packet.to_vec()),
                Output::ApplicationData(data) => self.heard.push(data.to_vec()),
                Output::Connected => self.is_connected = true,
                Output::CloseNotify => self.has_ended = true,
                Output::Timeout(_) => return,
                _ => {}
            }
        }
    }

    /// Messages as records, a datagram each.
    pub fn seal(&mut self, messages: &[&[u8]]) -> Vec<Vec<u8>> {
        for message in messages {
            self.dtls.send_application_data(message).expect("connected");
            self.poll();
        }
        std::mem::take(&mut self.sends)
    }

    /// Says that this was all.
    pub fn close(&mut self, world: &mut World) {
        self.sends = self.end();
        self.flush(world);
    }

    /// A record that says so.
    pub fn end(&mut self) -> Vec<Vec<u8>> {
        self.dtls.close().expect("connected");
        self.poll();
        std::mem::take(&mut self.sends)
    }

    /// Sends messages that come in one run; what comes back.
    pub fn exchange(&mut self, world: &mut World, messages: &[&[u8]]) -> Vec<Vec<u8>> {
        let records = self.seal(messages);
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        world.receive(LISTENER, self.client.path, &records);
        self.hear(world)
    }

    /// Asks for something, once more when it has still to be proved; the one answer.
    pub fn request(&mut self, world: &mut World, method: Method, write: impl Fn(&mut Writer<'_>)) -> Answer {
        for _ in 0..2 {
            let id = self.client.transaction();
            let request = self.client.sealed(method, id, &write);
            let answers = self.exchange(world, &[&request]);
            assert_eq!(answers.len(), 1, "one answer to {method:?}");
            let answer = self.client.read(&answers[0], method, id);
            if ![401, 438].contains(&answer.code) {
                return answer;
            }
            self.client.realm = answer.value(attribute::REALM).expect("it is told").to_vec();
            self.client.nonce = answer.value(attribute::NONCE).expect("it is told").to_vec();
        }
        panic!("{method:?} is not granted");
    }

    pub fn allocate(&mut self, world: &mut World) -> SocketAddr {
        let answer = self.request(world, Method::Allocate, |writer| {
            writer.number(attribute::REQUESTED_TRANSPORT, 17 << 24);
        });
        answer.relayed()
    }

    pub fn permit(&mut self, world: &mut World, peer: SocketAddr) -> u16 {
        let answer = self.request(world, Method::CreatePermission, |writer| {
            writer.xor_address(attribute::XOR_PEER_ADDRESS, peer);
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

    pub fn refresh(&mut self, world: &mut World, seconds: u32) -> u16 {
        let answer = self.request(world, Method::Refresh, |writer| {
            writer.number(attribute::LIFETIME, seconds);
        });
        answer.code
    }
}
