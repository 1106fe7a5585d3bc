//! One peer connection, up to its keys: ICE and DTLS by str0m, driven by datagrams and time from outside.
//!
//! **Drive it so: after `answer`, `accept_answer`, `handle_datagram`, `handle_timeout`, `handle_fragment` and `close`,
//! call `poll` until it returns `Timeout`.**
//!
//! Addresses of ours do not matter to it: a session of a server answers from where it was asked, and the caller knows
//! by which socket a remote address came in. To str0m, which wants to know, we are always at the same made-up address.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use srtp::SessionKeys;
use str0m::crypto::Sha1HmacProvider;
use str0m::ice::StunMessage;
use str0m::net::{DatagramRecv, Protocol, Receive, TcpType};
use str0m::{Candidate as IceCandidate, Event, IceCreds, Rtc, RtcConfig};

use crate::Error;
use crate::answer::{AnswerOptions, Plan, RemoteTransport};
use crate::context::{CertificateNotEcdsa, Context, KeySlot};
use crate::fragment::Fragment;
use crate::media::Negotiated;
use crate::nomination::Nomination;
use crate::offer::{self, OfferOptions, Pending};
use crate::write::{Candidate, Transport};

/// The most addresses from which one peer is heard between ICE restarts; checks from further ones are refused. A browser
/// with several interfaces, TCP and IPv6 uses about ten.
const REMOTES_MAX: usize = 32;

/// What one datagram or one passing of time may have a session send at most. A handshake flight is some ten datagrams; a
/// session that never comes to rest is ended.
const OUTPUTS_MAX: u32 = 1_000;

/// When a session that has ended so may be asked again.
const AT_REST: Duration = Duration::from_secs(3_600);

/// Where the other side is, and by which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Where datagrams come from and go to.
    pub addr: SocketAddr,
    /// Over a TCP connection, with RFC 4571 framing around each datagram; else UDP.
    pub tcp: bool,
}

/// What a peer connection wants its caller to do or know.
#[derive(Debug)]
pub enum Output {
    /// Send this datagram.
    Transmit {
        /// Where to; by which socket is the caller's to know.
        remote: Remote,
        /// STUN or DTLS, never media.
        data: Box<[u8]>,
    },
    /// ICE and DTLS are done. Comes once.
    Connected {
        /// Of both ways (RFC 5764 §4.2).
        keys: SessionKeys,
        /// Where to send media.
        remote: Remote,
    },
    /// The other side wants to be sent to at another address. Only after `Connected`, and only on the server's side.
    PathChanged(Remote),
    /// It is over. Comes once; the session is good for nothing any more.
    Ended(EndReason),
    /// Nothing to do before this time, unless a datagram comes.
    Timeout(Instant),
}

/// Why a peer connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The other side said goodbye (DTLS close_notify), or we did.
    Closed,
    /// DTLS was done without SRTP (RFC 5764 §4.1).
    NoSrtp,
    /// The other side has no ECDSA certificate, which is the only kind that is taken (RFC 8827 §6.5 wants it of everybody).
    CertificateNotEcdsa,
    /// The handshake failed, for instance over a certificate with another fingerprint.
    Failed(String),
}

/// What an accepted datagram was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// An authenticated connectivity check: the peer is there and consents to be sent to (RFC 7675).
    Check,
    /// DTLS, or an answer to a check of ours.
    Handshake,
}

/// Why a datagram went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum Refused {
    #[error("neither STUN nor DTLS")]
    NotHandshake,
    #[error("malformed STUN")]
    Malformed,
    #[error("STUN with other credentials, or DTLS from an address that never proved itself")]
    NotAuthentic,
    #[error("more addresses than one peer may have")]
    TooManyAddresses,
    #[error("DTLS that cannot be used")]
    BadDtls,
    #[error("the session is over")]
    Ended,
}

