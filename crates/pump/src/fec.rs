//! Parity for RTP sessions: what a receiver repairs lost datagrams with.
//!
//! In: each datagram as it is sent. Out: parity datagrams, for the ports two and four above the session's.
//! Datagrams stand in a matrix, row by row. The parity of a column repairs one loss in it, so a burst as long as a row;
//! that of a row repairs single losses sooner. Columns of one matrix are sent while the next is filled, evenly, or, when
//! nothing follows, at the same pace. A matrix that stays incomplete has no columns: the standard knows but one size.
//! Cost: one pass over the datagram per dimension, no allocation; two matrix rows and a datagram of memory per session.
//!
//! ```text
//! 0       12                  28
//! ┌───────┬───────────────────┬────────────────────────────────┐
//! │RTP, 96│base, length, PT,  │exclusive or of all that stands │
//! │       │time, kind, steps  │behind the covered RTP headers  │
//! └───────┴───────────────────┴────────────────────────────────┘
//! ```
//! Source: SMPTE 2022-1 (matrix, ports, header), RFC 2733 §3 (protection operation).

use wire::rtp::FIXED_HEADER_LEN;
use wire::ts::DATAGRAM_LEN;
use wire::{Path, Seq};

/// Payload type of parity datagrams (SMPTE 2022-1 §7).
const PAYLOAD_TYPE: u8 = 96;

/// Bytes behind the RTP header and before the parity.
const HEADER_LEN: usize = 16;

/// Bytes of a datagram that is covered.
const COVERED_LEN: usize = FIXED_HEADER_LEN + DATAGRAM_LEN;

/// Bytes of a parity datagram.
pub(crate) const PARITY_LEN: usize = COVERED_LEN + HEADER_LEN;

/// The matrix of a session, in datagrams (SMPTE 2022-1 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fec {
    columns: u8,
    rows: u8,
    covers_rows: bool,
}

impl Fec {
    /// A matrix of 1 to 20 columns and 4 to 20 rows, of 100 datagrams at most; `covers_rows` adds the second dimension,
    /// for which it takes four columns. `None`: it is of no such size.
    pub fn new(columns: u8, rows: u8, covers_rows: bool) -> Option<Fec> {
        let columns_min = if covers_rows { 4 } else { 1 };
        let is_allowed = (columns_min..=20).contains(&columns) && (4..=20).contains(&rows);
        (is_allowed && u32::from(columns) * u32::from(rows) <= 100).then_some(Fec { columns, rows, covers_rows })
    }

    /// Datagrams of a column.
    pub(crate) fn rows(self) -> u8 {
        self.rows
    }

    /// Parity datagrams for each datagram.
    pub fn overhead(self) -> f64 {
        let for_rows = if self.covers_rows { 1.0 / f64::from(self.columns) } else { 0.0 };
        1.0 / f64::from(self.rows) + for_rows
    }
}

/// Makes the parity of one session.
#[derive(Debug)]
pub(crate) struct Encoder {
    pub(crate) fec: Fec,
    /// The columns that are being filled, then those that are being sent, and the row.
    filling: Box<[Parity]>,
    sending: Box<[Parity]>,
    row: Parity,
    /// Datagrams of the matrix so far.
    count: u32,
    /// Columns of the matrix before that were sent, and that may be; all were sent, while there is none.
    sent: usize,
    due: usize,
    row_is_due: bool,
    column_seq: Seq,
    row_seq: Seq,
    column_path: Path,
    row_path: Path,
    /// The last datagram's timestamp.
    timestamp: [u8; 4],
}

/// Exclusive or of datagrams, with their headers.
#[derive(Clone, Debug)]
struct Parity {
    base: Seq,
    bytes: [u8; COVERED_LEN],
    count: u8,
}

impl Encoder {
    /// `None` when there are no ports above the session's.
    pub(crate) fn new(fec: Fec, path: &Path, first_seq: Seq) -> Option<Encoder> {
        let above = |ports: u16| {
            let mut path = *path;
            path.remote.set_port(path.remote.port().checked_add(ports)?);
            Some(path)
        };
        let parity = Parity { base: Seq(0), bytes: [0; COVERED_LEN], count: 0 };
        let columns = vec![parity.clone(); fec.columns.into()].into_boxed_slice();
        Some(Encoder {
            fec,
            filling: columns.clone(),
            sent: columns.len(),
            due: 0,
            sending: columns,
            row: parity,
            count: 0,
            row_is_due: false,
            column_seq: first_seq,
            row_seq: first_seq,
            column_path: above(2)?,
            row_path: above(4)?,
            timestamp: [0; 4],
        })
    }

    /// Takes a datagram that is sent. Before the next, `write` is to be called until it is `None`.
    pub(crate) fn add(&mut self, datagram: &[u8]) {
        let Some(datagram) = datagram.first_chunk::<COVERED_LEN>() else { return };
        self.timestamp = [datagram[4], datagram[5], datagram[6], datagram[7]];
        let columns = u32::from(self.fec.columns);
        if self.is_complete() {
            self.begin_matrix();
        }
        let column = self.count % columns;
        self.filling[column as usize].add(datagram, self.count < columns);
        if self.fec.covers_rows {
            self.row.add(datagram, column == 0);
            self.row_is_due = column + 1 == columns;
        }
        self.count += 1;
        // One column for each so many datagrams as a column has.
        self.due = self.count.div_ceil(self.fec.rows.into()) as usize;
    }

