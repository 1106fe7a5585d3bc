//! What one stream plays: rows of packets in the order of playing, and the chunks that hold them.
//!
//! In: a plan (through the title, or picture by picture), chunks as they arrive. Out: the next packets; the numbers of
//! the chunks to ask for. Cost: constant per packet; one clone of an `Arc` per chunk.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use wire::ts::{PACKET_LEN, Pid};

use crate::chunk::Chunk;
use crate::clock::{Mark, Slope};
use crate::cut::Cut;
use crate::pids::PidMap;
use crate::trick::Pick;

/// Rows without packets in a row, after which a plan ends: a loop over nothing.
const EMPTY_MAX: u32 = 1_000;

/// Rows that are prepared at least, the one that is played included, and at most, whatever is to be read ahead: 32 MB.
const ROWS_MIN: usize = 2;
const ROWS_MAX: usize = 64;

/// Rows of pictures that are prepared: several lie in one chunk.
const PICTURE_ROWS: usize = 12;

/// Rows of a live input that are prepared: its chunks come by themselves.
const LIVE_ROWS: usize = 3;

/// So many chunks are asked for one by one where a stream begins, each when the one before it is there: what lies behind
/// does not take the way from what is played sooner. Then as many as there is room for.
const ASKS_ONE_BY_ONE: u8 = 3;

/// What is to be played.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// From packet `next` to `end`, and then again from `again_from`.
    Through { next: u64, end: u64, again_from: Option<u64>, splice: bool },
    /// One picture after the other; of the one at `next` from packet `at`.
    Pictures { picks: Arc<[Pick]>, next: usize, at: u64 },
    /// What comes in, from packet `packet` of chunk `next`.
    Live { next: u32, packet: u32, splice: bool },
}

/// Packets of one chunk, in a row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    number: u32,
    /// Position of the chunk's first packet.
    first: u64,
    /// The next packet to play, and the one at which to stop, counted from the chunk's start.
    from: u32,
    to: u32,
    /// The first packet does not continue what was played before.
    splice: bool,
    pick: Option<Pick>,
    is_asked: bool,
    chunk: Option<Arc<Chunk>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    plan: Plan,
    cut: Cut,
    read_ahead: ReadAhead,
    rows: VecDeque<Row>,
    /// A row came for whose chunk nobody may have asked.
    has_new: bool,
    /// Chunks that are still to be asked for one by one.
    asks_left: u8,
    empty: u32,
}

/// How much is to be there, or asked for, behind the chunk that is played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAhead {
    /// As long as this lasts, by the title's clock.
    pub(crate) ns: i64,
    /// The rate of what comes. That of the last chunk that came, where it has a clock: the head of a title says little
    /// about the rest.
    pub(crate) slope: Slope,
}

/// The packets that can be played without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supply {
    /// So many as were asked for.
    Enough,
    /// So many, then there is an end or a splice; maybe none.
    Last(u32),
    /// The next chunk is not there.
    Late,
}

impl Queue {
    pub(crate) fn new(plan: Plan, cut: Cut, read_ahead: ReadAhead) -> Self {
        let asks_left = if matches!(plan, Plan::Through { .. }) { ASKS_ONE_BY_ONE } else { 0 };
        let mut queue = Queue { plan, cut, read_ahead, rows: VecDeque::new(), has_new: false, asks_left, empty: 0 };
        queue.refill();
        queue
    }

    /// Goes on with another plan. Chunks that it needs too are kept.
    pub(crate) fn replace(&mut self, plan: Plan) {
        let old = std::mem::replace(self, Queue::new(plan, self.cut, self.read_ahead));
        for chunk in old.rows.into_iter().filter_map(|row| row.chunk) {
            self.take(&chunk);
        }
    }

    /// Adds pictures behind those that are to be shown. Does nothing to another plan.
    pub(crate) fn add_pictures(&mut self, more: &[Pick]) {
        if let Plan::Pictures { picks, next, .. } = &mut self.plan {
            *picks = picks.get(*next..).unwrap_or(&[]).iter().chain(more).copied().collect();
            *next = 0;
            self.refill();
        }
    }

    /// Whether all pictures of the plan are cut into rows.
    pub(crate) fn lacks_pictures(&self) -> bool {
        matches!(&self.plan, Plan::Pictures { picks, next, .. } if *next >= picks.len())
    }

    /// Moves the end of the plan. What was being played continues. False when nothing was.
    pub(crate) fn set_end(&mut self, to: u64, loops_from: Option<u64>) -> bool {
        let (Plan::Through { .. }, Some(next)) = (&self.plan, self.position()) else { return false };
        self.replace(Plan::Through { next, end: to, again_from: loops_from, splice: self.is_at_splice() });
        true
    }