/// One peer connection: SDP, ICE and DTLS, but no media.
pub struct Peer {
    rtc: Rtc,
    hmac: &'static dyn Sha1HmacProvider,
    keys: KeySlot,
    state: State,
    is_server: bool,
    local: IceCreds,
    remote: Option<IceCreds>,
    pending: Option<Pending>,
    /// What a restart's fragment lists.
    candidates: Vec<Candidate>,
    nomination: Nomination,
    /// Where authenticated checks came from since the last restart.
    known: Vec<Remote>,
    /// Where the last DTLS datagram went to: the nominated address, where we are the one who nominates.
    dtls_remote: Option<Remote>,
    queue: VecDeque<Output>,
    /// When something was last put in, and what str0m has said since.
    now: Instant,
    outputs: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Handshaking,
    /// DTLS says that it is done; keys are there, or will never be.
    DtlsDone,
    Connected,
    Ended,
}

impl Peer {
    /// Answers an offer, as a server: ICE-lite, and passive in DTLS.
    pub fn answer(
        context: &Context,
        now: Instant,
        offer: &str,
        options: &AnswerOptions<'_>,
    ) -> Result<(Peer, Negotiated), Error> {
        let mut peer = Peer::new(context, now, true, true)?;
        let rtc = &mut peer.rtc;
        let plan = Plan::new(offer, options.purpose, || *rtc.direct_api().new_ssrc())?;
        peer.candidates = options.candidates.to_vec();
        peer.start(&plan.remote, false)?;
        let sdp = peer.with_transport("passive", |number, transport| plan.write(number, transport, options));
        let media = plan.media().cloned().collect();
        Ok((peer, Negotiated { sdp, media }))
    }

    /// Makes an offer, as a client: full ICE, controlling. Nothing is sent before `accept_answer`.
    pub fn offer(context: &Context, now: Instant, options: &OfferOptions<'_>) -> Result<(Peer, String), Error> {
        let mut peer = Peer::new(context, now, false, options.tcp)?;
        let ssrcs: Vec<u32> = (0..64).map(|_| *peer.rtc.direct_api().new_ssrc()).collect();
        let mut ssrcs = ssrcs.into_iter();
        let (text, pending) = peer.with_transport("actpass", |number, transport| {
            offer::make(options, transport, number, || ssrcs.next().unwrap_or_default())
        });
        peer.pending = Some(pending);
        Ok((peer, text))
    }

    /// Takes the answer to the offer; from now on `poll` has something to send.
    pub fn accept_answer(&mut self, answer: &str) -> Result<Negotiated, Error> {
        let pending = self.pending.take().ok_or(Error::AnswerMismatch("no offer is pending"))?;
        let accepted = offer::read_answer(&pending, answer)?;
        self.start(&accepted.remote, accepted.is_dtls_client)?;
        for candidate in &accepted.candidates {
            self.add_remote_candidate(candidate);
        }
        Ok(Negotiated { sdp: answer.into(), media: accepted.media })
    }

    fn new(context: &Context, now: Instant, is_server: bool, tcp: bool) -> Result<Peer, Error> {
        let local = IceCreds::new();
        let config = RtcConfig::new()
            .set_crypto_provider(context.crypto.clone())
            .set_dtls_cert((*context.certificate).clone())
            .set_local_ice_credentials(local.clone())
            .set_ice_lite(is_server)
            .set_rtp_mode(true)
            .clear_codecs()
            .clear_extension_map();
        let (mut rtc, keys) = context.with_key_slot(|| config.build(now));
        rtc.direct_api().set_ice_controlling(!is_server);
        for candidate in made_up_candidates(is_server, tcp)? {
            rtc.add_local_candidate(candidate);
        }
        Ok(Peer {
            rtc,
            hmac: context.crypto.sha1_hmac_provider,
            keys,
            state: State::Handshaking,
            is_server,
            local,
            remote: None,
            pending: None,
            candidates: Vec::new(),
            nomination: Nomination::default(),
            known: Vec::new(),
            dtls_remote: None,
            queue: VecDeque::new(),
            now,
            outputs: 0,
        })
    }

