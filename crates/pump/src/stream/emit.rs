//! Writes a stream's datagrams: straight from the chunk, packet by packet, or into a constant rate.

use wire::ts::{
    DATAGRAM_LEN, DATAGRAM_PACKETS, PACKET_LEN, Packet, PesHeader, Pid, Timestamp, write_null, write_pcr_only,
    write_rtp_header,
};

use super::{Output, PACKETS, Sent, Stream, Supply, Transport, ticks};
use crate::chunk::Chunk;
use crate::rewrite::Stamp;

/// While pictures are shown a reference is sent at least so often (the standard allows 100 ms, DVB 40 ms).
const STAMP_NS: i64 = 35_000_000;

/// A picture is decoded so long after its last byte is due, in ticks of 90 kHz (100 ms).
const PICTURE_DELAY: i64 = 9_000;

/// Runs without a packet to send that are gone over for one datagram; then there is nothing to send in a loop.
const EMPTY_RUNS_MAX: usize = 3;

impl Stream {
    /// Writes the next datagram, when all of its packets are there. The caller saw to the room.
    pub(super) fn datagram(&mut self, output: &mut Output<'_>) -> Sent {
        if self.padding.is_some() {
            return self.padded(output);
        }
        for _ in 0..EMPTY_RUNS_MAX {
            self.pass_splice();
            let tables = self.tables_left.min(DATAGRAM_PACKETS) as u32;
            let count = match self.supply(PACKETS - tables) {
                Supply::Enough => PACKETS - tables,
                Supply::Last(count) => count,
                Supply::Late => return Sent::Late,
            };
            if count + tables > 0 {
                self.write(count, output);
                return Sent::Yes;
            }
            // What is left before the end or the splice is not sent.
            while !self.queue.is_at_splice() && self.queue.peek().is_some() {
                self.advance();
            }
            if self.queue.has_ended() {
                return Sent::Over;
            }
        }
        Sent::Over
    }

    /// Hands over datagrams that lie ready in the chunk, up to `count`, as they lie there. Returns how many, 0 when the
    /// next one has to be written.
    pub(super) fn ready_datagrams(&mut self, count: u8, output: &mut Output<'_>) -> u8 {
        let is_plain = self.spec.transport == Transport::Udp && self.padding.is_none() && !self.rewriter.is_active();
        let is_plain = is_plain && !self.measure.has_monitor();
        if !is_plain || self.tables_left > 0 || self.queue.is_at_splice() || !output.out.has_room_for_shared() {
            return 0;
        }
        let Some((chunk, start, count)) = self.queue.next_pieces(PACKETS, count.into()) else { return 0 };
        let is_queued = output.out.push_shared(&self.spec.path, chunk, start, DATAGRAM_LEN, count as usize);
        debug_assert!(is_queued, "there is room, and the packets are there");
        self.end_position += u64::from(PACKETS * count);
        self.count_sent(u64::from(count), DATAGRAM_LEN as u64, output);
        count as u8
    }

    pub(super) fn supply(&self, count: u32) -> Supply {
        self.queue.supply(count, self.rewriter.pids().map(|pids| &**pids))
    }

    /// Writes tables that are waiting, `count` packets, and null packets up to seven.
    pub(super) fn write(&mut self, count: u32, output: &mut Output<'_>) {
        let due_ns = self.rtp_time();
        let Some(slot) = output.out.slot() else { return };
        let header_len = self.write_header(slot, due_ns);
        let payload = &mut slot[header_len..header_len + DATAGRAM_LEN];
        let takes_all = count == PACKETS && self.rewriter.pids().is_none() && self.queue.pick().is_none();
        if takes_all && let Some((chunk, start, _)) = self.queue.next_pieces(PACKETS, 1) {
            payload.copy_from_slice(&chunk.bytes()[start..start + DATAGRAM_LEN]);
            self.end_position += u64::from(PACKETS);
            if self.rewriter.is_active() {
                self.shown = None;
                for packet in payload.as_chunks_mut::<PACKET_LEN>().0 {
                    self.rewriter.rewrite(packet, Stamp::By(0));
                }
            }
        } else {
            let mut left = count;
            let mut nulls = 0;
            for packet in payload.as_chunks_mut::<PACKET_LEN>().0 {
                if self.tables_left > 0 {
                    self.write_table(packet);
                } else if left > 0 {
                    left -= 1;
                    self.play(packet, Stamp::By(0));
                } else {
                    write_null(packet);
                    nulls += 1;
                }
            }
            self.count_nulls(nulls, output);
        }
        self.commit(header_len, output);
    }