    /// No datagram follows for now: lets go of one more column, if there is one, at the time that the timestamp says. To be
    /// called again after the time of so many datagrams as a column has.
    pub(crate) fn release(&mut self, timestamp: u32) {
        if self.is_complete() {
            self.begin_matrix();
        }
        self.timestamp = timestamp.to_be_bytes();
        self.due = self.due.max(self.sent + 1).min(self.sending.len());
    }

    /// Whether `release` has something to let go of.
    pub(crate) fn holds_columns(&self) -> bool {
        self.sent < self.sending.len() || self.is_complete()
    }

    fn is_complete(&self) -> bool {
        self.count == u32::from(self.fec.columns) * u32::from(self.fec.rows)
    }

    /// What was filled is sent from now on.
    fn begin_matrix(&mut self) {
        std::mem::swap(&mut self.filling, &mut self.sending);
        (self.count, self.sent, self.due) = (0, 0, 0);
    }

    /// Writes a parity datagram that is due, and says where it goes.
    pub(crate) fn write(&mut self, slot: &mut [u8]) -> Option<Path> {
        let slot = slot.first_chunk_mut::<PARITY_LEN>()?;
        if std::mem::take(&mut self.row_is_due) {
            self.row.write(slot, self.row_seq, self.timestamp, true, 1);
            self.row_seq = self.row_seq.plus(1);
            return Some(self.row_path);
        }
        if self.sent < self.due {
            self.sending[self.sent].write(slot, self.column_seq, self.timestamp, false, self.fec.columns);
            self.sent += 1;
            self.column_seq = self.column_seq.plus(1);
            return Some(self.column_path);
        }
        None
    }
}

impl Parity {
    fn add(&mut self, datagram: &[u8; COVERED_LEN], is_first: bool) {
        if is_first {
            self.base = Seq(u16::from_be_bytes([datagram[2], datagram[3]]));
            self.bytes = *datagram;
            self.count = 1;
            return;
        }
        self.bytes.iter_mut().zip(datagram).for_each(|(sum, byte)| *sum ^= byte);
        self.count += 1;
    }

    /// Writes what covers `count` datagrams, from `base` on, each `offset` behind the one before.
    fn write(&self, slot: &mut [u8; PARITY_LEN], seq: Seq, timestamp: [u8; 4], is_row: bool, offset: u8) {
        let (sum, lengths) = (&self.bytes, if self.count % 2 == 1 { DATAGRAM_LEN as u16 } else { 0 });
        // Padding, extension, sources and marker are recovered by the RTP header's own bits (RFC 2733 §3.1).
        slot[0] = 0x80 | sum[0] & 0x3f;
        slot[1] = sum[1] & 0x80 | PAYLOAD_TYPE;
        slot[2..4].copy_from_slice(&seq.0.to_be_bytes());
        slot[4..8].copy_from_slice(&timestamp);
        slot[8..12].fill(0);
        slot[12..14].copy_from_slice(&self.base.0.to_be_bytes());
        slot[14..16].copy_from_slice(&lengths.to_be_bytes());
        // Extended (E is 1), and without a mask.
        slot[16..20].copy_from_slice(&[0x80 | sum[1] & 0x7f, 0, 0, 0]);
        slot[20..24].copy_from_slice(&sum[4..8]);
        // Of the kind exclusive or. D is 1 for a row, in which neighbours are covered.
        slot[24..28].copy_from_slice(&[u8::from(is_row) << 6, offset, self.count, 0]);
        slot[28..].copy_from_slice(&sum[FIXED_HEADER_LEN..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_of_the_sizes_that_smpte_2022_1_has() {
        assert!(Fec::new(20, 5, true).is_some() && Fec::new(1, 4, false).is_some() && Fec::new(5, 20, true).is_some());
        assert_eq!(Fec::new(20, 6, false), None, "120 datagrams");
        for (columns, rows) in [(0, 4), (21, 4), (4, 3), (4, 21)] {
            assert_eq!(Fec::new(columns, rows, false), None);
        }
        assert_eq!(Fec::new(3, 4, true), None);
        assert_eq!(Fec::new(10, 5, true).map(Fec::overhead), Some(0.1 + 0.2));
    }

    #[test]
    fn the_header_is_where_smpte_2022_1_puts_it() {
        let mut covered = [7; COVERED_LEN];
        covered[..8].copy_from_slice(&[0x80, 33, 0x12, 0x34, 1, 2, 3, 4]);
        let mut parity = Parity { base: Seq(0), bytes: [0; COVERED_LEN], count: 0 };
        parity.add(&covered, true);
        let mut slot = [0xff; PARITY_LEN];
        parity.write(&mut slot, Seq(0x0506), [9; 4], false, 10);
        assert_eq!(slot[..12], [0x80, 96, 5, 6, 9, 9, 9, 9, 0, 0, 0, 0]);
        assert_eq!(slot[12..29], [0x12, 0x34, 5, 0x24, 0x80 | 33, 0, 0, 0, 1, 2, 3, 4, 0, 10, 1, 0, 7]);
        parity.add(&covered, false);
        parity.write(&mut slot, Seq(0), [9; 4], true, 1);
        assert_eq!(slot[12..29], [0x12, 0x34, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x40, 1, 2, 0, 0]);
    }
}
