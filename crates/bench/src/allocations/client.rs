//! Clients of the relay as a benchmark has them: what each asks, and whether it was granted.
//!
//! All are at one IP address, so one nonce is good for all of them (`relay::auth`); many users share them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use relay::answer::{Seal, Writer};
use relay::auth::{Credentials, UserKeys};
use relay::ledger::{Ledger, LedgerSettings};
use relay::limits::LimitSettings;
use relay::message::{Class, Message, Method, attribute};
use relay::rules::{Lists, Own, Rules};
use relay::settings::{Listener, RelayAddress, Settings};
use relay::spec::ClientTransport;
use wire::Rate;

const REALM: &str = "millrace";
const PASSWORD: &str = "secret";

const USER_COUNT: usize = 1_000;

/// Who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    /// Many, who share all allocations evenly.
    Many,
    /// One has them all.
    One,
}

/// The channel of each client.
const CHANNEL: u16 = 0x4000;

/// UDP, as REQUESTED-TRANSPORT has it (RFC 8656 §18.7).
const UDP: u32 = 17 << 24;

/// What a client asks, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An allocation for as long as there may be one of those that ask for nothing else.
    Allocate,
    Bind(SocketAddr),
    Refresh,
}

/// The names and keys of all, and the nonce.
pub(super) struct Clients {
    users: Vec<(String, Seal)>,
    nonce: Vec<u8>,
}

/// What relays of a benchmark have in common: everybody may do what he asks for.
pub(super) fn settings(now: Instant, listen: SocketAddr, relayed: RelayAddress) -> Settings {
    let users = (0..USER_COUNT).map(|user| {
        let name = name_of(user);
        let keys = UserKeys::new(&name, REALM, PASSWORD);
        (name.into(), keys)
    });
    let rate = Rate { burst: 1 << 30, interval: Duration::from_nanos(1) };
    let peers = ["127.0.0.0/8", "192.0.2.0/24"].map(|all| all.parse().expect("a prefix"));
    let lists = Lists { allow: peers.into(), deny: Vec::new() };
    let mut settings = Settings::new([7; 32], (now, Duration::from_secs(1_700_000_000)));
    settings.auth.credentials = Arc::new(Credentials::new(REALM, users, []));
    settings.listeners = vec![Listener { addr: listen, transport: ClientTransport::Udp }];
    settings.relays = vec![relayed];
    settings.ports = 1_024..=65_535;
    settings.allocations_max = 1 << 16;
    settings.limits = LimitSettings { source: rate, total: rate, ..Default::default() };
    settings.ports_of_all = settings.ports.clone();
    settings.rules = Arc::new(Rules::new(&lists, &Own::default()));
    settings.ledger = Arc::new(Ledger::new(now, LedgerSettings::default()));
    settings
}

fn name_of(user: usize) -> String {
    format!("user{user}")
}

impl Clients {
    pub(super) fn new(users: Users) -> Self {
        let count = if users == Users::One { 1 } else { USER_COUNT };
        let user = |user| {
            let name = name_of(user);
            let keys = UserKeys::new(&name, REALM, PASSWORD);
            let seal = Seal::sha1(&keys.md5.expect("it is made of the password"));
            (name, seal)
        };
        Clients { users: (0..count).map(user).collect(), nonce: Vec::new() }
    }

    /// The request by which the nonce is asked for.
    pub(super) fn first(&self) -> Vec<u8> {
        write(Method::Allocate, 0, |writer| {
            writer.number(attribute::REQUESTED_TRANSPORT, UDP);
        })
    }

    /// Takes the nonce from what came back.
    pub(super) fn take_nonce(&mut self, answer: &[u8]) -> Result<()> {
        let message = Message::parse(answer).ok().context("no message")?;
        self.nonce = message.nonce.context("it has no nonce")?.to_vec();
        Ok(())
    }

    /// What a client asks in a step.
    pub(super) fn request(&self, client: usize, step: Step) -> Vec<u8> {
        let (name, seal) = &self.users[client % self.users.len()];
        let method = match step {
            Step::Allocate => Method::Allocate,
            Step::Bind(_) => Method::ChannelBind,
            Step::Refresh => Method::Refresh,
        };
        write(method, client, |writer| {
            match step {
                Step::Allocate => {
                    writer.number(attribute::REQUESTED_TRANSPORT, UDP);
                }
                Step::Bind(peer) => {
                    writer.number(attribute::CHANNEL_NUMBER, u32::from(CHANNEL) << 16);
                    writer.xor_address(attribute::XOR_PEER_ADDRESS, peer);
                }
                Step::Refresh => {}
            }
            writer.attribute(attribute::USERNAME, name.as_bytes());
            writer.attribute(attribute::REALM, REALM.as_bytes()).attribute(attribute::NONCE, &self.nonce);
            writer.seal(seal);
        })
    }

    /// Whether that was granted.
    pub(super) fn check(step: Step, answer: &[u8]) -> Result<()> {
        let message = Message::parse(answer).ok().context("no message")?;
        ensure!(message.class == Class::Success, "{step:?} is refused: {answer:02x?}");
        Ok(())
    }
}

fn write(method: Method, client: usize, content: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let (mut buf, mut transaction) = ([0; 500], [0; 12]);
    transaction[..8].copy_from_slice(&(client as u64).to_be_bytes());
    let mut writer = Writer::new(&mut buf, Class::Request, method, transaction);
    content(&mut writer);
    let len = writer.finish().expect("there is room");
    buf[..len].to_vec()
}

/// A datagram of the channel.
pub(super) fn channel_data(payload: &[u8]) -> Vec<u8> {
    [&CHANNEL.to_be_bytes()[..], &(payload.len() as u16).to_be_bytes(), payload].concat()
}

/// What the system says of memory, in bytes: what this process has of it, and what the kernel's objects take in all.
pub(super) fn memory() -> Result<(u64, u64)> {
    let of = |file: &str, name: &str| -> Result<u64> {
        let text = std::fs::read_to_string(file).with_context(|| format!("read {file}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let Some(kib) = line.and_then(|line| line.strip_suffix("kB")) else { bail!("{file} has no {name}") };
        Ok(kib.trim().parse::<u64>()? << 10)
    };
    Ok((of("/proc/self/status", "VmRSS")?, of("/proc/meminfo", "Slab")?))
}
