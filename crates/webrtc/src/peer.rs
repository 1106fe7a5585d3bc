//! One peer connection, up to its keys, driven by datagrams and time from outside. DTLS is dimpl's, data channels are str0m's
//! (`below`), and so is a client's ICE; a server, a lite agent, has but to answer checks, to ask whether the peer is where it says (`checks`, `reach`), and to
//! follow its nominations (`nomination`).
//!
//! **Drive it so: after `answer`, `accept_answer`, `handle_datagram`, `handle_timeout`, `handle_fragment` and `close`,
//! call `poll` until it returns `Timeout`.**
//!
//! Addresses of ours do not matter to it: a session of a server answers from where it was asked, and the caller knows
//! by which socket a remote address came in. To str0m, which wants to know, we are always at the same made-up address.

mod association;
mod below;
mod limits;
mod made_up;
mod restart;
mod spec;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use str0m::ice::StunMessage;
use str0m::{Candidate as IceCandidate, Event, IceCreds};
use wire::Budget;

#[cfg(debug_assertions)]
#[doc(hidden)]
pub use spec::Fault;
pub use spec::{EndReason, Output, Received, Refused, Remote};

use self::below::{Below, Said};
use self::limits::{AT_REST, HELD_MAX, MESSAGES_MAX, MOVES, OUTPUTS_MAX};
use self::made_up::made_up_address;
use self::state::{Kind, State};
use crate::Error;
use crate::answer::{AnswerOptions, Plan, Purpose, RemoteTransport};
use crate::channels::{Channels, DataRefused, Delivery};
use crate::checks::Checks;
use crate::context::{self, CertificateRefused, Context, Seam};
use crate::guard::{Panicked, guarded};
use crate::media::Negotiated;
use crate::nomination::Nomination;
use crate::offer::{self, OfferOptions, Pending};
use crate::random;
use crate::reach::{Answered, Reach, Standing};
use crate::write::{Candidate, Transport};

/// One peer connection: SDP, ICE and DTLS, but no media.
pub struct Peer {
    below: Below,
    /// Of our certificate, as descriptions have it.
    fingerprint: Arc<str>,
    seam: Arc<Seam>,
    has_data: bool,
    state: State,
    is_server: bool,
    /// The peer is sent media, and not reports alone.
    is_viewer: bool,
    is_dtls_client: bool,
    owes_hello: bool,
    checks: Checks,
    pending: Option<Pending>,
    /// What a restart's fragment lists.
    candidates: Vec<Candidate>,
    nomination: Nomination,
    /// Where authenticated checks came from since the last restart.
    reach: Reach,
    restarts: Budget,
    /// Where media goes, as was said last.
    media_at: Option<Remote>,
    moves: Budget,
    /// DTLS from addresses that are yet to be proved.
    held: Vec<(Remote, Box<[u8]>)>,
    /// Where the last DTLS datagram came from; where we are the one who nominates, where the last one went to.
    dtls_remote: Option<Remote>,
    queue: VecDeque<Output>,
    /// Data channels, where both sides want some.
    channels: Option<Channels>,
    /// When something was last put in, and what was said since: from below, and of that how many messages.
    now: Instant,
    outputs: u32,
    messages: u32,
    /// Nothing below is called again: a library has panicked, or the session has ended and said all.
    is_over: bool,
    #[cfg(debug_assertions)]
    has_fault: bool,
}

impl Peer {
    /// Answers an offer, as a server: ICE-lite, and passive in DTLS.
    pub fn answer(
        context: &Context,
        now: Instant,
        offer: &str,
        options: &AnswerOptions<'_>,
    ) -> Result<(Peer, Negotiated), Error> {
        Peer::answer_as(Kind::SERVER, context, now, offer, options)
    }

    fn answer_as(
        kind: Kind,
        context: &Context,
        now: Instant,
        offer: &str,
        options: &AnswerOptions<'_>,
    ) -> Result<(Peer, Negotiated), Error> {
        let mut ssrcs = random::ssrcs()?;
        let plan = Plan::new(offer, options.purpose, || ssrcs.next().unwrap_or_default())?;
        let mut peer = Peer::new(context, now, kind)?;
        peer.candidates = options.candidates.to_vec();
        peer.is_viewer = matches!(options.purpose, Purpose::Send { .. });
        peer.begin(now, &plan.remote, false)?;
        let sdp = peer.with_transport("passive", |number, transport| plan.write(number, transport, options))?;
        let media = plan.media().cloned().collect();
        Ok((peer, Negotiated { sdp, media }))
    }

