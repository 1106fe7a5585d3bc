//! Writes a stream's datagrams: straight from the chunk, packet by packet, or into a constant rate.

use std::time::Duration;

use wire::ts::{DATAGRAM_LEN, DATAGRAM_PACKETS, PACKET_LEN, Packet, PesHeader, write_null, write_pcr_only};

use super::schedule::ticks;
use super::{Output, PACKETS, Player};
use crate::queue::Supply;
use crate::rewrite::Stamp;
use crate::spec::{Activity, Target};
use crate::trick::Pick;

/// While pictures are shown a reference is sent at least so often (the standard allows 100 ms, DVB 40 ms).
const STAMP_NS: i64 = 35_000_000;

/// A padded stream that was starved is on time again when it is no later than this.
const CAUGHT_UP_NS: i64 = 10_000_000;

/// Runs without a packet to send that are gone over for one datagram; then there is nothing to send in a loop.
const EMPTY_RUNS_MAX: usize = 3;

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    /// The next chunk is not there.
    Late,
    /// There is nothing more to send.
    Over,
}

impl Player {
    /// Writes the next datagram, when all of its packets are there. The caller saw to the room.
    pub(super) fn datagram(&mut self, output: &mut Output<'_>) -> Sent {
        if self.schedule.padding.is_some() {
            return self.padded(output);
        }
        for _ in 0..EMPTY_RUNS_MAX {
            self.pass_splice();
            let tables = self.reel.tables_left.min(DATAGRAM_PACKETS) as u32;
            let count = match self.reel.supply(PACKETS - tables) {
                Supply::Enough => PACKETS - tables,
                Supply::Last(count) => count,
                Supply::Late => return Sent::Late,
            };
            if count + tables > 0 {
                self.write(count, output);
                return Sent::Yes;
            }
            // What is left before the end or the splice is not sent.
            self.reel.skip();
            if self.reel.queue.has_ended() {
                return Sent::Over;
            }
        }
        Sent::Over
    }

    /// Hands over datagrams that lie ready in the chunk, up to `count`, as they lie there. Returns how many, 0 when the
    /// next one has to be written.
    pub(super) fn ready_datagrams(&mut self, count: u8, output: &mut Output<'_>) -> u8 {
        let Target::Datagrams(path) = &self.sender.to else { return 0 };
        let reel = &mut self.reel;
        let is_plain = self.sender.is_bare() && self.schedule.padding.is_none() && !reel.rewriter.is_active;
        let is_plain = is_plain && self.measure.monitor.is_none();
        if !is_plain || reel.tables_left > 0 || reel.queue.is_at_splice() || !output.out.has_room_for_shared() {
            return 0;
        }
        let Some((chunk, start, count)) = reel.next_pieces(count.into()) else { return 0 };
        let is_queued = output.out.push_shared(path, chunk, start, DATAGRAM_LEN, count as usize);
        debug_assert!(is_queued, "there is room, and the packets are there");
        self.measure.count_sent(u64::from(count), DATAGRAM_LEN as u64, output.totals);
        count as u8
    }

    /// Writes tables that are waiting, `count` packets, and null packets up to seven.
    pub(super) fn write(&mut self, count: u32, output: &mut Output<'_>) {
        let due_ns = if self.sender.is_bare() { 0 } else { self.schedule.rtp_time(&self.reel) };
        let Some(slot) = output.out.slot() else { return };
        let header_len = self.sender.write_header(slot, due_ns);
        let payload = &mut slot[header_len..header_len + DATAGRAM_LEN];
        let reel = &mut self.reel;
        let takes_all = count == PACKETS && reel.rewriter.pids.is_none() && reel.queue.pick().is_none();
        if takes_all && let Some((chunk, start, _)) = reel.next_pieces(1) {
            payload.copy_from_slice(&chunk.bytes()[start..start + DATAGRAM_LEN]);
            if reel.rewriter.is_active {
                for packet in payload.as_chunks_mut::<PACKET_LEN>().0 {
                    reel.rewriter.rewrite(packet, Stamp::By(0));
                }
            }
        } else {
            let mut left = count;
            let mut nulls = 0;
            for packet in payload.as_chunks_mut::<PACKET_LEN>().0 {
                if self.reel.tables_left > 0 {
                    self.reel.write_table(packet);
                } else if left > 0 {
                    left -= 1;
                    self.play(packet, Stamp::By(0));
                } else {
                    write_null(packet);
                    nulls += 1;
                }
            }
            self.measure.count_nulls(nulls, output.totals);
        }
        self.sender.commit(header_len, output, &mut self.measure);
    }

    /// Seven packets of the constant rate. Only the end of the title ends it.
    fn padded(&mut self, output: &mut Output<'_>) -> Sent {
        if self.reel.queue.has_ended() {
            return Sent::Over;
        }
        let due_ns = self.schedule.padding.map_or(self.schedule.due_ns, |padding| padding.next_ns());
        // Written aside, as a packet may need a look at the whole stream.
        let mut payload = [[0; PACKET_LEN]; DATAGRAM_PACKETS];
        for packet in &mut payload {
            if !self.padded_packet(packet, output) {
                write_null(packet);
                self.measure.count_nulls(1, output.totals);
            }
            if let Some(padding) = &mut self.schedule.padding {
                padding.packets += 1;
            }
        }
        let is_behind = self.schedule.padding.is_some_and(|padding| padding.is_behind);
        match self.lacking_ns {
            None if is_behind => {
                self.lacking_ns = Some(due_ns);
                self.history.note(due_ns, Activity::Starved, self.reel.position());
            }
            Some(since_ns) if !is_behind => {
                self.measure.stats.starved += Duration::from_nanos((due_ns - since_ns).max(0) as u64);
                self.lacking_ns = None;
                self.history.note(due_ns, Activity::Playing, self.reel.position());
            }
            _ => {}
        }
        let Some(slot) = output.out.slot() else { return Sent::Late };
        let header_len = self.sender.write_header(slot, due_ns);
        slot[header_len..header_len + DATAGRAM_LEN].copy_from_slice(payload.as_flattened());
        self.sender.commit(header_len, output, &mut self.measure);
        Sent::Yes
    }