    /// Seven packets of the constant rate. Only the end of the title ends it.
    fn padded(&mut self, output: &mut Output<'_>) -> Sent {
        if self.queue.has_ended() {
            return Sent::Over;
        }
        let due_ns = self.padding.map_or(self.due_ns, |padding| padding.next_ns());
        // Written aside, as a packet may need a look at the whole stream.
        let mut payload = [[0; PACKET_LEN]; DATAGRAM_PACKETS];
        for packet in &mut payload {
            if !self.padded_packet(packet, output) {
                write_null(packet);
                self.count_nulls(1, output);
            }
            if let Some(padding) = &mut self.padding {
                padding.packets += 1;
            }
        }
        let Some(slot) = output.out.slot() else { return Sent::Late };
        let header_len = self.write_header(slot, due_ns);
        slot[header_len..header_len + DATAGRAM_LEN].copy_from_slice(payload.as_flattened());
        self.commit(header_len, output);
        Sent::Yes
    }

    /// Writes what has its place now; false when that is nothing.
    fn padded_packet(&mut self, packet: &mut [u8; PACKET_LEN], output: &mut Output<'_>) -> bool {
        let Some(padding) = self.padding else { return false };
        let place_ns = padding.next_ns();
        self.pass_splice();
        if self.tables_left > 0 {
            self.write_table(packet);
            return true;
        }
        let stamp_is_due = padding.stamped_ns.is_none_or(|at| place_ns - at >= STAMP_NS);
        if self.trick.is_some() && stamp_is_due && self.write_stamp(packet, place_ns) {
            return true;
        }
        while self.queue.peek().is_some_and(|(_, packet)| !self.is_kept(pid_of(packet))) && !self.queue.is_at_splice() {
            self.advance();
        }
        self.pass_splice();
        let Some(due_ns) = self.next_due().filter(|due| *due <= place_ns) else { return false };
        if self.queue.peek().is_none() {
            if !self.is_behind {
                self.stats.underruns += 1;
                output.totals.counters.underruns += 1;
            }
            self.is_behind = true;
            return false;
        }
        let mut late_ns = place_ns - due_ns;
        if late_ns > output.settings.late_max.as_nanos() as i64 {
            // It goes on from here, and so do its timestamps.
            self.origin_ns += late_ns;
            if self.spec.play.restamp && self.trick.is_none() {
                self.activate();
                self.rewriter.shift_clock(ticks(late_ns));
                late_ns = 0;
            }
            self.stats.shifts += u64::from(!self.is_behind);
        }
        self.is_behind = false;
        // Every packet has another place than in the title.
        self.activate();
        let stamp = match self.trick {
            Some(_) => self.output_pcr(place_ns).map_or(Stamp::By(0), Stamp::Is),
            None => Stamp::By(ticks(late_ns)),
        };
        self.play(packet, stamp);
        true
    }

    /// Writes a reference of our own, while pictures are shown.
    fn write_stamp(&mut self, packet: &mut [u8; PACKET_LEN], place_ns: i64) -> bool {
        let Some(pid) = self.spec.title.pcr_pid else { return false };
        let (Some(pcr), Some(renamed)) = (self.output_pcr(place_ns), self.rewriter.renamed(pid)) else { return false };
        let (counter, flag) = (self.rewriter.counter(pid), self.rewriter.take_flag(pid));
        write_pcr_only(packet, renamed, counter, pcr, flag);
        if let Some(padding) = &mut self.padding {
            padding.stamped_ns = Some(place_ns);
        }
        true
    }

    fn write_table(&mut self, packet: &mut [u8; PACKET_LEN]) {
        *packet = self.tables[self.tables.len() - self.tables_left];
        self.tables_left -= 1;
        self.rewriter.insert(packet);
    }

    /// Plays the next packet that is kept.
    fn play(&mut self, packet: &mut [u8; PACKET_LEN], stamp: Stamp) {
        while let Some((_, next)) = self.queue.peek() {
            let is_kept = self.is_kept(pid_of(next));
            packet.copy_from_slice(next);
            self.advance();
            if is_kept {
                if self.rewriter.is_active() {
                    self.time_picture(packet);
                    self.rewriter.rewrite(packet, stamp);
                }
                return;
            }
        }
        write_null(packet);
    }

