//! One client's connection to the server: bytes, with or without TLS around them, and the frames in what comes.
//!
//! In: bytes as they were received, and frames to be sent. Out: frames, and bytes to be sent, which wait here for room.
//! Source: RFC 8656 §12.5 for the frames; RFC 8446 is rustls'.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use wire::framing::{Frame, Framing};
use wire::{LinkId, Outbox};

/// The longest frame that is understood.
const FRAME_MAX: usize = 1 << 16;

/// Bytes that wait at once for the outbox: who has more has to wait.
const WAITING_MAX: usize = 16 << 10;

/// A connection.
pub(super) struct Connection {
    pub(super) link: LinkId,
    tls: Option<Box<ClientConnection>>,
    /// What came and is no whole frame yet, behind what was taken as frames.
    came: Vec<u8>,
    taken: usize,
    waiting: Vec<u8>,
}

impl Connection {
    /// A connection that is there; TLS has yet to say its first word (`write`, also of nothing).
    pub(super) fn new(link: LinkId, tls: Option<ClientConnection>) -> Self {
        Connection { link, tls: tls.map(Box::new), came: Vec::new(), taken: 0, waiting: Vec::new() }
    }

    /// Takes what the connection brought.
    ///
    /// # Errors
    /// When the other side does not speak TLS as it should.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.came.drain(..std::mem::take(&mut self.taken));
        let Some(tls) = &mut self.tls else {
            self.came.extend_from_slice(bytes);
            return Ok(());
        };
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes).context("read TLS")?;
            let state = tls.process_new_packets().context("TLS")?;
            let end = self.came.len();
            self.came.resize(end + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut self.came[end..]).context("read what was decrypted")?;
        }
        self.encrypt()
    }

    /// The next frame of what came.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn next_frame(&mut self) -> Result<Option<&[u8]>> {
        match Framing::Turn.next_frame(&self.came[self.taken..], FRAME_MAX) {
            Frame::Datagram { range, end } => {
                let start = self.taken;
                self.taken += end;
                Ok(Some(&self.came[start + range.start..start + range.end]))
            }
            Frame::Incomplete { .. } => Ok(None),
            Frame::Invalid => bail!("neither STUN nor ChannelData"),
        }
    }

    /// Whether more may be written.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// Adds frames, each with its padding.
    ///
    /// # Errors
    /// When TLS does not take them.
    pub(super) fn write(&mut self, frames: &[u8]) -> Result<()> {
        let Some(tls) = &mut self.tls else {
            self.waiting.extend_from_slice(frames);
            return Ok(());
        };
        tls.writer().write_all(frames).context("encrypt")?;
        self.encrypt()
    }

    /// Takes what TLS has to say.
    fn encrypt(&mut self) -> Result<()> {
        while let Some(tls) = self.tls.as_mut().filter(|tls| tls.wants_write()) {
            tls.write_tls(&mut self.waiting).context("write TLS")?;
        }
        Ok(())
    }

    /// Hands over what waits. False when there is no room for it.
    pub(super) fn flush(&mut self, out: &mut Outbox) -> bool {
        if self.waiting.is_empty() {
            return true;
        }
        let is_taken = out.push_bytes(self.link, &self.waiting);
        if is_taken {
            self.waiting.clear();
        }
        is_taken
    }
}

/// TLS for clients who take every certificate: it is the server's speed that is looked at, not who it is.
///
/// # Errors
/// When there is no TLS to be had.
pub fn tls_config() -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let config = config.context("TLS")?.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(provider)));
    Ok(Arc::new(config.with_no_client_auth()))
}

/// Takes every certificate, but not a handshake that its key did not sign.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use wire::LinkKind;

    use super::*;

    #[test]
    fn frames_come_out_whole_however_their_bytes_come_in() {
        let frames = [&[0x40, 0, 0, 1, 9, 0, 0, 0][..], &[0x40, 0, 0, 4, 1, 2, 3, 4]].concat();
        let mut connection = Connection::new(LinkId::new(LinkKind::Stream, 0, 0), None);
        let mut found = Vec::new();
        for byte in frames {
            connection.take(&[byte]).unwrap();
            while let Some(frame) = connection.next_frame().unwrap() {
                found.push(frame.to_vec());
            }
        }
        assert_eq!(found, [vec![0x40, 0, 0, 1, 9], vec![0x40, 0, 0, 4, 1, 2, 3, 4]]);
        connection.take(&[0xff]).unwrap();
        assert!(connection.next_frame().is_err());
    }

    #[test]
    fn what_finds_no_room_waits() {
        let mut connection = Connection::new(LinkId::new(LinkKind::Stream, 0, 0), None);
        let mut out = Outbox::new(2_000);
        connection.write(&[7; 1_500]).unwrap();
        assert!(connection.flush(&mut out));
        connection.write(&[8; 1_000]).unwrap();
        assert!(!connection.flush(&mut out) && connection.has_room());
        out.clear();
        assert!(connection.flush(&mut out));
        assert_eq!(out.pieces().iter().map(wire::Piece::len_bytes).sum::<usize>(), 1_000);
    }
}
