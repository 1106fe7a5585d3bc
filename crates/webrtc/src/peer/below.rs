//! What does the work of libraries below a peer connection: str0m, or where nothing but DTLS is wanted, that alone.

use std::sync::Arc;
use std::time::Instant;

use str0m::net::Protocol;
use str0m::{Event, Rtc, RtcConfig};

use super::Remote;
use super::association::Association;
use super::made_up::{input, made_up_candidates};
use super::state::Kind;
use crate::Error;
use crate::answer::RemoteTransport;
use crate::channels::{BUFFERED_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::context::{Context, Seam};

/// It.
pub(super) enum Below {
    /// Some 10 KB, which is otherwise moved with each step to where the session stays, and kept twice when a table of these grows.
    Str0m(Box<Rtc>),
    /// The same of 3 KB.
    Dtls(Box<Association>),
}

/// What it says.
pub(super) enum Said {
    /// To be sent: STUN or DTLS. Where to only str0m says, and it counts for a client alone.
    Datagram { to: Option<Remote>, data: Box<[u8]> },
    /// DTLS is done, with the peer that was described.
    Connected,
    /// The peer has said goodbye.
    Closed,
    /// Of data channels.
    Channel(Event),
    /// Nothing more before that time.
    Rest(Instant),
}

impl Below {
    /// What such a session needs, and what it shares with us.
    pub fn new(
        context: &Context,
        now: Instant,
        kind: Kind,
        local: &str0m::IceCreds,
    ) -> Result<(Self, Arc<Seam>), Error> {
        let Kind { is_server, is_controlling, tcp, has_data } = kind;
        if is_server && !has_data {
            let (dtls, seam) = context.dtls(now)?;
            return Ok((Below::Dtls(Box::new(Association::new(dtls, context.crypto.sha256_provider))), seam));
        }
        let config = RtcConfig::new()
            .set_crypto_provider(context.crypto.clone())
            .set_dtls_cert((*context.certificate).clone())
            .set_local_ice_credentials(local.clone())
            .set_ice_lite(is_server)
            .set_rtp_mode(true)
            .set_sctp_max_message_size(MESSAGE_BYTES_MAX as u32)
            .set_sctp_max_buffered_amount(BUFFERED_BYTES_MAX)
            .clear_codecs()
            .clear_extension_map();
        let (mut rtc, seam) = context.with_seam(|| config.build(now));
        rtc.direct_api().set_ice_controlling(is_controlling);
        for candidate in made_up_candidates(is_server, tcp)? {
            rtc.add_local_candidate(candidate);
        }
        Ok((Below::Str0m(Box::new(rtc)), seam))
    }

    /// str0m, where there is one.
    pub fn str0m(&mut self) -> Option<&mut Rtc> {
        match self {
            Below::Str0m(rtc) => Some(rtc),
            Below::Dtls(_) => None,
        }
    }

    /// The peer is who its description says.
    pub fn expect(&mut self, remote: &RemoteTransport) {
        match self {
            Below::Str0m(rtc) => {
                let mut api = rtc.direct_api();
                api.set_remote_ice_credentials(remote.credentials.clone());
                api.set_remote_fingerprint(remote.fingerprint.clone());
            }
            Below::Dtls(association) => association.expect(remote.fingerprint.clone()),
        }
    }

    /// DTLS begins, as a client by saying hello.
    pub fn start_dtls(&mut self, now: Instant, is_client: bool) -> Result<(), String> {
        match self {
            Below::Str0m(rtc) => rtc.direct_api().start_dtls(is_client).map_err(|error| error.to_string()),
            Below::Dtls(association) => association.start(now, is_client),
        }
    }

    /// Takes a STUN or DTLS datagram, or DTLS alone where there is nothing else; false when str0m knows no such.
    pub fn handle_datagram(&mut self, now: Instant, remote: Remote, data: &[u8]) -> Result<bool, String> {
        match self {
            Below::Str0m(rtc) => {
                let Some(input) = input(now, remote, data) else { return Ok(false) };
                rtc.handle_input(input).map_err(|error| error.to_string())?;
            }
            Below::Dtls(association) => association.handle_packet(data)?,
        }
        Ok(true)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), String> {
        match self {
            Below::Str0m(rtc) => rtc.handle_input(str0m::Input::Timeout(now)).map_err(|error| error.to_string()),
            Below::Dtls(association) => association.handle_timeout(now),
        }
    }

    /// Says goodbye.
    pub fn close(&mut self) -> Result<(), String> {
        match self {
            Below::Str0m(rtc) => rtc.close().map_err(|error| error.to_string()),
            Below::Dtls(association) => association.close(),
        }
    }

    /// What is next. After an error the session is over.
    pub fn poll(&mut self, now: Instant) -> Result<Said, String> {
        match self {
            Below::Str0m(rtc) => poll_str0m(rtc),
            Below::Dtls(association) => association.poll(now),
        }
    }
}

fn poll_str0m(rtc: &mut Rtc) -> Result<Said, String> {
    Ok(match rtc.poll_output().map_err(|error| error.to_string())? {
        str0m::Output::Transmit(transmit) => {
            let to = Remote { addr: transmit.destination, tcp: transmit.proto != Protocol::Udp };
            Said::Datagram { to: Some(to), data: transmit.contents.to_vec().into() }
        }
        str0m::Output::Event(Event::Connected) => Said::Connected,
        str0m::Output::Event(Event::Closed) => Said::Closed,
        str0m::Output::Event(event) => Said::Channel(event),
        str0m::Output::Timeout(at) => Said::Rest(at),
    })
}
