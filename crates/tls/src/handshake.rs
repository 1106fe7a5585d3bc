//! A server's handshake.
//!
//! In: what a connection brings. Out: what to answer, until it is done.
//! Cost: what rustls takes, and up to `INCOMING_MAX` for what came; a signature, which is most of it.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use wire::RECORD_MAX;

use crate::protect::Protect;
use crate::records::Records;

/// What may wait of what came: one record, and what came behind it with the same read.
const INCOMING_MAX: usize = 2 * RECORD_MAX;

/// A handshake that goes on.
pub struct Handshake {
    connection: UnbufferedServerConnection,
    incoming: Vec<u8>,
    received: Vec<u8>,
    is_done: bool,
}

/// A connection whose handshake is over.
#[derive(Debug)]
pub struct Established {
    /// What protects it from now on.
    pub records: Records,
    /// What came with the handshake's end, as it is meant.
    pub received: Vec<u8>,
    /// The beginning of a record that came behind it.
    pub sealed: Vec<u8>,
    /// What both sides want to speak (ALPN, RFC 7301). `None`: the client did not say.
    pub protocol: Option<Vec<u8>>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// What rustls says of what came.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// More came than a handshake has.
    #[error("more than {INCOMING_MAX} bytes that are no record")]
    TooLong,
    /// The client ended it.
    #[error("it was ended in its middle")]
    Ended,
    /// It is not over.
    #[error("it is not over")]
    Unfinished,
}

impl Handshake {
    /// One more.
    ///
    /// # Errors
    /// What rustls says of the configuration.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, HandshakeError> {
        debug_assert!(config.enable_secret_extraction, "who does the records has to have the keys");
        let connection = UnbufferedServerConnection::new(config)?;
        Ok(Handshake { connection, incoming: Vec::new(), received: Vec::new(), is_done: false })
    }

    /// Takes what came; what is to be sent is put behind what stands in `out`, also with an error. True: it is over.
    ///
    /// # Errors
    /// When there will be no connection.
    pub fn handle(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<bool, HandshakeError> {
        if self.incoming.len() + bytes.len() > INCOMING_MAX {
            return Err(HandshakeError::TooLong);
        }
        self.incoming.extend_from_slice(bytes);
        loop {
            let UnbufferedStatus { mut discard, state, .. } = self.connection.process_tls_records(&mut self.incoming);
            let goes_on = match state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(out, |room| data.encode(room)).map(|()| true),
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    Ok(true)
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    let mut result = Ok(true);
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                discard += record.discard;
                                self.received.extend_from_slice(record.payload);
                            }
                            Err(error) => result = Err(error.into()),
                        }
                    }
                    result
                }
                // Who says with the handshake's end that this was all has said what stands before it. Its connection ends
                // next, or is silent.
                Ok(
                    ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) | ConnectionState::PeerClosed,
                ) => Ok(false),
                // Nobody was told that early data is taken (RFC 8446 §4.2.10).
                Ok(_) => Err(HandshakeError::Ended),
                Err(error) => Err(error.into()),
            };
            self.incoming.drain(..discard);
            match goes_on {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.take_alert(out);
                    return Err(error);
                }
            }
        }
        self.is_done = !self.connection.is_handshaking();
        Ok(self.is_done)
    }

    /// What the client is told of an error.
    fn take_alert(&mut self, out: &mut Vec<u8>) {
        // One alert, and what may wait before it.
        for _ in 0..8 {
            match self.connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(out, |room| data.encode(room)).ok();
                }
                _ => return,
            }
        }
    }

    /// The connection.
    ///
    /// # Errors
    /// When the handshake is not over.
    pub fn finish(self) -> Result<Established, HandshakeError> {
        if !self.is_done {
            return Err(HandshakeError::Unfinished);
        }
        let protocol = self.connection.alpn_protocol().map(<[u8]>::to_vec);
        let (secrets, keys) = self.connection.dangerous_into_kernel_connection()?;
        let version = keys.protocol_version();
        let protect = |secrets| Protect::new(version, secrets).ok_or(rustls::Error::HandshakeNotComplete);
        let records = Records::new(protect(secrets.rx)?, protect(secrets.tx)?, keys);
        Ok(Established { records, received: self.received, sealed: self.incoming, protocol })
    }
}

/// Lets `write` put what it has behind what stands in `out`; it says how much room it needs.
fn encode(
    out: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), HandshakeError> {
    let start = out.len();
    out.resize(start + 1_024, 0);
    let mut written = write(&mut out[start..]);
    if let Err(EncodeError::InsufficientSize(needed)) = &written {
        out.resize(start + needed.required_size, 0);
        written = write(&mut out[start..]);
    }
    out.truncate(start + written.as_ref().map_or(0, |len| *len));
    written.map(drop).map_err(|error| rustls::Error::General(error.to_string()).into())
}
