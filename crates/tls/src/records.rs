//! Records of a connection whose handshake is over.
//!
//! In and out: as `wire::Cipher` has it. Data is opened where it was received, and sealed where it waits.
//! Cost: no allocation; some 2 KB per connection, most of it keys as AES wants them.
//! Source: RFC 8446 §4.6.3 (key update), §5 (records), §6 (alerts); RFC 5246 §7.2 and RFC 5746 §4.4 (TLS 1.2).

use std::fmt;

use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use wire::{Cipher, CipherError, Handover, KernelKey, KernelStep, Opened};

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
    /// The kernel seals; `tx` only counts.
    kernel: Option<Kernel>,
}

/// What is known of the kernel's part.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    takes_keys: bool,
    /// The other side was told of the next key.
    has_told_key: bool,
    /// The other side is told that this was all, or why.
    is_over: bool,
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
        Records { rx, tx, keys, alert: None, owes_key: false, patience, kernel: None }
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
        self.tx.seal(content::HANDSHAKE, &key_update(), out).ok_or(CipherError)?;
        self.change_key()
    }

    fn change_key(&mut self) -> Result<(), CipherError> {
        let secrets = self.keys.update_tx_secret().map_err(|_| CipherError)?;
        self.tx = Protect::new(self.keys.protocol_version(), secrets).ok_or(CipherError)?;
        self.owes_key = false;
        Ok(())
    }

    /// Whether a new key of ours is due before the next data. One record is kept for the news of it.
    fn is_key_due(&self) -> bool {
        self.owes_key || self.tx.is_nearly_used_up()
    }

    fn tell(&mut self, alert: Alert, out: &mut Vec<u8>) {
        if !self.tx.is_used_up() {
            // What cannot be said is not waited for.
            self.tx.seal(content::ALERT, &[alert.level(), alert as u8], out);
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
            self.settle(out)?;
            self.tx.seal(content::DATA, part, out).ok_or(CipherError)?;
        }
        Ok(())
    }

    fn poll_output(&mut self, out: &mut Vec<u8>) {
        if let Some(alert) = self.alert.take() {
            self.tell(alert, out);
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.tell(Alert::CloseNotify, out);
    }

    fn handover(&mut self) -> Option<&mut dyn Handover> {
        Some(self)
    }
}

impl Handover for Records {
    fn settle(&mut self, out: &mut Vec<u8>) -> Result<(), CipherError> {
        debug_assert!(self.kernel.is_none(), "the kernel seals");
        match self.is_key_due() {
            true if self.tx.layout != Layout::Tls13 => Err(CipherError),
            true => self.update_key(out),
            false => Ok(()),
        }
    }

    fn sending_key(&self) -> KernelKey {
        self.tx.kernel_key()
    }

    fn take_over(&mut self, takes_keys: bool) {
        self.kernel = Some(Kernel { takes_keys, has_told_key: false, is_over: false });
    }

    fn poll_step(&mut self) -> Result<Option<KernelStep>, CipherError> {
        let (is_tls13, is_key_due) = (self.tx.layout == Layout::Tls13, self.is_key_due());
        let kernel = self.kernel.as_mut().ok_or(CipherError)?;
        // Whatever follows the news is sealed with the next key.
        if std::mem::take(&mut kernel.has_told_key) {
            self.change_key()?;
            return Ok(Some(KernelStep::Key(self.tx.kernel_key())));
        }
        if let Some(alert) = self.alert.take() {
            kernel.is_over |= alert != Alert::NoRenegotiation;
            let content = Box::new([alert.level(), alert as u8]);
            return Ok(Some(KernelStep::Record { kind: content::ALERT, content }));
        }
        if kernel.is_over || !is_key_due {
            return Ok(None);
        }
        if !is_tls13 || !kernel.takes_keys {
            return Err(CipherError);
        }
        kernel.has_told_key = true;
        Ok(Some(KernelStep::Record { kind: content::HANDSHAKE, content: Box::new(key_update()) }))
    }

    fn count_sealed(&mut self, bytes: usize) {
        self.tx.count(bytes);
    }

    fn tell_end(&mut self) {
        if self.alert.is_none_or(|alert| alert == Alert::NoRenegotiation) {
            self.alert = Some(Alert::CloseNotify);
        }
    }
}

impl Alert {
    fn level(self) -> u8 {
        if matches!(self, Alert::NoRenegotiation | Alert::CloseNotify) { WARNING } else { FATAL }
    }
}

/// The news of a key of ours, without a wish for one of theirs.
fn key_update() -> [u8; 5] {
    let [kind, a, b, c] = KEY_UPDATE;
    [kind, a, b, c, 0]
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("layout", &self.rx.layout).finish_non_exhaustive()
    }
}