    /// A single picture is decoded when it is there, whatever its own timestamps were.
    fn time_picture(&mut self, packet: &[u8; PACKET_LEN]) {
        let Some(pick) = self.shown else { return };
        let parsed = Packet::parse(packet).ok().filter(|packet| packet.payload_unit_start());
        let Some(header) = parsed.and_then(|packet| PesHeader::parse(packet.payload())) else { return };
        let until_ns = self.origin_ns + pick.until_ns;
        if let (Some(was), Some(pcr)) = (header.dts.or(header.pts), self.output_pcr(until_ns)) {
            let shown = Timestamp::from_ticks(pcr.ticks() / 300).plus(PICTURE_DELAY);
            self.rewriter.set_timestamp_offset(was.ticks_to(shown));
        }
    }

    /// Goes over the packet at the front.
    fn advance(&mut self) {
        self.shown = self.queue.pick();
        self.end_position = self.queue.position().map_or(self.end_position, |position| position + 1);
        if let Some((done, played)) = self.queue.advance()
            && !self.rewriter.is_active()
        {
            if played == done.packet_count() {
                self.rewriter.learn(done.continuity().iter().copied());
            } else {
                self.rewriter.learn(counters(&done, played));
            }
        }
    }

    fn is_kept(&self, pid: Pid) -> bool {
        let is_shown = self.queue.pick().is_none() || self.spec.title.video.is_some_and(|(video, _)| video == pid);
        is_shown && self.rewriter.renamed(pid).is_some()
    }

    /// A datagram of null packets, to fill a gap.
    pub(super) fn null_datagram(&mut self, due_ns: i64, output: &mut Output<'_>) {
        let Some(slot) = output.out.slot() else { return };
        let header_len = self.write_header(slot, due_ns);
        for packet in slot[header_len..header_len + DATAGRAM_LEN].as_chunks_mut::<PACKET_LEN>().0 {
            write_null(packet);
        }
        self.count_nulls(DATAGRAM_PACKETS as u64, output);
        self.commit(header_len, output);
    }

    /// The time that the next datagram's timestamp stands for. Only RTP has one.
    pub(super) fn rtp_time(&mut self) -> i64 {
        match self.spec.transport {
            Transport::Udp => 0,
            Transport::Rtp { .. } => {
                let due_ns = self.next_due().unwrap_or(self.due_ns);
                // A timestamp is the time by the title's pace, also of what goes out ahead of it.
                due_ns + self.pace.as_ref().map_or(0, |pace| pace.ahead_ns(due_ns - self.origin_ns))
            }
        }
    }

    fn write_header(&mut self, slot: &mut [u8], due_ns: i64) -> usize {
        let Transport::Rtp { ssrc, .. } = self.spec.transport else { return 0 };
        let zero_ns = *self.rtp_zero_ns.get_or_insert(due_ns);
        let timestamp = self.timestamp_at(zero_ns, due_ns);
        let marker = std::mem::take(&mut self.rtp_marker);
        let len = write_rtp_header(slot, self.seq, timestamp, ssrc, marker).unwrap_or(0);
        self.seq = self.seq.plus(1);
        len
    }

    fn commit(&mut self, header_len: usize, output: &mut Output<'_>) {
        let len = header_len + DATAGRAM_LEN;
        if let Some(fec) = &mut self.fec
            && let Some(slot) = output.out.slot()
        {
            fec.add(&slot[..len]);
        }
        if self.measure.has_monitor()
            && let Some(slot) = output.out.slot()
        {
            self.measure.add(&slot[..len], output.totals);
        }
        output.out.commit(&self.spec.path, len);
        self.count_sent(1, len as u64, output);
    }

    fn count_sent(&mut self, count: u64, len: u64, output: &mut Output<'_>) {
        self.stats.datagrams += count;
        self.stats.bytes += count * len;
        output.totals.counters.datagrams += count;
        output.totals.counters.bytes += count * len;
    }

    fn count_nulls(&mut self, count: u64, output: &mut Output<'_>) {
        self.stats.nulls += count;
        output.totals.counters.nulls += count;
    }
}

/// The continuity counters of a chunk's first packets, those with payload.
pub(super) fn counters(chunk: &Chunk, packets: u32) -> impl Iterator<Item = (Pid, u8)> + use<'_> {
    let packets = chunk.bytes().as_chunks::<PACKET_LEN>().0.iter().take(packets as usize);
    let counters = packets.filter(|packet| packet[3] & 0x10 != 0).map(|packet| (pid_of(packet), packet[3] & 0x0f));
    counters.filter(|(pid, _)| *pid != Pid::NULL)
}

fn pid_of(packet: &[u8; PACKET_LEN]) -> Pid {
    Pid::from_bytes(packet[1], packet[2])
}