    /// Makes an offer, as a client: full ICE, controlling. Nothing is sent before `accept_answer`.
    pub fn offer(context: &Context, now: Instant, options: &OfferOptions<'_>) -> Result<(Peer, String), Error> {
        let mut peer = Peer::new(context, now, Kind { tcp: options.tcp, ..Kind::CLIENT })?;
        let mut ssrcs = random::ssrcs()?;
        let (text, pending) = peer.with_transport("actpass", |number, transport| {
            offer::make(options, transport, number, || ssrcs.next().unwrap_or_default())
        })?;
        peer.pending = Some(pending);
        Ok((peer, text))
    }

    /// Takes the answer to the offer; from now on `poll` has something to send.
    pub fn accept_answer(&mut self, answer: &str) -> Result<Negotiated, Error> {
        let pending = self.pending.take().ok_or(Error::AnswerMismatch("no offer is pending"))?;
        let accepted = offer::read_answer(&pending, answer)?;
        self.start(&accepted.remote, Some(accepted.is_dtls_client))?;
        for candidate in &accepted.candidates {
            self.add_candidate(candidate);
        }
        Ok(Negotiated { sdp: answer.into(), media: accepted.media })
    }

    /// A server whose media sections change over its life (`Conference`). Its peer answers checks as long as it is there.
    pub(crate) fn for_conference(context: &Context, now: Instant, has_data: bool) -> Result<Peer, Error> {
        let peer = Peer::new(context, now, Kind { has_data, ..Kind::SERVER })?;
        Ok(Peer { is_viewer: true, ..peer })
    }

    pub(crate) fn new(context: &Context, now: Instant, kind: Kind) -> Result<Peer, Error> {
        let local = random::credentials()?;
        let (below, seam) = Below::new(context, now, kind, &local)?;
        Ok(Peer {
            below,
            fingerprint: context.fingerprint.clone(),
            seam,
            has_data: kind.has_data,
            state: State::Handshaking,
            is_server: kind.is_server,
            is_viewer: false,
            is_dtls_client: false,
            owes_hello: false,
            checks: Checks::new(local, context.crypto.sha1_hmac_provider),
            pending: None,
            candidates: Vec::new(),
            nomination: Nomination::default(),
            reach: Reach::new(now),
            restarts: Budget::new(now),
            media_at: None,
            moves: Budget::new(now),
            held: Vec::new(),
            dtls_remote: None,
            queue: VecDeque::new(),
            channels: None,
            messages: 0,
            now,
            outputs: 0,
            is_over: false,
            #[cfg(debug_assertions)]
            has_fault: false,
        })
    }

    /// As a server, takes the peer's datagrams from now on. Where it is the DTLS server, it hears hello when it has nominated.
    pub(crate) fn begin(&mut self, now: Instant, remote: &RemoteTransport, is_dtls_client: bool) -> Result<(), Error> {
        self.now = now;
        (self.is_dtls_client, self.owes_hello) = (is_dtls_client, is_dtls_client);
        self.start(remote, (!is_dtls_client).then_some(false))?;
        self.stand_in_for_ice();
        Ok(())
    }

    /// `is_dtls_client` is `None` where DTLS is to wait.
    pub(crate) fn start(&mut self, remote: &RemoteTransport, is_dtls_client: Option<bool>) -> Result<(), Error> {
        self.call(|below| below.expect(remote));
        if let Some(is_client) = is_dtls_client {
            self.is_dtls_client = is_client;
            self.start_dtls(is_client)?;
        }
        self.checks.remote = Some(remote.credentials.clone());
        Ok(())
    }

    fn start_dtls(&mut self, is_client: bool) -> Result<(), Error> {
        let now = self.now;
        let started = self.call(|below| below.start_dtls(now, is_client));
        started.unwrap_or_else(|| Err("a library panicked".into())).map_err(Error::SetUp)
    }

