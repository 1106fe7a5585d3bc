//! Peer connections whose media sections change over their life: who publishes and gets what in a room.
//!
//! In: offers of the peer, or answers to ours; what it shall get. Out: answers or offers, and the sections as they stand.
//! Cost: a description is read in a pass, and each section chosen anew; some 20 µs for each section of Chromium's.
//! Source: RFC 8829 (JSEP), RFC 8843 (BUNDLE), RFC 8830 (msid), RFC 8841 (data channels).
//!
//! All offers of a connection come from one side. Where the peer makes them, what is sent waits for free sections in them; where
//! we do, an idle section is used again before there is another. Either way we are ICE-lite and the DTLS server, and a session
//! has one certificate for good. A description that cannot be used changes nothing.

mod answering;
mod client;
mod numbers;
mod offering;
mod slot;
mod spec;
mod text;

use std::time::Instant;

use str0m::IceCreds;
use str0m::crypto::Fingerprint;

use self::answering::{Known, check_fingerprint};
pub use self::client::ConferenceClient;
use self::numbers::Numbers;
use self::offering::Accepted;
use self::slot::{Row, Slot};
pub use self::spec::{ConferenceOptions, Described, Down, Section, Up, UpWish};
use crate::Error;
use crate::answer::RemoteTransport;
use crate::context::Context;
use crate::peer::Peer;
use crate::random;
use crate::sdp::CONFERENCE_SECTIONS_MAX;
use crate::write::Transport;

/// What the descriptions of one connection have said, beside its `Peer`.
#[derive(Debug)]
pub struct Conference {
    options: ConferenceOptions,
    slots: Vec<Slot>,
    wishes: Vec<UpWish>,
    wanted: Vec<Down>,
    ssrcs: Row,
    /// Of the session, and how many descriptions of ours there were (RFC 8829 §5.2.2).
    number: u64,
    version: u64,
    /// The peer's certificate, from its first description on.
    fingerprint: Option<Fingerprint>,
    offers: Option<Offers>,
}

/// Where we make the offers.
#[derive(Debug, Default)]
struct Offers {
    pending: Option<Pending>,
    numbers: Numbers,
    mids: u32,
    /// The next offer has other credentials.
    restarts: bool,
}

/// An offer that waits for its answer.
#[derive(Debug)]
struct Pending {
    slots: Vec<Slot>,
    left_out: Vec<u64>,
    /// Of a restart.
    local: Option<IceCreds>,
}

impl Conference {
    /// A connection on which the peer makes all offers. Nothing is sent before the first of them is answered.
    ///
    /// # Errors
    /// `SetUp`, where the system has no random numbers.
    pub fn answerer(context: &Context, now: Instant, options: ConferenceOptions) -> Result<(Peer, Conference), Error> {
        Conference::new(context, now, options, None)
    }

    /// A connection on which we make all offers.
    ///
    /// # Errors
    /// As for `answerer`.
    pub fn offerer(context: &Context, now: Instant, options: ConferenceOptions) -> Result<(Peer, Conference), Error> {
        Conference::new(context, now, options, Some(Offers::default()))
    }

    fn new(
        context: &Context,
        now: Instant,
        options: ConferenceOptions,
        offers: Option<Offers>,
    ) -> Result<(Peer, Conference), Error> {
        let peer = Peer::for_conference(context, now, options.wants_data)?;
        let conference = Conference {
            options,
            slots: Vec::new(),
            wishes: Vec::new(),
            wanted: Vec::new(),
            ssrcs: Row::new(u32::from_be_bytes(random::random()?)),
            number: random::session_number()?,
            version: 0,
            fingerprint: None,
            offers,
        };
        Ok((peer, conference))
    }

    /// What the peer shall get from now on, all of it; the first come first to free sections. It is so with the next description
    /// of ours; what stays as it is keeps its section and its SSRCs.
    ///
    /// # Errors
    /// `TooMany`, above `CONFERENCE_SECTIONS_MAX`.
    pub fn set_downs(&mut self, wanted: Vec<Down>) -> Result<(), Error> {
        check_count(wanted.len(), "down tracks")?;
        self.wanted = wanted;
        Ok(())
    }

    /// How tracks that the peer publishes are to be taken, all of them: with the next answer, so each is said before the offer
    /// that has it.
    ///
    /// # Errors
    /// `TooMany`, above `CONFERENCE_SECTIONS_MAX`.
    pub fn set_ups(&mut self, wishes: Vec<UpWish>) -> Result<(), Error> {
        check_count(wishes.len(), "wishes for tracks")?;
        self.wishes = wishes;
        Ok(())
    }