    fn start(&mut self, remote: &RemoteTransport, is_dtls_client: bool) -> Result<(), Error> {
        let mut api = self.rtc.direct_api();
        api.set_remote_ice_credentials(remote.credentials.clone());
        api.set_remote_fingerprint(remote.fingerprint.clone());
        api.start_dtls(is_dtls_client).map_err(|error| Error::SetUp(error.to_string()))?;
        self.remote = Some(remote.credentials.clone());
        Ok(())
    }

    fn with_transport<T>(&mut self, setup: &str, write: impl FnOnce(u64, &Transport<'_>) -> T) -> T {
        let api = self.rtc.direct_api();
        // A random number below 2^62 (RFC 8829 §5.2.1); SSRCs are random too.
        let number = u64::from(*api.new_ssrc()) << 30 | u64::from(*api.new_ssrc() >> 2);
        let fingerprint = api.local_dtls_fingerprint().to_string();
        let (ufrag, pwd) = (&self.local.ufrag, &self.local.pass);
        write(number, &Transport { ufrag, pwd, fingerprint: &fingerprint, setup })
    }

    /// Our user fragment: the first half of USERNAME in each check that is for this session. Changes with a restart.
    pub fn ufrag(&self) -> &str {
        &self.local.ufrag
    }

    /// Whether `Output::Connected` was given out, or is next, and the session has not ended.
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// Takes a STUN or DTLS datagram. What is refused changes nothing.
    pub fn handle_datagram(&mut self, now: Instant, remote: Remote, data: &[u8]) -> Result<Received, Refused> {
        (self.now, self.outputs) = (now, 0);
        if self.state == State::Ended {
            return Err(Refused::Ended);
        }
        match data.first() {
            Some(0..=3) => self.handle_stun(now, remote, data),
            Some(20..=63) => self.handle_dtls(now, remote, data),
            _ => Err(Refused::NotHandshake),
        }
    }

    fn handle_stun(&mut self, now: Instant, remote: Remote, data: &[u8]) -> Result<Received, Refused> {
        let message = StunMessage::parse(data).map_err(|_| Refused::Malformed)?;
        let input = input(now, remote, data).ok_or(Refused::Malformed)?;
        if !self.is_authentic(&message) {
            return Err(Refused::NotAuthentic);
        }
        if !self.known.contains(&remote) {
            if self.known.len() >= REMOTES_MAX {
                return Err(Refused::TooManyAddresses);
            }
            self.known.push(remote);
        }
        let is_check = message.is_binding_request();
        if is_check && message.use_candidate() {
            let has_moved = self.nomination.nominate(now, remote, message.prio().unwrap_or_default());
            if has_moved && self.state == State::Connected {
                self.queue.push_back(Output::PathChanged(remote));
            }
        }
        if let Err(error) = self.rtc.handle_input(input) {
            self.end(EndReason::Failed(error.to_string()));
        }
        Ok(if is_check { Received::Check } else { Received::Handshake })
    }

    /// Whether the message's integrity was proved against this session's credentials.
    ///
    /// str0m looks again and drops what is not, but does not say so, and consent hangs on it.
    fn is_authentic(&self, message: &StunMessage<'_>) -> bool {
        let Some(remote) = &self.remote else { return false };
        let password = if message.is_binding_request() {
            let is_ours = |(local, other)| local == self.local.ufrag && other == remote.ufrag;
            if !message.split_username().is_some_and(is_ours) {
                return false;
            }
            &self.local.pass
        } else if message.is_successful_binding_response() || message.is_failed_binding_response() {
            &remote.pass
        } else {
            return false;
        };
        message.verify(password.as_bytes(), |key, payloads| self.hmac.sha1_hmac(key, payloads))
    }

    fn handle_dtls(&mut self, now: Instant, remote: Remote, data: &[u8]) -> Result<Received, Refused> {
        if !self.known.contains(&remote) {
            return Err(Refused::NotAuthentic);
        }
        let input = input(now, remote, data).ok_or(Refused::BadDtls)?;
        if self.rtc.handle_input(input).is_ok() {
            return Ok(Received::Handshake);
        }
        // Anybody can send a record that does not decrypt, so an error as such is no reason to end.
        if self.keys.get() == Some(&Err(CertificateNotEcdsa)) {
            self.end(EndReason::CertificateNotEcdsa);
        }
        Err(Refused::BadDtls)
    }

    /// Does what is due: checks, DTLS flights that were not answered, the end of a handshake that takes too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        (self.now, self.outputs) = (now, 0);
        if self.state != State::Ended
            && let Err(error) = self.rtc.handle_input(str0m::Input::Timeout(now))
        {
            self.end(EndReason::Failed(error.to_string()));
        }
    }