    fn with_transport<T>(&mut self, setup: &str, write: impl FnOnce(u64, &Transport<'_>) -> T) -> Result<T, Error> {
        let IceCreds { ufrag, pass: pwd } = &self.checks.local;
        let transport = Transport { ufrag, pwd, fingerprint: &self.fingerprint, setup };
        Ok(write(random::session_number()?, &transport))
    }

    /// Of our certificate, as descriptions have it.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// What our descriptions say until the next restart.
    pub(crate) fn local_credentials(&self) -> &IceCreds {
        &self.checks.local
    }

    /// Has the transaction ids of our own requests begin with `tag`, so that the caller knows for whom a response is. What
    /// is behind it nobody can guess.
    pub fn set_tag(&mut self, tag: [u8; 4]) {
        self.checks.tag = tag;
    }

    /// Our user fragment: the first half of USERNAME in each check that is for this session. Changes with a restart.
    pub fn ufrag(&self) -> &str {
        &self.checks.local.ufrag
    }

    /// Whether `Output::Connected` was given out, or is next, and the session has not ended.
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// Whether the peer has shown lately that it receives there.
    pub fn is_proved(&self, now: Instant, remote: Remote) -> bool {
        self.reach.is_proved(now, remote)
    }

    /// Takes a STUN or DTLS datagram. What is refused changes nothing.
    pub fn handle_datagram(&mut self, now: Instant, remote: Remote, data: &[u8]) -> Result<Received, Refused> {
        self.wake(now);
        if self.state == State::Ended {
            return Err(Refused::Ended);
        }
        match data.first() {
            Some(0..=3) => self.handle_stun(now, remote, data),
            Some(20..=63) => self.handle_dtls(now, remote, data),
            _ => Err(Refused::NotHandshake),
        }
    }

    fn wake(&mut self, now: Instant) {
        (self.now, self.outputs, self.messages) = (now, 0, 0);
    }

    fn handle_stun(&mut self, now: Instant, remote: Remote, data: &[u8]) -> Result<Received, Refused> {
        let message = self.checks.read(data)?;
        if !self.is_server {
            if !self.put_in(remote, data) {
                return Err(Refused::Malformed);
            }
            self.reach.trust(now, remote, None);
            return Ok(if message.is_binding_request() { Received::Consent } else { Received::Handshake });
        }
        if message.is_binding_request() {
            self.handle_check(now, remote, &message)
        } else {
            self.handle_response(now, remote, &message, data)
        }
    }

    /// Takes a check of the peer's and answers it (RFC 8445 §7.3.1).
    fn handle_check(&mut self, now: Instant, remote: Remote, message: &StunMessage<'_>) -> Result<Received, Refused> {
        let is_conflict = message.ice_controlled().is_some();
        let answer =
            if is_conflict { self.checks.role_conflict(message) } else { self.checks.answer(message, remote.addr) };
        self.queue.extend(answer.map(|data| Output::Transmit { remote, data }));
        if is_conflict {
            return Ok(Received::Check);
        }
        let in_use = self.media_remote();
        if remote.tcp {
            self.reach.trust(now, remote, in_use);
        } else {
            let transaction = self.checks.transaction().map_err(|_| Refused::Ended)?;
            self.reach.handle_check(now, remote, in_use, transaction);
        }
        let is_proved = self.reach.is_proved(now, remote);
        if message.use_candidate() {
            let priority = message.prio().unwrap_or_default();
            match is_proved {
                true => self.nominate(now, remote, priority),
                false => self.reach.keep_nomination(remote, priority),
            }
        }
        self.see_to_consent();
        let is_consent = match self.state {
            State::Connected => self.media_remote() == Some(remote) && (is_proved || !self.is_viewer),
            _ => is_proved,
        };
        Ok(if is_consent { Received::Consent } else { Received::Check })
    }

    /// Takes an answer to a request of ours.
    fn handle_response(
        &mut self,
        now: Instant,
        remote: Remote,
        message: &StunMessage<'_>,
        data: &[u8],
    ) -> Result<Received, Refused> {
        let transaction = data.get(8..20).filter(|_| message.is_successful_binding_response());
        let nomination = match self.reach.handle_response(now, remote, transaction.ok_or(Refused::NotAuthentic)?)? {
            Answered::Proof(nomination) => nomination,
            Answered::Renewal => return Ok(Received::Consent),
            Answered::Late => return Ok(Received::Handshake),
        };
        match (nomination, self.media_remote()) {
            (Some(priority), _) => self.nominate(now, remote, priority),
            // A peer that is somewhere else, perhaps because a NAT has given it another port, is asked where it was.
            (None, Some(in_use)) if self.state == State::Connected && in_use != remote => {
                self.ask_again(in_use);
            }
            (None, _) => {}
        }
        for (from, data) in std::mem::take(&mut self.held) {
            if from == remote {
                // What is wrong with it has been dealt with, as with any other DTLS.
                let _ = self.handle_dtls(now, remote, &data);
            }
        }
        Ok(Received::Proof)
    }

    fn nominate(&mut self, now: Instant, remote: Remote, priority: u32) {
        self.nomination.nominate(now, remote, priority);
        if std::mem::take(&mut self.owes_hello)
            && let Err(error) = self.start_dtls(true)
        {
            self.end(EndReason::Failed(error.to_string()));
        }
        self.say_where();
    }

    /// Says where media goes when that is somewhere else than it was.
    fn say_where(&mut self) {
        let in_use = self.media_remote();
        if self.state == State::Connected && in_use != self.media_at && self.moves.take(self.now, MOVES) {
            self.media_at = in_use;
            self.queue.extend(in_use.map(Output::PathChanged));
        }
    }

    fn ask_again(&mut self, in_use: Remote) {
        if let Ok(transaction) = self.checks.transaction() {
            self.reach.renew(self.now, in_use, transaction);
        }
    }

    /// Media goes on only where the peer keeps answering; else to another address where it does; else nowhere (RFC 7675). Who
    /// publishes is sent reports alone, and is there as long as its media comes: FFmpeg's, once connected, answers nothing.
    fn see_to_consent(&mut self) {
        let Some(in_use) = self.media_remote().filter(|_| self.is_server && self.state == State::Connected) else {
            return;
        };
        match self.reach.standing(self.now, in_use) {
            Standing::Good => {}
            Standing::Old => self.ask_again(in_use),
            standing => match self.reach.successor(self.now, in_use) {
                Some(successor) => self.nomination.follow(self.now, successor),
                None if standing == Standing::Lapsed && self.is_viewer => self.end(EndReason::ConsentLapsed),
                None => {}
            },
        }
        self.say_where();
    }

    /// Calls what is below, with the time of what was last put in. A panic in there ends this session and no other; what it has
    /// left half done is not called again.
    fn call<T>(&mut self, call: impl FnOnce(&mut Below) -> T) -> Option<T> {
        let result = guarded(|| {
            #[cfg(debug_assertions)]
            assert!(!self.has_fault, "a fault, injected");
            context::at(self.now, || call(&mut self.below))
        });
        self.survive(result)
    }

    /// The same of str0m, where there is one.
    fn call_str0m<T>(&mut self, call: impl FnOnce(&mut str0m::Rtc) -> T) -> Option<T> {
        self.call(|below| below.str0m().map(call)).flatten()
    }

    fn survive<T>(&mut self, result: Result<T, Panicked>) -> Option<T> {
        if result.is_err() {
            self.end(EndReason::Panicked);
            self.is_over = true;
        }
        result.ok()
    }

    /// For tests: from now on a library seems to panic.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    pub fn inject_fault(&mut self, fault: Fault) {
        match fault {
            Fault::Session => self.has_fault = true,
            Fault::Parser => self.checks.has_fault = true,
        }
    }

