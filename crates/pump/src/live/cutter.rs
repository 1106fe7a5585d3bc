//! Cuts a live stream into chunks, each with the times at which its packets are due.
//!
//! In: packets, and for those with a reference when they are due. Out: the packets from one reference to a later one, with
//! the times at both ends, so that everything between has its time too. A chunk is some 20 ms long, or from one
//! reference to the next where these are rarer. Times never run backwards.
//! What waits for a reference that does not come is let go (`flush`) with the rate that was; when one comes after all,
//! the next chunk begins where that one says.
//! Cost: one copy per packet.

use wire::ts::PACKET_LEN;

/// A chunk is at least so long, if it has not `PACKETS_MAX`.
const CHUNK_NS: i64 = 20_000_000;

/// Packets of a chunk at most: 20 ms of 200 Mbit/s.
const PACKETS_MAX: u64 = 2_786;

/// No packet takes less (1.5 Gbit/s).
const PACKET_NS_MIN: i64 = 1_000;

/// A longer time between references says nothing of the rate.
const STEP_MAX_NS: i64 = 500_000_000;

/// A chunk that is cut off.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// Position of the first packet.
    pub(super) first: u64,
    pub(super) bytes: Vec<u8>,
    /// Positions and when they are due, the first packet and the one behind the last included.
    pub(super) dues: Vec<(u64, i64)>,
}

#[derive(Debug, Default)]
pub(super) struct Cutter {
    piece: Piece,
    /// The first packet's time is only a guess.
    is_loose: bool,
    /// Packets and the time that they took, between the last two references.
    slope: (u64, i64),
    /// When the first packet that waits arrived.
    waits_since_ns: Option<i64>,
}

impl Cutter {
    /// `slope`: packets and the nanoseconds that they take on average.
    pub(super) fn new(slope: (u64, i64)) -> Self {
        Cutter { slope, ..Cutter::default() }
    }

    /// Position of the packet that comes next.
    pub(super) fn position(&self) -> u64 {
        self.piece.first + (self.piece.bytes.len() / PACKET_LEN) as u64
    }

    /// When the packet that comes next is due, as far as can be said. `None` before the first.
    pub(super) fn expected_ns(&self) -> Option<i64> {
        let (position, due_ns) = *self.piece.dues.last()?;
        Some(due_ns + self.time_of(self.position() - position))
    }

    /// The packet that comes next has a reference, and is due then. Returns what is complete.
    pub(super) fn mark(&mut self, due_ns: i64) -> Option<Piece> {
        let position = self.position();
        let Some(&(before, before_ns)) = self.piece.dues.last() else {
            let packets = position - self.piece.first;
            self.piece.dues.push((self.piece.first, due_ns - self.time_of(packets)));
            self.piece.dues.extend((packets > 0).then_some((position, due_ns)));
            return None;
        };
        let packets = position - before;
        if packets == 0 {
            if self.is_loose {
                self.begin_at(due_ns);
            }
            return None;
        }
        let due_ns = due_ns.max(before_ns + packets as i64 * PACKET_NS_MIN);
        if self.is_loose {
            self.begin_at(due_ns - self.time_of(packets));
        } else if due_ns - before_ns <= STEP_MAX_NS {
            self.slope = (packets, due_ns - before_ns);
        }
        self.piece.dues.push((position, due_ns));
        let start_ns = self.piece.dues.first().map_or(due_ns, |(_, at)| *at);
        (due_ns - start_ns >= CHUNK_NS).then(|| self.cut(position, due_ns))
    }

    /// Takes the next packet. Returns what is complete.
    pub(super) fn push(&mut self, arrived_ns: i64, packet: &[u8; PACKET_LEN]) -> Option<Piece> {
        if self.piece.dues.is_empty() && self.position() - self.piece.first >= PACKETS_MAX {
            // Nobody said yet when anything is due.
            self.piece.bytes.clear();
        }
        self.waits_since_ns.get_or_insert(arrived_ns);
        self.piece.bytes.extend(packet);
        if self.position() - self.piece.first >= PACKETS_MAX { self.flush() } else { None }
    }

    /// Lets go of what waits for a reference.
    pub(super) fn flush(&mut self) -> Option<Piece> {
        let due_ns = self.expected_ns().filter(|_| !self.piece.bytes.is_empty())?;
        let position = self.position();
        let &(before, before_ns) = self.piece.dues.last()?;
        // A reference right before the end says it better.
        let due_ns = due_ns.max(before_ns + (position - before) as i64 * PACKET_NS_MIN);
        if position > before {
            self.piece.dues.push((position, due_ns));
        }
        let piece = self.cut(position, due_ns);
        self.is_loose = true;
        Some(piece)
    }