    /// Takes a chunk that arrived. Returns false when no row needs it.
    pub(crate) fn take(&mut self, chunk: &Arc<Chunk>) -> bool {
        let mut is_needed = false;
        for row in self.rows.iter_mut().filter(|row| row.number == chunk.number && row.chunk.is_none()) {
            row.fill(chunk);
            is_needed = true;
        }
        if is_needed && let Some(slope) = chunk.slope {
            self.read_ahead.slope = slope;
        }
        self.leave_empty_rows();
        self.refill();
        is_needed
    }

    /// Nothing can be had from a chunk on that has not come: what is before it is the last. False when no row needs it.
    pub(crate) fn cut_off(&mut self, chunk: u32) -> bool {
        let Some(at) = self.rows.iter().position(|row| row.number == chunk && row.chunk.is_none()) else {
            return false;
        };
        self.rows.truncate(at);
        self.plan = Plan::OVER;
        true
    }

    /// The number of a chunk to ask for, now or after the next that arrives; each is returned once.
    pub(crate) fn poll_need(&mut self) -> Option<u32> {
        if !self.has_new {
            return None;
        }
        let Some(row) = self.rows.iter().find(|row| !row.is_asked && row.chunk.is_none()) else {
            self.has_new = false;
            return None;
        };
        let number = row.number;
        if self.asks_left > 0 {
            if self.rows.iter().any(|row| row.is_asked && row.chunk.is_none()) {
                return None;
            }
            self.asks_left -= 1;
        }
        for row in self.rows.iter_mut().filter(|row| row.number == number) {
            row.is_asked = true;
        }
        Some(number)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.rows.is_empty()
    }

    /// Position of the next packet.
    pub(crate) fn position(&self) -> Option<u64> {
        let row = self.rows.front()?;
        Some(row.first + u64::from(row.from))
    }

    /// Whether the next packet does not continue the last one.
    pub(crate) fn is_at_splice(&self) -> bool {
        self.rows.front().is_some_and(|row| row.splice)
    }

    /// The splice was noticed.
    pub(crate) fn pass_splice(&mut self) {
        if let Some(row) = self.rows.front_mut() {
            row.splice = false;
        }
    }

    /// The picture to which the next packet belongs.
    pub(crate) fn pick(&self) -> Option<Pick> {
        self.rows.front()?.pick
    }

    /// Whether `count` packets are there that continue each other and are sent.
    pub(crate) fn supply(&self, count: u32, pids: Option<&PidMap>) -> Supply {
        let mut found = 0;
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 && row.splice {
                return Supply::Last(found);
            }
            let Some(packets) = row.packets() else { return Supply::Late };
            found += match pids {
                None => packets.len() as u32,
                Some(pids) => {
                    let sent =
                        packets.iter().filter(|packet| pids.get(Pid::from_bytes(packet[1], packet[2])).is_some());
                    sent.take((count - found) as usize).count() as u32
                }
            };
            if found >= count {
                return Supply::Enough;
            }
        }
        // There is always a row prepared unless the plan is over.
        Supply::Last(found)
    }

    /// Up to `pieces` times `count` packets that lie in one piece: the chunk, where in its bytes they begin, and how many
    /// times. Plays them. The row's last packet is never among them, so the next row is left for `advance`.
    #[inline]
    pub(crate) fn next_pieces(&mut self, count: u32, pieces: u32) -> Option<(&Arc<Chunk>, usize, u32)> {
        let row = self.rows.front_mut()?;
        let chunk = row.chunk.as_ref()?;
        let pieces = pieces.min((row.to - row.from).saturating_sub(1) / count);
        if pieces == 0 {
            return None;
        }
        self.empty = 0;
        let start = row.from as usize * PACKET_LEN;
        row.from += count * pieces;
        Some((chunk, start, pieces))
    }

    /// The next packet and its position, without playing it.
    pub(crate) fn peek(&self) -> Option<(u64, &[u8; PACKET_LEN])> {
        let row = self.rows.front()?;
        let chunk = row.chunk.as_ref()?;
        Some((chunk.first + u64::from(row.from), chunk.packet(row.from)?))
    }

    /// Plays the packet at the front. When this was the last of its row, returns the chunk and how far it was played.
    pub(crate) fn advance(&mut self) -> Option<(Arc<Chunk>, u32)> {
        let row = self.rows.front_mut()?;
        row.from += 1;
        self.empty = 0;
        if row.from < row.to {
            return None;
        }
        let done = self.rows.pop_front()?;
        if let (Plan::Live { .. }, Some(next)) = (&self.plan, self.rows.front_mut()) {
            next.first = done.first + u64::from(done.from);
        }
        self.refill();
        self.leave_empty_rows();
        Some((done.chunk?, done.from))
    }

    /// Reads where its rows lie.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        self.rows.len() as u64 ^ u64::from(self.empty)
    }

    /// Reads the row that is being played.
    #[inline]
    pub(crate) fn touch_row(&self) -> u64 {
        self.rows.front().map_or(0, |row| u64::from(row.from) ^ row.first ^ u64::from(row.splice))
    }

    /// The first mark behind `position`, in the rows that continue each other.
    pub(crate) fn mark_behind(&self, position: u64) -> Option<Mark> {
        let continued = self.rows.iter().enumerate().take_while(|(index, row)| *index == 0 || !row.splice);
        continued.map_while(|(_, row)| row.chunk.as_ref()).find_map(|chunk| chunk.mark_from(position + 1))
    }

    /// The last mark at or before the next packet, else the first behind it.
    pub(crate) fn first_mark(&self) -> Option<Mark> {
        let position = self.position()?;
        let before = self.rows.front()?.chunk.as_ref()?.mark_before(position);
        before.or_else(|| self.mark_behind(position))
    }

    /// The last chunk that begins at `position` or before it.
    pub(crate) fn chunk_before(&self, position: u64) -> Option<&Chunk> {
        let chunks = self.rows.iter().rev().filter_map(|row| row.chunk.as_deref());
        chunks.into_iter().find(|chunk| chunk.first <= position)
    }

    /// The chunk that is being played, and how far. `None` before the first packet behind a splice.
    pub(crate) fn current(&self) -> Option<(&Chunk, u32)> {
        let row = self.rows.front().filter(|row| !row.splice)?;
        Some((row.chunk.as_deref()?, row.from))
    }

    fn refill(&mut self) {
        while self.has_room()
            && let Some(mut row) = self.plan.next_row(self.cut)
        {
            if let Some(same) = self.rows.iter().find(|same| same.number == row.number) {
                row.is_asked = same.is_asked;
                if let Some(chunk) = same.chunk.clone() {
                    row.fill(&chunk);
                }
            }
            self.rows.push_back(row);
            self.has_new = true;
        }
    }

    fn has_room(&self) -> bool {
        let count = self.rows.len();
        match self.plan {
            Plan::Pictures { .. } => count < PICTURE_ROWS,
            Plan::Live { .. } => count < LIVE_ROWS,
            Plan::Through { .. } => {
                let packets: u64 = self.rows.iter().skip(1).map(|row| u64::from(row.to.saturating_sub(row.from))).sum();
                let ReadAhead { ns, slope } = self.read_ahead;
                count < ROWS_MIN || (count < ROWS_MAX && slope.ns(packets) < ns)
            }
        }
    }

    /// Rows whose chunk has none of their packets are gone over; what follows does not continue what was.
    fn leave_empty_rows(&mut self) {
        while self.rows.front().is_some_and(|row| row.chunk.is_some() && row.from >= row.to) {
            self.rows.pop_front();
            self.empty += 1;
            if self.empty > EMPTY_MAX {
                self.rows.clear();
                self.plan = Plan::OVER;
                return;
            }
            self.refill();
            if let Some(row) = self.rows.front_mut() {
                row.splice = true;
            }
        }
    }
}