    /// Takes the body of a WHIP or WHEP PATCH (RFC 8840 §9). Other credentials than before are an ICE restart, and
    /// give the fragment to answer with; the user fragment is another one afterwards.
    pub fn handle_fragment(&mut self, text: &str) -> Result<Option<String>, Error> {
        let fragment = Fragment::parse(text)?;
        let answer = match fragment.credentials() {
            Some(remote) if self.remote.as_ref() != Some(&remote) => {
                self.switch_credentials(IceCreds::new(), remote)?;
                Some(Fragment::write(&self.local.ufrag, &self.local.pass, fragment.mid, &self.candidates))
            }
            _ => None,
        };
        if !self.is_server {
            for candidate in &fragment.candidates {
                self.add_remote_candidate(candidate);
            }
        }
        Ok(answer)
    }

    /// Takes fresh credentials, as a client, and returns the fragment that asks the server for an ICE restart. The
    /// server's fragment then goes to `accept_restart`.
    pub fn start_restart(&mut self) -> String {
        self.local = IceCreds::new();
        Fragment::write(&self.local.ufrag, &self.local.pass, Some("0"), &[])
    }

    /// Finishes the restart that `start_restart` began.
    pub fn accept_restart(&mut self, text: &str) -> Result<(), Error> {
        let remote = Fragment::parse(text)?.credentials().ok_or(Error::Missing { what: "a=ice-ufrag" })?;
        self.switch_credentials(self.local.clone(), remote)
    }

    /// New credentials and no checked pairs; the old path goes on being used until another is nominated (RFC 8445 §9).
    fn switch_credentials(&mut self, local: IceCreds, remote: IceCreds) -> Result<(), Error> {
        let mut api = self.rtc.direct_api();
        api.set_local_ice_credentials(local.clone());
        api.set_remote_ice_credentials(remote.clone());
        // Taking our candidates back and adding them again forgets all pairs and makes new ones.
        for candidate in made_up_candidates(self.is_server, true)? {
            if self.rtc.direct_api().invalidate_candidate(&candidate) {
                self.rtc.add_local_candidate(candidate);
            }
        }
        self.local = local;
        self.remote = Some(remote);
        // Media's current address stays known, since DTLS may still come from there.
        let current = self.nomination.remote();
        self.known.retain(|remote| Some(*remote) == current);
        self.nomination.restart();
        Ok(())
    }

    fn add_remote_candidate(&mut self, text: &str) {
        // What cannot be read (a protocol of tomorrow, a host name of mDNS) is a candidate less, not an error.
        if let Ok(candidate) = IceCandidate::from_sdp_string(text) {
            self.rtc.add_remote_candidate(candidate);
        }
    }

    /// Says goodbye: `poll` gives the DTLS close_notify to send, then `Ended`.
    pub fn close(&mut self) {
        self.outputs = 0;
        if self.state != State::Ended && self.rtc.close().is_err() {
            self.end(EndReason::Closed);
        }
    }

