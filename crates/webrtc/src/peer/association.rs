//! DTLS without str0m, for a server whose peer has no data channels. Of str0m such a one would use nothing else, and its ICE, SCTP
//! and media are four fifths of a session's memory.
//!
//! In: DTLS datagrams and time. Out: datagrams, and how far it is (`Said`). The keys appear in the session's `Seam`.

use std::time::{Duration, Instant};

use str0m::crypto::dtls::{DtlsInstance, DtlsOutput};
use str0m::crypto::{Fingerprint, Sha256Provider};

use super::below::Said;
use crate::context::Instance;

/// The DTLS association of one session.
pub(super) struct Association {
    dtls: Instance,
    sha256: &'static dyn Sha256Provider,
    /// Of the certificate that the peer has to have.
    expected: Option<Fingerprint>,
    /// It has that one.
    is_verified: bool,
    is_started: bool,
    progress: Progress,
    timeout: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Handshaking,
    /// Both sides have finished, and that is yet to be said.
    Finished,
    /// It was said.
    Done,
    /// Nothing goes out any more, whatever dimpl still has: the peer may be another one than was described.
    Failed,
}

/// Room for what dimpl gives: a datagram of ours, of `context::DTLS_MTU`; the peer's certificate, or what is within one record,
/// neither of which is longer (`vendor/README.md`).
const OUTPUT_MAX: usize = 2_000;

/// When to be asked again where nothing is due.
const NOTHING_DUE: Duration = Duration::from_secs(3_600);

impl Association {
    pub fn new(dtls: Instance, sha256: &'static dyn Sha256Provider) -> Self {
        let progress = Progress::Handshaking;
        Association { dtls, sha256, expected: None, is_verified: false, is_started: false, progress, timeout: None }
    }

    /// The peer's certificate has to have this fingerprint.
    pub fn expect(&mut self, fingerprint: Fingerprint) {
        self.expected = Some(fingerprint);
    }

    /// Takes part from now on, as a client by saying hello. To begin again changes nothing.
    pub fn start(&mut self, now: Instant, is_client: bool) -> Result<(), String> {
        if std::mem::replace(&mut self.is_started, true) {
            return Ok(());
        }
        self.dtls.set_active(is_client);
        self.dtls.handle_timeout(now).map_err(said)
    }

    /// Takes a datagram. What comes before the start is dropped, as if it were lost.
    pub fn handle_packet(&mut self, packet: &[u8]) -> Result<(), String> {
        if !self.is_started {
            return Ok(());
        }
        self.dtls.handle_packet(packet).map_err(said)
    }

    /// Repeats a flight that was not answered, where that is due. After an error it is over.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), String> {
        if self.timeout.take_if(|at| *at <= now).is_none() {
            return Ok(());
        }
        self.dtls.handle_timeout(now).map_err(said).inspect_err(|_| self.progress = Progress::Failed)
    }

    /// Says goodbye: `poll` gives what is to be sent.
    pub fn close(&mut self) -> Result<(), String> {
        self.dtls.close().map_err(said)
    }

    /// What is next; after an error, which ends the session, there is nothing.
    pub fn poll(&mut self, now: Instant) -> Result<Said, String> {
        if !self.is_started || self.progress == Progress::Failed {
            return Ok(Said::Rest(now + NOTHING_DUE));
        }
        self.next().inspect_err(|_| self.progress = Progress::Failed)
    }

    fn next(&mut self) -> Result<Said, String> {
        let mut buf = [0; OUTPUT_MAX];
        loop {
            match self.dtls.poll_output(&mut buf) {
                DtlsOutput::Packet(packet) => return Ok(Said::Datagram { to: None, data: packet.into() }),
                // It comes with the keys once more, and with what is not let in.
                DtlsOutput::Connected if self.progress == Progress::Handshaking => self.progress = Progress::Finished,
                DtlsOutput::PeerCert(certificate) => self.verify(certificate)?,
                DtlsOutput::CloseNotify => {
                    self.close()?;
                    return Ok(Said::Closed);
                }
                DtlsOutput::Timeout(_) if self.progress == Progress::Finished => {
                    self.progress = Progress::Done;
                    return if self.is_verified { Ok(Said::Connected) } else { Err("no certificate".into()) };
                }
                DtlsOutput::Timeout(at) => {
                    self.timeout = Some(at);
                    return Ok(Said::Rest(at));
                }
                DtlsOutput::BufferTooSmall { needed } => return Err(format!("an output of {needed} bytes")),
                DtlsOutput::Connected | DtlsOutput::KeyingMaterial(..) | DtlsOutput::ApplicationData(_) => {}
                other => return Err(format!("{other:?} of DTLS")),
            }
        }
    }

    /// Holds the peer's certificate against what its description says (RFC 8122 §5). Descriptions with another hash than SHA-256
    /// are refused where they are read.
    fn verify(&mut self, certificate: &[u8]) -> Result<(), String> {
        let digest = self.sha256.sha256(certificate);
        let expected = self.expected.as_ref().filter(|expected| expected.hash_func == "sha-256");
        self.is_verified = expected.is_some_and(|expected| expected.bytes == digest);
        if self.is_verified { Ok(()) } else { Err("the certificate's fingerprint is another one".into()) }
    }
}

fn said(error: impl std::fmt::Display) -> String {
    format!("DTLS: {error}")
}
