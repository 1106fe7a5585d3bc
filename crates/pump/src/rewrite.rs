//! Makes what is sent continue, where what is read does not: counters, clock references, timestamps, PIDs.
//!
//! In: packets in the order of sending; a word at each splice. Out: the same packets, changed in place.
//! Counters and clocks are changed by an offset, which is zero until the first splice: so a fault in the title stays a
//! fault, and a stream that plays straight through is not looked at. What was sent until then is learnt at the splice.
//! Cost: none before the first splice; then a few nanoseconds per packet and a look-up of its PID.
//! Source: ISO/IEC 13818-1 §2.4.3.3 (continuity counter), §2.4.3.5 (PCR, discontinuity), §2.4.3.7 (PTS, DTS).

use std::sync::Arc;

use wire::ts::{
    PACKET_LEN, Packet, Pcr, Pid, SYNC_BYTE, set_continuity, set_discontinuity, set_pcr, set_pid, shift_timestamps,
    write_null,
};

use crate::pids::PidMap;
use crate::tables::TableRewriter;
use crate::title::Title;

/// What becomes of a clock reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// It is later by these ticks of 27 MHz, and the offset.
    By(i64),
    /// It is this.
    Is(Pcr),
}

#[derive(Clone, Copy, Debug)]
struct PidState {
    pid: Pid,
    /// Added to each counter.
    offset: u8,
    /// The counter of the last packet that was sent.
    last: u8,
    /// The next packet's counter is to continue `last`, whatever it is.
    is_fresh: bool,
    /// The next reference is to be flagged.
    needs_flag: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Rewriter {
    /// Packets are changed.
    pub(crate) is_active: bool,
    /// Ticks of 27 MHz by which references are later than in the title; whole ticks of 90 kHz.
    pub(crate) clock_offset: i64,
    /// Ticks that rounding has kept back so far: they are part of the next shift, so that loops do not add up to a drift.
    kept_back: i64,
    /// Ticks of 90 kHz by which timestamps are.
    pub(crate) timestamp_offset: i64,
    states: Vec<PidState>,
    /// The state that was used last.
    hit: usize,
    /// Where some packets are left out, or renamed.
    pub(crate) pids: Option<Arc<PidMap>>,
    tables: Vec<TableRewriter>,
}

impl Rewriter {
    pub(crate) fn new(title: &Title, pids: Option<Arc<PidMap>>) -> Self {
        let tables = pids.as_ref().map_or_else(Vec::new, |pids| {
            let pat = TableRewriter::new(Pid::PAT, &title.pat, pids);
            let pmts = title.programs.iter().map(|program| TableRewriter::new(program.pmt_pid, &program.pmt, pids));
            [pat].into_iter().chain(pmts).collect()
        });
        Rewriter { is_active: pids.is_some(), pids, tables, ..Rewriter::default() }
    }

    /// Begins to change packets. `sent` gives the last counter of each PID that was sent so far.
    pub(crate) fn activate(&mut self, sent: impl Iterator<Item = (Pid, u8)>) {
        if !self.is_active {
            self.is_active = true;
            self.learn(sent);
        }
    }

    /// Changes packets no more, when all that it does to them is nothing.
    pub(crate) fn rest(&mut self) {
        let is_idle = |state: &PidState| state.offset & 0x0f == 0 && !state.is_fresh && !state.needs_flag;
        let is_shifted = self.clock_offset != 0 || self.timestamp_offset != 0 || self.kept_back != 0;
        if !is_shifted && self.pids.is_none() && self.states.iter().all(is_idle) {
            self.is_active = false;
        }
    }

    /// Notes counters of packets that were sent as they are.
    pub(crate) fn learn(&mut self, sent: impl Iterator<Item = (Pid, u8)>) {
        for (pid, counter) in sent {
            self.state(pid).last = counter;
        }
    }

    /// Makes references and timestamps later by `ticks` of 27 MHz from now on, rounded to ticks of 90 kHz.
    pub(crate) fn shift_clock(&mut self, ticks: i64) {
        let ticks = ticks + self.kept_back;
        let ticks_90k = (ticks + 150).div_euclid(300);
        self.kept_back = ticks - 300 * ticks_90k;
        self.timestamp_offset += ticks_90k;
        self.clock_offset += 300 * ticks_90k;
    }

    /// Timestamps are as late as references again.
    pub(crate) fn join_offsets(&mut self) {
        self.timestamp_offset = self.clock_offset / 300;
    }

    /// What comes next does not continue what was; make it. With `flag` the first reference of each PID is flagged.
    pub(crate) fn splice(&mut self, flag: bool) {
        for state in &mut self.states {
            state.is_fresh = true;
            state.needs_flag |= flag;
        }
    }

    /// The counter that a packet without payload has now.
    pub(crate) fn counter(&mut self, pid: Pid) -> u8 {
        self.state(pid).last
    }

    /// The next reference of the PID is flagged.
    pub(crate) fn flag(&mut self, pid: Pid) {
        self.state(pid).needs_flag = true;
    }

    /// Whether the next reference of the PID is to be flagged; it is seen to.
    pub(crate) fn take_flag(&mut self, pid: Pid) -> bool {
        std::mem::take(&mut self.state(pid).needs_flag)
    }

    /// The PID as which packets of `pid` are sent.
    #[inline]
    pub(crate) fn renamed(&self, pid: Pid) -> Option<Pid> {
        self.pids.as_ref().map_or(Some(pid), |pids| pids.get(pid))
    }

