//! What control tells a worker's relay, and what it hears back. Plain values: they cross threads.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::WorkerId;

use crate::auth::{Credentials, Found};
use crate::blocked::Blocked;
use crate::rules::Rules;
use crate::story::Story;

/// One allocation, unique in the process for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationId(pub u64);

/// How a client speaks to the server (RFC 8656 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ClientTransport {
    /// Datagrams.
    Udp,
    /// Messages one behind the other.
    Tcp,
    /// The same under TLS.
    Tls,
    /// Datagrams under DTLS (RFC 7350).
    Dtls,
}

/// A client's association by DTLS, from the end of its cookie on; unique on its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AssociationId(pub u64);

/// What a handshake needs of who does it.
#[derive(Debug)]
pub enum HandshakeInput {
    /// One begins with this ClientHello. Its cookie is good.
    Begin {
        /// How far the client has counted.
        numbers: dtls::Numbers,
        /// All of the datagram.
        hello: Box<[u8]>,
    },
    /// The client has sent this.
    Datagram(Box<[u8]>),
    /// Nobody waits for it any more.
    End,
}

/// What has become of a handshake.
#[derive(Debug)]
pub enum HandshakeStep {
    /// Send the client this.
    Send(Box<[u8]>),
    /// It is over, and there are keys.
    Done(Box<dtls::Established>),
    /// It is over, and there are none.
    Failed,
}

/// What control asks of a worker's relay.
#[derive(Debug)]
pub enum Command {
    /// A connection is here, accepted elsewhere.
    AddClient(Connection),
    /// A handshake goes on, as `Event::Handshake` had asked.
    Handshake {
        /// Whose.
        association: AssociationId,
        /// How far it is.
        step: HandshakeStep,
    },
    /// What was found for `Event::Lookup`. Each question has an answer.
    Found {
        /// Whose keys.
        user: Arc<str>,
        /// What it is.
        found: Found,
    },
    /// Know these users and secrets from now on, and no others.
    Credentials(Arc<Credentials>),
    /// Tell of allocations, by `Event::Allocations`: those of the lowest numbers above `after`.
    List {
        /// Comes back with the answer.
        token: u64,
        /// Of this user alone.
        user: Option<Arc<str>>,
        /// No number is 0.
        after: AllocationId,
        /// So many at most; the answer may have fewer, and says then where it goes on.
        count: usize,
    },
    /// Tell what became of an allocation, by `Event::Story`.
    Story {
        /// Comes back with the answer.
        token: u64,
        /// Which.
        id: AllocationId,
    },
    /// End an allocation. Its client hears nothing, as with one that expired.
    Delete(AllocationId),
    /// Keep these users out from now on (403), and no others; their allocations end.
    Block(Arc<Blocked>),
    /// The host's clock was set: an instant, and the time since 1970 at it.
    Clock(Instant, Duration),
    /// Other rules hold from now on, also for permissions and channels that are there.
    Rules(Arc<Rules>),
    /// Begin no allocation from now on (508, or 300 to an alternate server), while those that are there live out; or do again.
    Drain(bool),
}

/// A client's connection that was accepted elsewhere, with what was read from it already.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub descriptor: OwnedFd,
    /// Who it is: what the socket says, or a load balancer in front (PROXY protocol).
    pub client: SocketAddr,
    /// Our address as the client sees it.
    pub server: SocketAddr,
    /// `Tcp` or `Tls`.
    pub transport: ClientTransport,
    /// What was read already, and the cipher that it is under: for `wire::Adopted::Begun`.
    pub begun: wire::Begun,
}

/// The bits of a connection id that are random; those above say whose it is.
pub(crate) const CONNECTION_RANDOM_BITS: u32 = 22;

/// Which worker a connection id is of (RFC 6062 §6.2.1): a connection that begins with a ConnectionBind for it belongs there.
pub fn connection_worker(id: u32) -> WorkerId {
    WorkerId((id >> CONNECTION_RANDOM_BITS) as u16)
}

/// What a worker's relay tells control.
#[derive(Debug)]
pub enum Event {
    /// A request names a user whom the relay does not know: look the keys up, and answer with `Command::Found`. The request
    /// waits for it.
    Lookup {
        /// Who.
        user: Arc<str>,
    },
    /// Shake hands with a client, or go on with it, and tell by `Command::Handshake`.
    Handshake {
        /// Which.
        association: AssociationId,
        /// What came of it.
        input: HandshakeInput,
    },
    /// An allocation began.
    Began(AllocationInfo),
    /// It ended, and this had become of it.
    Ended(AllocationInfo, EndReason, Box<Story>),
    /// Who is at an address could not prove who he is. So many are told a second, whoever tries.
    NotProved(FailedProof),
    /// The answer to `Command::List`.
    Allocations {
        /// Of the question.
        token: u64,
        /// By number.
        allocations: Vec<AllocationInfo>,
        /// Up to which number they were looked at; `None`: there are no others.
        upto: Option<AllocationId>,
    },
    /// The answer to `Command::Story`.
    Story {
        /// Of the question.
        token: u64,
        /// `None`: it is not there.
        told: Option<(AllocationInfo, Box<Story>)>,
    },
}

/// Why an allocation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum EndReason {
    /// Its client gave it back: a Refresh with a lifetime of 0 (RFC 8656 §8).
    Released,
    /// Its client did not refresh it.
    Expired,
    /// Its client's connection closed.
    ConnectionClosed,
    /// The system took its relayed address away.
    AddressLost,
    /// Control asked for it (`Command::Delete`).
    Deleted,
    /// Its user is kept out (`Command::Block`).
    Blocked,
}

/// A request that did not prove who sent it, though it came from where it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedProof {
    /// Who it says it is from, `FailedProof::NAME_MAX` characters of it; `None` where it says that by a hash.
    pub user: Option<String>,
    /// Where it came from.
    pub client: SocketAddr,
    /// What is wrong.
    pub error: ProofError,
    /// Others of this worker since the last one that was told.
    pub left_out: u64,
}

impl FailedProof {
    /// Whoever fails chooses the name.
    pub const NAME_MAX: usize = 64;
}

/// What is wrong with a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ProofError {
    /// It is for another realm.
    WrongRealm,
    /// There is no such user.
    UnknownUser,
    /// The time of the name is over.
    Expired,
    /// The user has no key for the algorithm that was chosen.
    NoKey,
    /// It was made with another password.
    WrongPassword,
    /// So many have failed at the address that it was not looked at.
    TooManyAttempts,
}

/// One allocation, as control and the API show it.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocationInfo {
    /// Which.
    pub id: AllocationId,
    /// Whose.
    pub user: Arc<str>,
    /// The client's end of the five-tuple.
    pub client: SocketAddr,
    /// Our end of it.
    pub server: SocketAddr,
    /// Between the two.
    pub transport: ClientTransport,
    /// What peers see; the second of an allocation of both families (RFC 8656 §5).
    pub relayed: Vec<SocketAddr>,
    /// For how long it has been there.
    pub age: Duration,
    /// What is left of its lifetime.
    pub expires_in: Duration,
    /// Permissions that are in force.
    pub permissions: usize,
    /// Channels that are bound.
    pub channels: usize,
    /// From the client to peers.
    pub sent: Traffic,
    /// From peers to the client.
    pub received: Traffic,
    /// Datagrams, both ways, that were over a bandwidth.
    pub dropped: u64,
}

/// What went one way: payloads, without what stands around them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}
