//! Records of a connection whose handshake is over.
//!
//! In and out: as `wire::Cipher` has it. Data is opened where it was received, and sealed where it waits.
//! Cost: no allocation; some 2 KB per connection, most of it keys as AES wants them.
//! Source: RFC 8446 §4.6.3 (key update), §5 (records), §6 (alerts); RFC 5246 §7.2 and RFC 5746 §4.4 (TLS 1.2).

use std::fmt;

use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use wire::{Cipher, CipherError, Opened};

use crate::protect::{CONTENT_MAX, HEADER_LEN, Layout, Protect, RecordError, content};

/// A server's end of a connection.
pub struct Records {
    rx: Protect,
    tx: Protect,
    /// Makes further keys.
    keys: KernelConnection<ServerConnectionData>,
    /// What is told the other side next, by itself.
    alert: Option<Alert>,
    /// The other side wants a new key of ours before the next data.
    owes_key: bool,
    /// Records that may come and mean nothing yet: a key costs as much as some twenty records.
    patience: u32,
}

/// Records without a meaning that may come at once, such as warnings and new keys, and for how many others there is one more.
const PATIENCE_MAX: u32 = 32;
const RECORDS_PER_PATIENCE: u32 = 1_000;

/// What alerts say of a connection (RFC 8446 §6, RFC 5246 §7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alert {
    CloseNotify = 0,
    UnexpectedMessage = 10,
    BadRecordMac = 20,
    RecordOverflow = 22,
    DecodeError = 50,
    InternalError = 80,
    NoRenegotiation = 100,
}

/// What alerts of the others may say and the connection goes on: that it ends, or that its user did (RFC 8446 §6.1).
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;

const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// "Here is a new key" (RFC 8446 §4.6.3): type, length of three bytes, and whether one of ours is wanted.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];

impl Records {
    pub(crate) fn new(rx: Protect, tx: Protect, keys: KernelConnection<ServerConnectionData>) -> Self {
        let patience = PATIENCE_MAX * RECORDS_PER_PATIENCE;
        Records { rx, tx, keys, alert: None, owes_key: false, patience }
    }

    #[cfg(test)]
    pub(crate) fn tx(&mut self) -> &mut Protect {
        &mut self.tx
    }

    /// Handles one whole record. Data is left at `buf[plain..]`.
    fn open_one(&mut self, buf: &mut [u8], range: std::ops::Range<usize>, opened: &mut Opened) -> Result<(), Alert> {
        let is_tls13 = self.rx.layout == Layout::Tls13;
        if is_tls13 && buf[range.start] != content::DATA {
            return Err(Alert::UnexpectedMessage);
        }
        let (kind, plain) = self.rx.open(&mut buf[range.clone()]).map_err(|error| match error {
            RecordError::Malformed => Alert::DecodeError,
            RecordError::Changed => Alert::BadRecordMac,
            RecordError::TooLong => Alert::RecordOverflow,
        })?;
        let plain = range.start + plain.start..range.start + plain.end;
        match kind {
            content::DATA => {
                self.patience = (self.patience + 1).min(PATIENCE_MAX * RECORDS_PER_PATIENCE);
                let len = plain.len();
                buf.copy_within(plain, opened.plain);
                opened.plain += len;
                Ok(())
            }
            content::ALERT => self.handle_alert(&buf[plain], opened),
            content::HANDSHAKE if is_tls13 => self.handle_key_update(&buf[plain]),
            content::HANDSHAKE => self.refuse_renegotiation(opened),
            _ => Err(Alert::UnexpectedMessage),
        }
    }

    /// An error without an answer is a `CloseNotify`.
    fn handle_alert(&mut self, alert: &[u8], opened: &mut Opened) -> Result<(), Alert> {
        let &[level, what] = alert else { return Err(Alert::DecodeError) };
        match what {
            CLOSE_NOTIFY => opened.has_ended = true,
            USER_CANCELED => self.lose_patience()?,
            // All others end the connection in TLS 1.3, whatever they call themselves.
            _ if level == WARNING && self.rx.layout != Layout::Tls13 => self.lose_patience()?,
            _ => return Err(Alert::CloseNotify),
        }
        Ok(())
    }