    /// When the first packet arrived that waits and can be let go.
    pub(super) fn waits_since_ns(&self) -> Option<i64> {
        self.waits_since_ns.filter(|_| !self.piece.dues.is_empty())
    }

    /// The chunk that begins does so then, if that is later than was guessed.
    fn begin_at(&mut self, due_ns: i64) {
        self.is_loose = false;
        if let Some((_, first_ns)) = self.piece.dues.first_mut() {
            *first_ns = (*first_ns).max(due_ns);
        }
    }

    fn cut(&mut self, position: u64, due_ns: i64) -> Piece {
        let bytes = Vec::with_capacity(self.piece.bytes.len());
        let next = Piece { first: position, bytes, dues: vec![(position, due_ns)] };
        (self.is_loose, self.waits_since_ns) = (false, None);
        std::mem::replace(&mut self.piece, next)
    }

    fn time_of(&self, packets: u64) -> i64 {
        let (all, ns) = self.slope;
        let time_ns = i128::from(packets) * i128::from(ns) / i128::from(all.max(1));
        i64::try_from(time_ns).unwrap_or(STEP_MAX_NS).max(packets as i64 * PACKET_NS_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const PACKET: [u8; PACKET_LEN] = [0x47; PACKET_LEN];

    fn push(cutter: &mut Cutter, count: usize) {
        for _ in 0..count {
            assert_eq!(cutter.push(0, &PACKET), None);
        }
    }

    fn cutter() -> Cutter {
        Cutter::new((1, MS))
    }

    #[test]
    fn chunks_end_at_references_and_have_the_times_of_both_ends() {
        let mut cutter = cutter();
        push(&mut cutter, 3);
        assert_eq!(cutter.mark(100 * MS), None);
        push(&mut cutter, 10);
        assert_eq!(cutter.mark(110 * MS), None, "10 ms are too short");
        push(&mut cutter, 30);
        let piece = cutter.mark(140 * MS).unwrap();

        assert_eq!((piece.first, piece.bytes.len()), (0, 43 * PACKET_LEN));
        // What came before the first reference was due at the rate that is known of the stream.
        assert_eq!(piece.dues, [(0, 97 * MS), (3, 100 * MS), (13, 110 * MS), (43, 140 * MS)]);
        push(&mut cutter, 50);
        let piece = cutter.mark(240 * MS).unwrap();
        assert_eq!((piece.first, piece.dues), (43, vec![(43, 140 * MS), (93, 240 * MS)]));
    }

    #[test]
    fn what_waits_too_long_goes_by_the_rate_that_was_and_the_next_chunk_by_its_own_reference() {
        let mut cutter = cutter();
        cutter.mark(0);
        push(&mut cutter, 100);
        cutter.mark(50 * MS).unwrap();
        push(&mut cutter, 10);
        let piece = cutter.flush().unwrap();
        assert_eq!(piece.dues, [(100, 50 * MS), (110, 55 * MS)]);
        assert_eq!(cutter.flush(), None, "nothing waits");
        // The sender was silent for two seconds.
        push(&mut cutter, 20);
        cutter.mark(2_065 * MS);
        push(&mut cutter, 40);
        let piece = cutter.mark(2_085 * MS).unwrap();
        assert_eq!(piece.dues, [(110, 2_055 * MS), (130, 2_065 * MS), (170, 2_085 * MS)]);
    }

    #[test]
    fn times_never_run_backwards() {
        let mut cutter = cutter();
        cutter.mark(100 * MS);
        push(&mut cutter, 50);
        let piece = cutter.mark(150 * MS).unwrap();
        assert_eq!(piece.dues.last(), Some(&(50, 150 * MS)));
        push(&mut cutter, 50);
        cutter.mark(20 * MS);
        push(&mut cutter, 50);
        let piece = cutter.mark(400 * MS).unwrap();
        assert_eq!(piece.dues, [(50, 150 * MS), (100, 150 * MS + 50_000), (150, 400 * MS)]);
    }

    #[test]
    fn without_any_reference_nothing_is_cut_and_not_all_is_kept() {
        let mut cutter = cutter();
        push(&mut cutter, 3 * PACKETS_MAX as usize);
        assert!(cutter.position() <= PACKETS_MAX);
        assert_eq!((cutter.flush(), cutter.waits_since_ns(), cutter.expected_ns()), (None, None, None));
    }

    #[test]
    fn a_stream_without_references_is_cut_by_size() {
        let mut cutter = cutter();
        cutter.mark(0);
        let piece = (0..PACKETS_MAX).find_map(|_| cutter.push(0, &PACKET)).unwrap();
        assert_eq!(piece.dues, [(0, 0), (PACKETS_MAX, PACKETS_MAX as i64 * MS)]);
        assert_eq!(cutter.position(), PACKETS_MAX);
    }
}