    /// Changes a packet of the title.
    #[inline]
    pub(crate) fn rewrite(&mut self, packet: &mut [u8; PACKET_LEN], stamp: Stamp) {
        if self.pids.is_some() || !is_plain(packet) {
            return self.rewrite_any(packet, stamp);
        }
        let pid = Pid::from_bytes(packet[1], packet[2]);
        if pid != Pid::NULL {
            let counter = self.next_counter(pid, packet[3] & 0x0f, true);
            set_continuity(packet, counter);
        }
    }

    fn rewrite_any(&mut self, packet: &mut [u8; PACKET_LEN], stamp: Stamp) {
        let Ok(parsed) = Packet::parse(packet) else { return };
        let pid = parsed.pid();
        if pid == Pid::NULL {
            return;
        }
        let (has_payload, counter) = (parsed.has_payload(), parsed.continuity());
        let (pcr, starts) = (parsed.pcr(), parsed.payload_unit_start() && !parsed.is_scrambled());
        let payload_start = PACKET_LEN - parsed.payload().len();
        self.rewrite_table(pid, packet);
        let counter = self.next_counter(pid, counter, has_payload);
        set_continuity(packet, counter);
        if let Some(pcr) = pcr {
            let stamped = match stamp {
                Stamp::By(ticks) => pcr.plus(self.clock_offset + ticks),
                Stamp::Is(pcr) => pcr,
            };
            set_pcr(packet, stamped);
            if self.take_flag(pid) {
                set_discontinuity(packet, true);
            }
        }
        if starts && self.timestamp_offset != 0 {
            shift_timestamps(&mut packet[payload_start..], self.timestamp_offset);
        }
        self.rename(pid, packet);
    }

    /// Changes a packet that is sent in between those of the title: its counter continues, and theirs after it.
    pub(crate) fn insert(&mut self, packet: &mut [u8; PACKET_LEN]) {
        let pid = Pid::from_bytes(packet[1], packet[2]);
        self.rewrite_table(pid, packet);
        let is_first = self.states.iter().all(|state| state.pid != pid);
        let state = self.state(pid);
        state.is_fresh |= is_first;
        state.last = state.last.wrapping_add(1) & 0x0f;
        state.offset = state.offset.wrapping_add(1);
        set_continuity(packet, state.last);
        self.rename(pid, packet);
    }

    fn next_counter(&mut self, pid: Pid, counter: u8, has_payload: bool) -> u8 {
        let state = self.state(pid);
        if state.is_fresh {
            state.is_fresh = false;
            state.offset = state.last.wrapping_add(has_payload.into()).wrapping_sub(counter);
        }
        state.last = counter.wrapping_add(state.offset) & 0x0f;
        state.last
    }

    fn rewrite_table(&mut self, pid: Pid, packet: &mut [u8; PACKET_LEN]) {
        let Some(pids) = &self.pids else { return };
        if let Some(table) = self.tables.iter_mut().find(|table| table.pid == pid) {
            table.rewrite(packet, pids);
        }
    }

    fn rename(&self, pid: Pid, packet: &mut [u8; PACKET_LEN]) {
        let is_null = Pid::from_bytes(packet[1], packet[2]) == Pid::NULL;
        match self.renamed(pid) {
            Some(_) if is_null => {}
            Some(other) => set_pid(packet, other),
            None => write_null(packet),
        }
    }

    #[inline]
    fn state(&mut self, pid: Pid) -> &mut PidState {
        if self.states.get(self.hit).is_none_or(|state| state.pid != pid) {
            self.hit = self.states.iter().position(|state| state.pid == pid).unwrap_or_else(|| {
                // Of a PID that was not sent yet, the first packet keeps its counter.
                let fresh = PidState { pid, offset: 0, last: 0x0f, is_fresh: false, needs_flag: false };
                self.states.push(fresh);
                self.states.len() - 1
            });
        }
        &mut self.states[self.hit]
    }
}

/// Whether a packet has a payload in which nothing begins, and nothing else: most have. Then it has no clock.
#[inline]
fn is_plain(packet: &[u8; PACKET_LEN]) -> bool {
    packet[0] == SYNC_BYTE && packet[1] & 0xc0 == 0 && packet[3] & 0x30 == 0x10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, VIDEO_PID};

    #[test]
    fn who_has_only_flagged_a_reference_looks_at_no_packet_behind_it() {
        let bytes = Sample { pictures: 5, ..Sample::default() }.make();
        let title = Title::probe(&bytes, bytes.len() as u64, 700).expect("a title");
        for shift in [0, 27_000_000] {
            let mut rewriter = Rewriter::new(&title, None);
            rewriter.activate(std::iter::empty());
            rewriter.flag(VIDEO_PID);
            rewriter.shift_clock(shift);
            rewriter.rest();
            assert!(rewriter.is_active, "the flag is still to be sent");
            let mut flags = 0;
            for packet in bytes.as_chunks::<PACKET_LEN>().0 {
                let mut sent = *packet;
                rewriter.rewrite(&mut sent, Stamp::By(0));
                flags += u32::from(sent != *packet);
            }
            rewriter.rest();
            assert_eq!((rewriter.is_active, flags == 1), (shift != 0, shift == 0), "{flags}");
        }
    }
}