    /// Lets str0m, which the server has for data channels alone, believe in a path: it hears one check, made up here, and no other.
    /// So however many addresses the peer has, and however often it restarts ICE, str0m remembers nothing of it.
    fn stand_in_for_ice(&mut self) {
        let nobody = Remote { addr: made_up_address(false), tcp: false };
        if self.has_data
            && let Some(check) = self.checks.made_up()
        {
            let _ = self.put_in(nobody, &check);
        }
    }

    /// False when str0m knows no such datagram.
    fn put_in(&mut self, remote: Remote, data: &[u8]) -> bool {
        let now = self.now;
        match self.call(|below| below.handle_datagram(now, remote, data)) {
            Some(Err(error)) => self.end(EndReason::Failed(error)),
            Some(Ok(is_known)) => return is_known,
            None => {}
        }
        true
    }

    fn handle_dtls(&mut self, now: Instant, remote: Remote, data: &[u8]) -> Result<Received, Refused> {
        if !self.reach.knows(remote) {
            return Err(Refused::NotAuthentic);
        }
        let is_in_use = self.state == State::Connected && self.media_remote() == Some(remote);
        if !is_in_use && !self.reach.is_proved(now, remote) {
            if self.held.len() >= HELD_MAX || self.state != State::Handshaking {
                return Err(Refused::NotProved);
            }
            self.held.push((remote, data.into()));
            return Ok(Received::Handshake);
        }
        if self.is_server {
            self.dtls_remote = Some(remote);
        }
        let error = match self.call(|below| below.handle_datagram(now, remote, data)) {
            Some(Ok(true)) => return Ok(Received::Handshake),
            Some(Err(error)) => error,
            Some(Ok(false)) | None => return Err(Refused::BadDtls),
        };
        // dimpl drops what does not decrypt or makes no sense; after an error the handshake is over. Once keys are there, only
        // a goodbye may come, so nobody who forges what else there is ends anything.
        if self.seam.keys.get() == Some(&Err(CertificateRefused)) {
            self.end(EndReason::CertificateRefused);
        } else if self.state == State::Handshaking {
            self.end(EndReason::Failed(error));
        }
        Err(Refused::BadDtls)
    }