    /// Writes what has its place now; false when that is nothing.
    fn padded_packet(&mut self, packet: &mut [u8; PACKET_LEN], output: &mut Output<'_>) -> bool {
        let Some(padding) = self.schedule.padding else { return false };
        let place_ns = padding.next_ns();
        self.pass_splice();
        if self.reel.tables_left > 0 {
            self.reel.write_table(packet);
            return true;
        }
        let shows_pictures = self.schedule.shows_pictures();
        let stamp_is_due = padding.stamped_ns.is_none_or(|at| place_ns - at >= STAMP_NS);
        if shows_pictures && stamp_is_due && self.write_stamp(packet, place_ns) {
            return true;
        }
        self.reel.skip_left_out();
        self.pass_splice();
        let Some(due_ns) = self.schedule.next_due(&self.reel).filter(|due| *due <= place_ns) else { return false };
        let is_behind = self.reel.queue.peek().is_none();
        let was_behind = self.schedule.padding.as_mut().is_some_and(|padding| {
            // What is late now is no surprise any more.
            std::mem::replace(&mut padding.is_behind, is_behind)
        });
        if is_behind {
            if !was_behind {
                self.measure.count_underrun(output.totals);
            }
            return false;
        }
        let mut late_ns = place_ns - due_ns;
        let starved = self.schedule.padding.as_mut().is_some_and(|padding| {
            padding.catches_up = was_behind || (padding.catches_up && late_ns >= CAUGHT_UP_NS);
            padding.catches_up
        });
        if !starved {
            self.measure.note_pad_late(late_ns);
        }
        if late_ns > output.settings.late_max.as_nanos() as i64 {
            if !starved {
                self.measure.pad_shifted_ns += late_ns;
            }
            // It goes on from here, and so do its timestamps.
            if self.schedule.shift_behind_padding(&mut self.reel, late_ns) {
                late_ns = 0;
            }
            if !was_behind {
                self.measure.count_shift(output.totals);
            }
        }
        // Every packet has another place than in the title.
        self.reel.activate();
        let stamp = match shows_pictures {
            true => self.schedule.output_pcr(&self.reel, place_ns).map_or(Stamp::By(0), Stamp::Is),
            false => Stamp::By(ticks(late_ns)),
        };
        self.play(packet, stamp);
        true
    }

    /// Writes a reference of our own, while pictures are shown.
    fn write_stamp(&mut self, packet: &mut [u8; PACKET_LEN], place_ns: i64) -> bool {
        let Some(pid) = self.spec.title.pcr_pid else { return false };
        let (pcr, rewriter) = (self.schedule.output_pcr(&self.reel, place_ns), &mut self.reel.rewriter);
        let (Some(pcr), Some(renamed)) = (pcr, rewriter.renamed(pid)) else { return false };
        let (counter, flag) = (rewriter.counter(pid), rewriter.take_flag(pid));
        write_pcr_only(packet, renamed, counter, pcr, flag);
        if let Some(padding) = &mut self.schedule.padding {
            padding.stamped_ns = Some(place_ns);
        }
        true
    }

    /// Plays the next packet that is kept.
    fn play(&mut self, packet: &mut [u8; PACKET_LEN], stamp: Stamp) {
        let Some(pick) = self.reel.next_kept(packet) else { return write_null(packet) };
        if self.reel.rewriter.is_active {
            if let Some(pick) = pick {
                self.time_picture(packet, pick);
            }
            self.reel.rewriter.rewrite(packet, stamp);
        }
    }

    /// A single picture is decoded when it is there, whatever its own timestamps were.
    fn time_picture(&mut self, packet: &[u8; PACKET_LEN], pick: Pick) {
        let parsed = Packet::parse(packet).ok().filter(|packet| packet.payload_unit_start());
        let Some(header) = parsed.and_then(|packet| PesHeader::parse(packet.payload())) else { return };
        if let (Some(was), Some(shown)) = (header.dts.or(header.pts), self.schedule.picture_time(&self.reel, pick)) {
            self.reel.rewriter.timestamp_offset = was.ticks_to(shown);
        }
    }

    /// A datagram of null packets, to fill a gap.
    pub(super) fn null_datagram(&mut self, due_ns: i64, output: &mut Output<'_>) {
        let Some(slot) = output.out.slot() else { return };
        let header_len = self.sender.write_header(slot, due_ns);
        for packet in slot[header_len..header_len + DATAGRAM_LEN].as_chunks_mut::<PACKET_LEN>().0 {
            write_null(packet);
        }
        self.measure.count_nulls(DATAGRAM_PACKETS as u64, output.totals);
        self.sender.commit(header_len, output, &mut self.measure);
    }
}