    /// The sections that were not refused.
    pub fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = self.slots.iter().filter_map(Slot::section).collect();
        // They are kept for as long as the connection is there.
        sections.shrink_to_fit();
        sections
    }

    /// Answers an offer of the peer. It may add sections, change their directions, give the place of one that was refused to
    /// another, and restart ICE by other credentials.
    ///
    /// # Errors
    /// What is wrong with the offer; `TooManyRestarts`.
    pub fn answer(&mut self, peer: &mut Peer, now: Instant, offer: &str) -> Result<Described, Error> {
        if self.offers.is_some() {
            return Err(Error::Invalid { what: "the offer", why: "on this connection the server makes them" });
        }
        let known = Known { options: &self.options, slots: &self.slots, wishes: &self.wishes, wanted: &self.wanted };
        let mut ssrcs = self.ssrcs;
        let plan = answering::Plan::new(offer, &known, &mut ssrcs)?;
        let restarted = follow(peer, now, self.fingerprint.as_ref(), &plan.remote, None)?;
        let fingerprint = peer.fingerprint();
        let IceCreds { ufrag, pass: pwd } = peer.local_credentials();
        let transport = Transport { ufrag, pwd, fingerprint, setup: "passive" };
        let sdp = plan.write((self.number, self.version + 1), &transport, &known);
        let answering::Plan { slots, remote, data, unplaced, refused, .. } = plan;
        if let Some(peer_takes) = data {
            peer.start_channels(peer_takes, false);
        }
        (self.slots, self.ssrcs, self.fingerprint) = (slots, ssrcs, Some(remote.fingerprint));
        self.version += 1;
        Ok(Described { sdp, sections: self.sections(), unplaced, refused, restarted })
    }

    /// Makes an offer. `None` where nothing is new, and while one waits for its answer.
    ///
    /// # Errors
    /// `SetUp`, where the system has no random numbers.
    pub fn offer(&mut self, peer: &mut Peer) -> Result<Option<String>, Error> {
        let Some(offers) = self.offers.as_mut().filter(|offers| offers.pending.is_none()) else { return Ok(None) };
        let given = (&mut self.ssrcs, &mut offers.numbers, &mut offers.mids);
        let offering::Plan { slots, left_out, is_new } =
            offering::Plan::new(&self.options, &self.slots, &self.wanted, given);
        let restarts = std::mem::take(&mut offers.restarts) && self.fingerprint.is_some();
        if !is_new && !restarts {
            return Ok(None);
        }
        let local = if restarts { Some(random::credentials()?) } else { None };
        let fingerprint = peer.fingerprint();
        let IceCreds { ufrag, pass: pwd } = local.as_ref().unwrap_or(peer.local_credentials());
        let transport = Transport { ufrag, pwd, fingerprint, setup: "actpass" };
        self.version += 1;
        let plan = offering::Plan { slots, left_out, is_new };
        let sdp = plan.write((self.number, self.version), &transport, &self.options);
        offers.pending = Some(Pending { slots: plan.slots, left_out: plan.left_out, local });
        Ok(Some(sdp))
    }

    /// Takes the answer to our last offer. One that cannot be used changes nothing: the offer goes on waiting.
    ///
    /// # Errors
    /// What is wrong with the answer; `TooManyRestarts`.
    pub fn accept_answer(&mut self, peer: &mut Peer, now: Instant, answer: &str) -> Result<Described, Error> {
        let pending = self.offers.as_ref().and_then(|offers| offers.pending.as_ref());
        let Pending { slots, left_out, local } = pending.ok_or(Error::AnswerMismatch("no offer is pending"))?;
        let Accepted { slots, remote, is_dtls_client, data, refused } = Accepted::new(slots, answer)?;
        let ours = Ours { restart: local.clone(), is_dtls_client };
        let restarted = follow(peer, now, self.fingerprint.as_ref(), &remote, Some(ours))?;
        if let Some(peer_takes) = data {
            peer.start_channels(peer_takes, true);
        }
        let unplaced = left_out.clone();
        (self.slots, self.fingerprint) = (slots, Some(remote.fingerprint));
        self.offers.iter_mut().for_each(|offers| offers.pending = None);
        Ok(Described { sdp: String::new(), sections: self.sections(), unplaced, refused, restarted })
    }

    /// Whether an offer of ours waits for its answer.
    pub fn is_waiting(&self) -> bool {
        self.offers.as_ref().is_some_and(|offers| offers.pending.is_some())
    }

    /// Has the next offer restart ICE, where we make them. An answerer's peer restarts by itself.
    pub fn restart(&mut self) {
        if let Some(offers) = &mut self.offers {
            offers.restarts = true;
        }
    }
}

fn check_count(count: usize, what: &'static str) -> Result<(), Error> {
    let max = CONFERENCE_SECTIONS_MAX;
    if count > max { Err(Error::TooMany { what, max }) } else { Ok(()) }
}

/// What the answer to an offer of ours depends on.
struct Ours {
    /// The credentials that the offer had, where they were new.
    restart: Option<IceCreds>,
    /// The peer is the DTLS server.
    is_dtls_client: bool,
}

/// Has the peer's transport be as its description says: it begins with the first one, goes on, or restarts. True where it
/// restarted. `ours` is there where the description is an answer.
fn follow(
    peer: &mut Peer,
    now: Instant,
    before: Option<&Fingerprint>,
    remote: &RemoteTransport,
    ours: Option<Ours>,
) -> Result<bool, Error> {
    check_fingerprint(before, &remote.fingerprint)?;
    if before.is_none() {
        peer.begin(now, remote, ours.is_some_and(|ours| ours.is_dtls_client))?;
        return Ok(false);
    }
    let is_same = peer.remote_credentials() == Some(&remote.credentials);
    let local = match ours {
        None if is_same => return Ok(false),
        None => random::credentials()?,
        Some(Ours { restart: None, .. }) if is_same => return Ok(false),
        Some(Ours { restart: Some(local), .. }) if !is_same => local,
        Some(_) => {
            let why = "an answer restarts ICE where the offer does, and only there";
            return Err(Error::Invalid { what: "a=ice-ufrag", why });
        }
    };
    peer.restart(now, local, remote.credentials.clone())?;
    Ok(true)
}