    /// Does what is due: checks, DTLS flights that were not answered, the end of a handshake that takes too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.wake(now);
        if self.state != State::Ended
            && let Some(Err(error)) = self.call(|below| below.handle_timeout(now))
        {
            self.end(EndReason::Failed(error));
        }
        self.see_to_consent();
    }

    /// As a client, takes one of the server's ("candidate:…"). What cannot be read (a protocol of tomorrow, a host name of mDNS)
    /// is a candidate less, not an error.
    pub fn add_candidate(&mut self, text: &str) {
        if let Ok(candidate) = IceCandidate::from_sdp_string(text) {
            self.call_str0m(|rtc| rtc.add_remote_candidate(candidate));
        }
    }

    /// The peer has data channels and takes messages so long; the channels are ours to open, or its.
    pub(crate) fn start_channels(&mut self, peer_takes: usize, are_ours: bool) {
        if self.channels.is_none() && self.has_data {
            let is_client = self.is_dtls_client;
            self.channels = self.call_str0m(|rtc| Channels::start(rtc, peer_takes, are_ours, is_client));
            self.seam.let_data_in();
        }
    }

    /// Sends a message on one of the room's data channels; `poll` gives what goes out.
    ///
    /// # Errors
    /// What cannot be sent is not kept.
    pub fn send_data(&mut self, now: Instant, delivery: Delivery, data: &[u8]) -> Result<(), DataRefused> {
        self.handle_timeout(now);
        let Some(mut channels) = self.channels.take() else { return Err(DataRefused::NotOpen) };
        let sent = match self.state {
            State::Connected => self.call_str0m(|rtc| channels.send(rtc, delivery, data)),
            State::Handshaking | State::DtlsDone | State::Ended => None,
        };
        self.channels = Some(channels);
        let event = sent.unwrap_or(Err(DataRefused::NotOpen))?;
        self.queue.extend(event.map(Output::Channel));
        Ok(())
    }

    /// What the peer sends by its data channels waits from now on, and it has to wait with more, or all of it comes; `poll` gives it.
    pub fn hold_data(&mut self, now: Instant, on: bool) {
        self.seam.hold_data(on);
        self.handle_timeout(now);
    }

    fn handle_channel(&mut self, event: Event) {
        let Some(mut channels) = self.channels.take() else { return };
        let output = self.call_str0m(|rtc| match event {
            Event::ChannelOpen(id, label) => channels.handle_open(rtc, id, &label),
            Event::ChannelClose(id) => channels.handle_close(id),
            Event::ChannelData(message) => channels.handle_data(message.id, message.data, !message.binary),
            Event::ChannelBufferedAmountLow(id) => channels.handle_low(id),
            _ => None,
        });
        self.channels = Some(channels);
        self.messages += 1;
        self.queue.extend(output.flatten().map(Output::Channel));
    }

    /// Says goodbye: `poll` gives the DTLS close_notify to send. Where there is none, `Ended`.
    pub fn close(&mut self) {
        self.outputs = 0;
        if self.state != State::Ended && self.call(Below::close).is_some_and(|closed| closed.is_err()) {
            self.end(EndReason::Closed);
        }
    }

    /// What is next. `Timeout` comes when there is nothing else, and after `OUTPUTS_MAX` whatever there is.
    pub fn poll(&mut self) -> Output {
        loop {
            if let Some(output) = self.queue.pop_front() {
                return output;
            }
            if self.messages >= MESSAGES_MAX && !self.is_over {
                return Output::Timeout(self.now);
            }
            if self.outputs >= OUTPUTS_MAX || self.is_over {
                if self.state == State::Ended {
                    return Output::Timeout(self.now + AT_REST);
                }
                self.end(EndReason::Failed("it never comes to rest".into()));
                continue;
            }
            self.outputs += 1;
            let now = self.now;
            // Who has panicked has ended, and says so next.
            let Some(said) = self.call(|below| below.poll(now)) else { continue };
            match said {
                Ok(Said::Datagram { to, data }) => {
                    if let Some(remote) = self.destination(to, &data) {
                        return Output::Transmit { remote, data };
                    }
                }
                Ok(Said::Connected) if self.state == State::Handshaking => self.state.enter(State::DtlsDone),
                Ok(Said::Connected) => {}
                Ok(Said::Closed) => self.end(EndReason::Closed),
                Ok(Said::Channel(event)) => self.handle_channel(event),
                Ok(Said::Rest(_)) if self.state == State::DtlsDone => self.connect(),
                Ok(Said::Rest(at)) => return self.ask().unwrap_or_else(|| self.rest(at)),
                Err(error) => self.end(EndReason::Failed(error)),
            }
        }
    }

    /// Where a datagram from below goes, which would have it go to `to`; `None` for nowhere.
    fn destination(&mut self, to: Option<Remote>, data: &[u8]) -> Option<Remote> {
        match data.first() {
            // str0m would send it to where the last check came from that nominates.
            Some(20..=63) if self.is_server => self.media_remote(),
            Some(20..=63) => {
                self.dtls_remote = to;
                to
            }
            // The answer to a check that nobody has sent.
            Some(0..=3) if self.is_server => None,
            // The rule that keeps nonces unique: no media ever comes from here.
            Some(128..=191) => None,
            _ => to,
        }
    }

    /// The next request to an address that is to be proved.
    fn ask(&mut self) -> Option<Output> {
        if self.state == State::Ended {
            return None;
        }
        let (remote, transaction) = self.reach.poll_request(self.now)?;
        Some(Output::Transmit { remote, data: self.checks.request(transaction)? })
    }

    fn rest(&mut self, at: Instant) -> Output {
        if self.state == State::Ended {
            self.is_over = true;
            return Output::Timeout(self.now + AT_REST);
        }
        let in_use = self.media_remote().filter(|_| self.is_server && self.state == State::Connected);
        let moves_at = in_use.filter(|_| in_use != self.media_at).map(|_| self.moves.next_at(MOVES));
        let asks_at = self.reach.poll_timeout(self.now, in_use);
        Output::Timeout([moves_at, asks_at].into_iter().flatten().fold(at, Instant::min))
    }

    /// Where to send DTLS and media: an address that is proved, on the server's side.
    fn media_remote(&self) -> Option<Remote> {
        self.nomination.remote().or(self.dtls_remote)
    }

    fn connect(&mut self) {
        match (self.seam.keys.get().cloned(), self.media_remote()) {
            (Some(Ok(keys)), Some(remote)) => {
                self.state.enter(State::Connected);
                self.media_at = Some(remote);
                self.queue.push_back(Output::Connected { keys, remote });
            }
            _ => self.end(EndReason::NoSrtp),
        }
    }

    fn end(&mut self, reason: EndReason) {
        if self.state != State::Ended {
            self.state.enter(State::Ended);
            self.queue.push_back(Output::Ended(reason));
        }
    }
}
