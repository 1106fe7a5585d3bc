//! What a stream plays, packet by packet: what the queue has, tables before it, and each as it goes out.

use std::sync::Arc;

use wire::ts::{PACKET_LEN, Pid};

use super::PACKETS;
use crate::chunk::Chunk;
use crate::clock::{Clock, Mark, Slope};
use crate::queue::{Plan, Queue, ReadAhead, Supply};
use crate::rewrite::Rewriter;
use crate::spec::SessionSpec;
use crate::trick::Pick;

/// A stream's packets in the order of playing.
#[derive(Debug)]
pub(super) struct Reel {
    pub(super) queue: Queue,
    pub(super) rewriter: Rewriter,
    /// Position behind the last packet that was sent.
    pub(super) end: u64,
    /// PAT and PMT, and how many of their packets are to be sent before all else.
    pub(super) tables: Vec<[u8; PACKET_LEN]>,
    pub(super) tables_left: usize,
    /// The only packets that are sent of single pictures.
    pub(super) video: Option<Pid>,
    /// The last reference of the chunk before, and the rate there, until one behind it was seen.
    seam: Option<(Mark, Slope)>,
    slope: Option<Slope>,
}

impl Reel {
    pub(super) fn new(spec: &SessionSpec, plan: Plan, read_ahead: ReadAhead) -> Self {
        Reel {
            queue: Queue::new(plan, spec.title.cut(), read_ahead),
            rewriter: Rewriter::new(&spec.title, spec.pids.clone()),
            end: spec.start,
            tables: spec.title.table_packets(),
            tables_left: 0,
            video: spec.title.video.map(|(pid, _)| pid),
            seam: None,
            slope: spec.title.slope,
        }
    }

    /// Position of the next packet; behind the last one where there is none.
    pub(super) fn position(&self) -> u64 {
        self.queue.position().unwrap_or(self.end)
    }

    /// Whether `count` packets are there that continue each other and are sent.
    pub(super) fn supply(&self, count: u32) -> Supply {
        self.queue.supply(count, self.rewriter.pids.as_deref())
    }

    /// Packets that wait for others to fill a datagram with, which have not come.
    pub(super) fn left_over(&self) -> u32 {
        if self.supply(PACKETS) != Supply::Late {
            return 0;
        }
        (1..PACKETS).rev().find(|count| self.supply(*count) == Supply::Enough).unwrap_or(0)
    }

    /// From now on packets are looked at. The counters sent so far are those of the chunk being played.
    pub(super) fn activate(&mut self) {
        if self.rewriter.is_active {
            return;
        }
        let current = self.queue.current().into_iter();
        self.rewriter.activate(current.flat_map(|(chunk, played)| counters(chunk, played)));
    }

    /// The next packet does not continue the last one: counters do, and tables come before it. With `flag` the first
    /// reference of each PID says so.
    pub(super) fn splice(&mut self, flag: bool) {
        self.queue.pass_splice();
        self.seam = None;
        self.rewriter.splice(flag);
        self.tables_left = self.tables.len();
    }

    /// Plays up to `pieces` datagrams that lie in one piece in their chunk: the chunk, where in its bytes they begin, and
    /// how many there are.
    #[inline]
    pub(super) fn next_pieces(&mut self, pieces: u32) -> Option<(&Arc<Chunk>, usize, u32)> {
        let (chunk, start, count) = self.queue.next_pieces(PACKETS, pieces)?;
        self.end += u64::from(PACKETS * count);
        Some((chunk, start, count))
    }

    /// Copies the next packet that is kept, and returns the picture to which it belongs. `None`: there is none.
    pub(super) fn next_kept(&mut self, packet: &mut [u8; PACKET_LEN]) -> Option<Option<Pick>> {
        while let Some((_, next)) = self.queue.peek() {
            let is_kept = self.is_kept(next);
            packet.copy_from_slice(next);
            let pick = self.advance();
            if is_kept {
                return Some(pick);
            }
        }
        None
    }

    /// Goes over what is not sent, up to a splice.
    pub(super) fn skip_left_out(&mut self) {
        while self.queue.peek().is_some_and(|(_, packet)| !self.is_kept(packet)) && !self.queue.is_at_splice() {
            self.advance();
        }
    }

    /// Goes over all that is there, up to a splice.
    pub(super) fn skip(&mut self) {
        while !self.queue.is_at_splice() && self.queue.peek().is_some() {
            self.advance();
        }
    }

    /// Goes over the packet at the front; returns the picture to which it belongs.
    fn advance(&mut self) -> Option<Pick> {
        let pick = self.queue.pick();
        self.end = self.queue.position().map_or(self.end, |position| position + 1);
        if let Some((done, played)) = self.queue.advance() {
            self.leave(&done, played);
        }
        pick
    }

    /// The first packets of a chunk were played, and the next one's come.
    fn leave(&mut self, done: &Chunk, played: u32) {
        self.rewriter.rest();
        if !self.rewriter.is_active {
            if played == done.packet_count() {
                self.rewriter.learn(done.continuity.iter().copied());
            } else {
                self.rewriter.learn(counters(done, played));
            }
        }
        // A live input says itself where its clock jumps.
        if done.dues.is_empty() {
            self.seam = done.marks.last().copied().zip(done.slope.or(self.slope)).or(self.seam);
            self.flag_seam();
        }
    }

    /// A clock that jumps from one chunk to the next without saying so is made to say it, as one within a chunk is when
    /// that is read. Does nothing until the next chunk is there.
    pub(super) fn flag_seam(&mut self) {
        let (Some((last, slope)), Some((chunk, _))) = (self.seam, self.queue.current()) else { return };
        let Some(next) = chunk.marks.first() else { return };
        let pid = chunk.packet((next.position - chunk.first) as u32).map(pid_of);
        let jumps = self.queue.pick().is_none() && Clock::new(last, slope).jumps_to(*next);
        self.seam = None;
        if let Some(pid) = pid.filter(|_| jumps) {
            self.activate();
            self.rewriter.flag(pid);
        }
    }

    fn is_kept(&self, packet: &[u8; PACKET_LEN]) -> bool {
        let pid = pid_of(packet);
        let is_shown = self.queue.pick().is_none() || self.video == Some(pid);
        is_shown && self.rewriter.renamed(pid).is_some()
    }

    /// Writes a packet of the tables.
    pub(super) fn write_table(&mut self, packet: &mut [u8; PACKET_LEN]) {
        *packet = self.tables[self.tables.len() - self.tables_left];
        self.tables_left -= 1;
        self.rewriter.insert(packet);
    }
}

/// The continuity counters of a chunk's first packets, those with payload.
fn counters(chunk: &Chunk, packets: u32) -> impl Iterator<Item = (Pid, u8)> + use<'_> {
    let packets = chunk.bytes().as_chunks::<PACKET_LEN>().0.iter().take(packets as usize);
    let counters = packets.filter(|packet| packet[3] & 0x10 != 0).map(|packet| (pid_of(packet), packet[3] & 0x0f));
    counters.filter(|(pid, _)| *pid != Pid::NULL)
}

fn pid_of(packet: &[u8; PACKET_LEN]) -> Pid {
    Pid::from_bytes(packet[1], packet[2])
}