impl Row {
    /// The packets of a range as far as they lie in one chunk.
    fn of(cut: Cut, range: Range<u64>, splice: bool, pick: Option<Pick>) -> Row {
        let number = cut.number(range.start);
        let first = cut.start(number);
        let to = range.end.min(cut.end(number)).saturating_sub(first) as u32;
        Row { number, first, from: (range.start - first) as u32, to, splice, pick, is_asked: false, chunk: None }
    }

    fn fill(&mut self, chunk: &Arc<Chunk>) {
        self.to = self.to.min(chunk.packet_count());
        // Of a live input it is known only now.
        self.first = chunk.first;
        self.chunk = Some(chunk.clone());
    }

    /// The packets yet to play; `None` while the chunk is not there.
    fn packets(&self) -> Option<&[[u8; PACKET_LEN]]> {
        let (packets, _) = self.chunk.as_ref()?.bytes().as_chunks();
        Some(packets.get(self.from as usize..self.to as usize).unwrap_or(&[]))
    }
}

impl Plan {
    const OVER: Plan = Plan::Through { next: 0, end: 0, again_from: None, splice: false };

    /// Cuts off what lies in one chunk.
    fn next_row(&mut self, cut: Cut) -> Option<Row> {
        match self {
            Plan::Through { next, end, again_from, splice } => {
                if *next >= *end {
                    *next = again_from.filter(|from| *from < *end)?;
                    *splice = true;
                }
                let row = Row::of(cut, *next..*end, *splice, None);
                (*next, *splice) = (cut.end(row.number), false);
                Some(row)
            }
            Plan::Pictures { picks, next, at } => {
                let pick = *picks.get(*next)?;
                let start = (*at).max(pick.from);
                let row = Row::of(cut, start..pick.to, start == pick.from, Some(pick));
                *at = cut.end(row.number);
                if *at >= pick.to {
                    (*next, *at) = (*next + 1, 0);
                }
                Some(row)
            }
            Plan::Live { next, packet, splice } => {
                let (number, from, splice) = (*next, std::mem::take(packet), std::mem::take(splice));
                *next = next.wrapping_add(1);
                Some(Row { number, first: 0, from, to: u32::MAX, splice, pick: None, is_asked: false, chunk: None })
            }
        }
    }
}