    /// What is next. `Timeout` comes when there is nothing else, and after `OUTPUTS_MAX` whatever there is.
    pub fn poll(&mut self) -> Output {
        loop {
            if let Some(output) = self.queue.pop_front() {
                return output;
            }
            if self.outputs >= OUTPUTS_MAX {
                if self.state == State::Ended {
                    return Output::Timeout(self.now + AT_REST);
                }
                self.end(EndReason::Failed("it never comes to rest".into()));
                continue;
            }
            self.outputs += 1;
            match self.rtc.poll_output() {
                Ok(str0m::Output::Transmit(transmit)) => {
                    let remote = Remote { addr: transmit.destination, tcp: transmit.proto != Protocol::Udp };
                    match transmit.contents.first() {
                        Some(20..=63) => self.dtls_remote = Some(remote),
                        // The rule that keeps nonces unique: no media ever comes from here.
                        Some(128..=191) => continue,
                        _ => {}
                    }
                    return Output::Transmit { remote, data: transmit.contents.to_vec().into() };
                }
                Ok(str0m::Output::Event(Event::Connected)) if self.state == State::Handshaking => {
                    self.enter(State::DtlsDone);
                }
                Ok(str0m::Output::Event(Event::Closed)) => self.end(EndReason::Closed),
                Ok(str0m::Output::Event(_)) => {}
                Ok(str0m::Output::Timeout(_)) if self.state == State::DtlsDone => self.connect(),
                Ok(str0m::Output::Timeout(at)) => return Output::Timeout(at),
                Err(error) => self.end(EndReason::Failed(error.to_string())),
            }
        }
    }

    fn connect(&mut self) {
        let remote = if self.is_server { self.nomination.remote().or(self.dtls_remote) } else { self.dtls_remote };
        match (self.keys.get().cloned(), remote) {
            (Some(Ok(keys)), Some(remote)) => {
                self.enter(State::Connected);
                self.queue.push_back(Output::Connected { keys, remote });
            }
            _ => self.end(EndReason::NoSrtp),
        }
    }

    /// Every change of the state is one of these.
    fn enter(&mut self, state: State) {
        debug_assert!(
            match (self.state, state) {
                (State::Handshaking, State::DtlsDone) | (State::DtlsDone, State::Connected) => true,
                (from, State::Ended) => from != State::Ended,
                _ => false,
            },
            "{:?} to {state:?}",
            self.state
        );
        self.state = state;
    }

    fn end(&mut self, reason: EndReason) {
        if self.state != State::Ended {
            self.enter(State::Ended);
            self.queue.push_back(Output::Ended(reason));
        }
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("ufrag", &self.local.ufrag).field("state", &self.state).finish_non_exhaustive()
    }
}

fn input(now: Instant, remote: Remote, data: &[u8]) -> Option<str0m::Input<'_>> {
    let contents = DatagramRecv::try_from(data).ok()?;
    let proto = if remote.tcp { Protocol::Tcp } else { Protocol::Udp };
    let destination = made_up_address(remote.addr.is_ipv6());
    Some(str0m::Input::Receive(now, Receive { proto, source: remote.addr, destination, contents }))
}

/// Addresses for documentation (RFC 5737, RFC 3849), which nobody has.
fn made_up_address(is_ipv6: bool) -> SocketAddr {
    match is_ipv6 {
        true => (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9).into(),
        false => (Ipv4Addr::new(192, 0, 2, 1), 9).into(),
    }
}

fn made_up_candidates(is_server: bool, tcp: bool) -> Result<Vec<IceCandidate>, Error> {
    let tcp_type = if is_server { TcpType::Passive } else { TcpType::Active };
    let mut candidates = Vec::with_capacity(4);
    for is_ipv6 in [false, true] {
        let addr = made_up_address(is_ipv6);
        candidates.push(IceCandidate::builder().udp().host(addr).build());
        if tcp {
            candidates.push(IceCandidate::builder().tcp().host(addr).tcptype(tcp_type).build());
        }
    }
    candidates.into_iter().collect::<Result<_, _>>().map_err(|error| Error::SetUp(error.to_string()))
}

#[cfg(test)]
mod tests {
    use str0m::media::MediaKind;
    use wire::codec::Codec;

    use super::*;
    use crate::{Direction, Purpose};

