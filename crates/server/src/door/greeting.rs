//! What is said with a newcomer before it is known what he wants: a load balancer's header, the TLS handshake, first words.
//!
//! In: a connection. Out: the connection with what was read of it, and the wish; or what is wrong.
//! The time limit is the caller's.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::ServerConfig;
use thiserror::Error;
use tls::{Established, Handshake, HandshakeError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wire::Begun;
use wire::proxy::{self, Header};

use super::secured::Secured;
use super::wish::{Told, Wish, tell};
use super::{Entrance, has};

/// Bytes of one read.
const READ_MAX: usize = 4_096;

/// A newcomer.
pub(super) struct Greeting {
    stream: TcpStream,
    remote: SocketAddr,
    entrance: Arc<Entrance>,
    tls: Option<Arc<ServerConfig>>,
}

/// One of whom it is known what he wants.
pub(super) struct Arrival {
    pub(super) stream: TcpStream,
    /// Both ends, as the client has them.
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    pub(super) wish: Wish,
    /// What was read, and the cipher.
    pub(super) begun: Begun,
}

/// Why a newcomer is sent away.
#[derive(Debug, Error)]
pub(super) enum Trouble {
    #[error("no PROXY header, and it is a load balancer's connection")]
    Proxy,
    #[error("TLS: {0}")]
    Handshake(#[from] HandshakeError),
    #[error("a directory has seen that the name is ours, and wants no more (RFC 8737 §3)")]
    Challenge,
    #[error("its source has too many newcomers")]
    Crowded,
    #[error("its source begins TLS too often")]
    TooOften,
    #[error("that is not spoken here")]
    Unclear,
    #[error("it broke: {0}")]
    Broken(#[from] io::Error),
}

impl Greeting {
    pub(super) fn new(
        stream: TcpStream,
        remote: SocketAddr,
        entrance: Arc<Entrance>,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        Greeting { stream, remote, entrance, tls }
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Waits until he has said something, or is gone.
    pub(super) async fn hear(&self) {
        // That a new connection is ready says nothing (tokio takes it for that). What is wrong is found when it is read.
        self.stream.peek(&mut [0]).await.ok();
    }

    pub(super) fn into_parts(self) -> (Arc<Entrance>, TcpStream) {
        (self.entrance, self.stream)
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Finds out what he wants. `admit` is asked before anything dear, with whose the connection is by a load balancer.
    pub(super) async fn meet(
        self,
        admit: impl FnOnce(Option<IpAddr>) -> Result<(), Trouble>,
    ) -> Result<Arrival, Trouble> {
        let Greeting { mut stream, remote, entrance, tls } = self;
        stream.set_nodelay(true)?;
        let (mut client, mut server, mut came, mut told) = (remote, stream.local_addr()?, Vec::new(), None);
        if has(&entrance.proxied_from, remote) {
            let ends = read_proxy_header(&mut stream, &mut came).await?;
            told = ends.map(|ends| ends.client.ip());
            (client, server) = ends.map_or((client, server), |ends| (ends.client, ends.server));
        }
        admit(told)?;
        let mut begun = Begun { received: came.into(), ..Begun::default() };
        let mut protocol = None;
        if let Some(config) = tls {
            let established = shake_hands(&mut stream, config, &begun.received).await?;
            let Established { records, received, sealed, .. } = established;
            protocol = established.protocol;
            if protocol.as_deref() == Some(acme::ALPN.as_bytes()) {
                return Err(Trouble::Challenge);
            }
            begun = Begun {
                received: received.into(),
                cipher: Some(Box::new(records)),
                sealed: sealed.into(),
                ..Begun::default()
            };
        }
        let wish = first_words(&mut stream, &entrance, protocol.as_deref(), &mut begun).await?;
        Ok(Arrival { stream, client, server, wish, begun })
    }
}

impl Arrival {
    /// Reads on; true when nothing comes any more. Dropping it loses nothing.
    pub(super) async fn read(&mut self) -> Result<bool, Trouble> {
        read_words(&mut self.stream, &mut self.begun).await
    }

    /// The connection as one of bytes, for a task.
    pub(super) fn into_stream(self) -> Secured {
        Secured::new(self.stream, self.begun)
    }
}

/// Reads on. The end is an error.
async fn read_more(stream: &mut TcpStream, came: &mut Vec<u8>) -> Result<(), Trouble> {
    came.reserve(READ_MAX);
    match stream.read_buf(came).await? {
        0 => Err(Trouble::Unclear),
        _ => Ok(()),
    }
}

/// Reads a load balancer's header. What comes behind it is left in `came`.
async fn read_proxy_header(stream: &mut TcpStream, came: &mut Vec<u8>) -> Result<Option<proxy::Ends>, Trouble> {
    loop {
        match proxy::header(came) {
            Header::Whole { len, ends } => {
                came.drain(..len);
                return Ok(ends);
            }
            Header::Invalid => return Err(Trouble::Proxy),
            Header::Incomplete => read_more(stream, came).await.map_err(|_| Trouble::Proxy)?,
        }
    }
}

async fn shake_hands(stream: &mut TcpStream, config: Arc<ServerConfig>, came: &[u8]) -> Result<Established, Trouble> {
    let mut handshake = Handshake::new(config)?;
    let (mut came, mut out) = (came.to_vec(), Vec::new());
    loop {
        let handled = handshake.handle(&came, &mut out);
        stream.write_all(&out).await?;
        out.clear();
        if handled? {
            return Ok(handshake.finish()?);
        }
        came.clear();
        read_more(stream, &mut came).await.map_err(|_| HandshakeError::Ended)?;
    }
}

/// Reads until it can be told what is wanted.
async fn first_words(
    stream: &mut TcpStream,
    entrance: &Entrance,
    protocol: Option<&[u8]>,
    begun: &mut Begun,
) -> Result<Wish, Trouble> {
    loop {
        match tell(entrance, protocol, &begun.received) {
            Told::It(wish) => return Ok(wish),
            Told::Never => return Err(Trouble::Unclear),
            Told::NotYet => {}
        }
        if read_words(stream, begun).await? {
            let Told::It(wish) = tell(entrance, protocol, &begun.received) else { return Err(Trouble::Unclear) };
            return Ok(wish);
        }
    }
}

/// Reads on, and opens what came; true when nothing comes any more. What was read is kept when this is dropped before.
async fn read_words(stream: &mut TcpStream, begun: &mut Begun) -> Result<bool, Trouble> {
    let Some(cipher) = &mut begun.cipher else {
        append(stream, &mut begun.received).await?;
        return Ok(false);
    };
    append(stream, &mut begun.sealed).await?;
    let mut sealed = Vec::from(std::mem::take(&mut begun.sealed));
    let opened = cipher.open(&mut sealed);
    // What it has to say is short, and hardly ever anything.
    let mut out = Vec::new();
    cipher.poll_output(&mut out);
    let opened = opened.map_err(|_| Trouble::Unclear);
    if let Ok(opened) = &opened {
        begun.received = [&begun.received[..], &sealed[..opened.plain]].concat().into();
        sealed.drain(..opened.used);
        begun.sealed = sealed.into();
    }
    stream.write_all(&out).await?;
    Ok(opened?.has_ended)
}

/// Reads more of a connection.
async fn append(stream: &mut TcpStream, came: &mut Box<[u8]>) -> Result<(), Trouble> {
    let mut more = Vec::new();
    read_more(stream, &mut more).await?;
    *came = [came, &more[..]].concat().into();
    Ok(())
}