    fn handle_key_update(&mut self, message: &[u8]) -> Result<(), Alert> {
        let wants_ours = match message.strip_prefix(&KEY_UPDATE) {
            Some([wants_ours @ 0..=1]) => *wants_ours == 1,
            _ => return Err(Alert::UnexpectedMessage),
        };
        self.lose_patience()?;
        let secrets = self.keys.update_rx_secret().map_err(|_| Alert::InternalError)?;
        self.rx = Protect::new(self.keys.protocol_version(), secrets).ok_or(Alert::InternalError)?;
        // One answers all that came before it.
        self.owes_key |= wants_ours;
        Ok(())
    }

    /// Nobody needs it, and it was a way in. Who asks is told so once.
    fn refuse_renegotiation(&mut self, opened: &mut Opened) -> Result<(), Alert> {
        self.lose_patience()?;
        if self.alert.replace(Alert::NoRenegotiation).is_none() {
            opened.has_output = true;
        }
        Ok(())
    }

    fn lose_patience(&mut self) -> Result<(), Alert> {
        self.patience = self.patience.checked_sub(RECORDS_PER_PATIENCE).ok_or(Alert::UnexpectedMessage)?;
        Ok(())
    }

    /// A new key of ours, told under the old one.
    fn update_key(&mut self, out: &mut Vec<u8>) -> Result<(), CipherError> {
        let [kind, a, b, c] = KEY_UPDATE;
        self.tx.seal(content::HANDSHAKE, &[kind, a, b, c, 0], out).ok_or(CipherError)?;
        let secrets = self.keys.update_tx_secret().map_err(|_| CipherError)?;
        self.tx = Protect::new(self.keys.protocol_version(), secrets).ok_or(CipherError)?;
        self.owes_key = false;
        Ok(())
    }

    fn tell(&mut self, level: u8, alert: Alert, out: &mut Vec<u8>) {
        if !self.tx.is_used_up() {
            // What cannot be said is not waited for.
            self.tx.seal(content::ALERT, &[level, alert as u8], out);
        }
    }
}

impl Cipher for Records {
    fn open(&mut self, buf: &mut [u8]) -> Result<Opened, CipherError> {
        let mut opened = Opened { record_len: HEADER_LEN, ..Opened::default() };
        while let Some(&[_, major, _, high, low]) = buf[opened.used..].first_chunk::<HEADER_LEN>() {
            let body_len = usize::from(u16::from_be_bytes([high, low]));
            if major != 3 || body_len > self.rx.body_max() {
                self.alert = Some(if major != 3 { Alert::DecodeError } else { Alert::RecordOverflow });
                return Err(CipherError);
            }
            opened.record_len = HEADER_LEN + body_len;
            let end = opened.used + opened.record_len;
            if end > buf.len() {
                return Ok(opened);
            }
            if let Err(alert) = self.open_one(buf, opened.used..end, &mut opened) {
                self.alert = Some(alert).filter(|alert| *alert != Alert::CloseNotify);
                return Err(CipherError);
            }
            (opened.used, opened.record_len) = (end, HEADER_LEN);
            if opened.has_ended {
                break;
            }
        }
        Ok(opened)
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
        for part in plain.chunks(CONTENT_MAX) {
            // One record is kept for the news of the next key.
            if self.owes_key || self.tx.is_nearly_used_up() {
                if self.tx.layout != Layout::Tls13 {
                    return Err(CipherError);
                }
                self.update_key(out)?;
            }
            self.tx.seal(content::DATA, part, out).ok_or(CipherError)?;
        }
        Ok(())
    }

    fn poll_output(&mut self, out: &mut Vec<u8>) {
        if let Some(alert) = self.alert.take() {
            let level = if alert == Alert::NoRenegotiation { WARNING } else { FATAL };
            self.tell(level, alert, out);
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.tell(WARNING, Alert::CloseNotify, out);
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("layout", &self.rx.layout).finish_non_exhaustive()
    }
}
