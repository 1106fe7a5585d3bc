//! PAT and PMT as a receiver gets them, when PIDs have other numbers or are left out.
//!
//! In: the packets of a table's PID. Out: as many packets, of the table written anew; null packets where it got shorter.
//! Cost: one copy of the section per repetition; an allocation only when a table changes.

use wire::ts::{PACKET_LEN, Packet, Pat, Pid, Pmt, SECTION_LEN_MAX, Section, SectionBuffer};
use wire::ts::{rewrite_pat, rewrite_pmt, section_packets, set_continuity, write_null};

use crate::pids::PidMap;

/// One table. A PID on which several are sent keeps the last only.
#[derive(Clone, Debug)]
pub(crate) struct TableRewriter {
    pub(crate) pid: Pid,
    buffer: SectionBuffer,
    written: Written,
    /// The packet to send next.
    next: usize,
}

/// A table written anew.
#[derive(Clone, Debug, Default)]
struct Written {
    /// As it was.
    section: Vec<u8>,
    packets: Vec<[u8; PACKET_LEN]>,
}

impl TableRewriter {
    /// Begins with the section that is known of the title; it may be empty.
    pub(crate) fn new(pid: Pid, section: &[u8], pids: &PidMap) -> Self {
        let mut written = Written::default();
        written.write(section, pid, pids);
        TableRewriter { pid, buffer: SectionBuffer::default(), written, next: 0 }
    }

    /// Puts the packet of the table that is due in the place of `packet`. Its PID and counter are not final.
    pub(crate) fn rewrite(&mut self, packet: &mut [u8; PACKET_LEN], pids: &PidMap) {
        let TableRewriter { pid, buffer, written, next } = self;
        let Ok(parsed) = Packet::parse(packet) else { return };
        if !parsed.has_payload() {
            return;
        }
        buffer.push(&parsed, |section| written.write(section, *pid, pids));
        if parsed.payload_unit_start() {
            *next = 0;
        }
        let counter = parsed.continuity();
        match written.packets.get(*next) {
            Some(other) => *packet = *other,
            None => write_null(packet),
        }
        set_continuity(packet, counter);
        *next += 1;
    }
}

impl Written {
    fn write(&mut self, section: &[u8], pid: Pid, pids: &PidMap) {
        if section == self.section {
            return;
        }
        let Ok(parsed) = Section::parse(section) else { return };
        let mut buf = [0; SECTION_LEN_MAX];
        let renamed = |pid| pids.get(pid);
        let len = match (Pat::parse(parsed), Pmt::parse(parsed)) {
            (Ok(pat), _) => rewrite_pat(&mut buf, &pat, renamed),
            (_, Ok(pmt)) => rewrite_pmt(&mut buf, &pmt, renamed),
            _ => None,
        };
        let Some(len) = len else { return };
        self.section = section.to_vec();
        self.packets.clear();
        section_packets(&buf[..len], pid, 0, |packet| self.packets.push(*packet));
    }
}