    const SERVER: Remote =
        Remote { addr: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7000), tcp: false };
    const CLIENT: Remote =
        Remote { addr: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9000), tcp: false };

    /// Lets `peer` do all that it wants now; the first bytes of what str0m itself sends go to `kinds`.
    fn drive(now: Instant, peer: &mut Peer, other: &mut Peer, at: Remote, kinds: &mut Vec<u8>) {
        peer.handle_timeout(now);
        loop {
            match peer.rtc.poll_output().unwrap() {
                str0m::Output::Transmit(sent) => {
                    kinds.extend(sent.contents.first());
                    let _ = other.handle_datagram(now, at, &sent.contents);
                }
                str0m::Output::Event(Event::Connected) => peer.state = State::DtlsDone,
                str0m::Output::Event(_) => {}
                str0m::Output::Timeout(_) => return,
            }
        }
    }

    /// A viewer that watches one video track, and the server's side of it.
    fn pair(start: Instant) -> (Peer, Peer) {
        let context = Context::new().unwrap();
        let tracks = [Codec::Vp8];
        let offer = OfferOptions {
            direction: Direction::Receive,
            audio: false,
            video: &[Codec::Vp8],
            rids: &[],
            stream: "",
            tcp: false,
        };
        let (mut client, offer) = Peer::offer(&context, start, &offer).unwrap();
        let purpose = Purpose::Send { tracks: &tracks, stream: "s" };
        let candidates = [Candidate { addr: SERVER.addr, tcp: false }];
        let (server, answer) =
            Peer::answer(&context, start, &offer, &AnswerOptions { purpose, candidates: &candidates }).unwrap();
        client.accept_answer(&answer.sdp).unwrap();
        (server, client)
    }

    /// A viewer without `m=application` that begins an SCTP association (RFC 8831) all the same.
    #[test]
    fn a_peer_that_speaks_sctp_is_not_answered() {
        let start = Instant::now();
        let (mut server, mut client) = pair(start);
        client.rtc.direct_api().start_sctp(true);
        let (mut from_server, mut from_client) = (Vec::new(), Vec::new());
        for step in 0..500 {
            let now = start + Duration::from_millis(10 * step);
            drive(now, &mut server, &mut client, SERVER, &mut from_server);
            drive(now, &mut client, &mut server, CLIENT, &mut from_client);
        }
        let records = |kinds: &[u8]| kinds.iter().filter(|kind| **kind == 23).count();
        assert!(server.keys.get().is_some() && records(&from_client) > 1, "it asked again and again");
        assert_eq!(records(&from_server), 0);
    }

    #[test]
    fn a_session_that_never_comes_to_rest_is_ended() {
        let (mut server, _) = pair(Instant::now());
        server.outputs = OUTPUTS_MAX;
        assert!(matches!(server.poll(), Output::Ended(EndReason::Failed(_))));
        assert!(matches!(server.poll(), Output::Timeout(_)));
        server.close();
        assert!(matches!(server.poll(), Output::Timeout(_)));
    }

    /// What the whole design rests on, to be seen again with each new version of str0m.
    #[test]
    fn str0m_without_keys_sends_no_media_even_where_it_knows_of_streams() {
        let start = Instant::now();
        let (mut server, mut client) = pair(start);
        let mut api = server.rtc.direct_api();
        api.declare_media("0".into(), MediaKind::Video);
        api.declare_stream_tx(1.into(), Some(2.into()), "0".into(), None);
        api.expect_stream_rx(3.into(), None, "0".into(), None);

        let mut kinds = Vec::new();
        for step in 0..1_100 {
            let now = start + Duration::from_millis(10 * step);
            drive(now, &mut server, &mut client, SERVER, &mut kinds);
            drive(now, &mut client, &mut server, CLIENT, &mut kinds);
        }

        assert!(matches!(server.keys.get(), Some(Ok(_))) && server.state == State::DtlsDone);
        assert!(kinds.iter().any(|byte| (20..=63).contains(byte)));
        assert!(!kinds.iter().any(|byte| (128..=191).contains(byte)));
    }
}
