//! PAT and PMT as a receiver gets them, when PIDs have other numbers or are left out.
//!
//! In: the packets of a table's PID. Out: as many packets, of the table written anew; null packets where it got shorter.
//! Cost: one copy of the section per repetition; an allocation only when a table changes.

use wire::ts::{PACKET_LEN, Packet, Pat, Pid, Pmt, SECTION_LEN_MAX, Section, SectionBuffer};
use wire::ts::{rewrite_pat, rewrite_pmt, section_packets, write_null};

use crate::pids::PidMap;

/// One table. A PID on which several are sent keeps the last only.
#[derive(Clone, Debug)]
pub(crate) struct TableRewriter {
    pid: Pid,
    buffer: SectionBuffer,
    /// The section from which `packets` were made.
    section: Vec<u8>,
    packets: Vec<[u8; PACKET_LEN]>,
    /// The packet to send next.
    next: usize,
}

impl TableRewriter {
    /// Begins with the section that is known of the title; it may be empty.
    pub(crate) fn new(pid: Pid, section: &[u8], pids: &PidMap) -> Self {
        let (buffer, packets) = (SectionBuffer::default(), Vec::new());
        let mut table = TableRewriter { pid, buffer, section: Vec::new(), packets, next: 0 };
        table.write(section, pids);
        table
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Puts the packet of the table that is due in the place of `packet`. Its PID and counter are not final.
    pub(crate) fn rewrite(&mut self, packet: &mut [u8; PACKET_LEN], pids: &PidMap) {
        let Ok(parsed) = Packet::parse(packet) else { return };
        if !parsed.has_payload() {
            return;
        }
        let starts = parsed.payload_unit_start();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.push(&parsed, |section| self.write(section, pids));
        self.buffer = buffer;
        if starts {
            self.next = 0;
        }
        let counter = packet[3] & 0x0f;
        match self.packets.get(self.next) {
            Some(other) => *packet = *other,
            None => write_null(packet),
        }
        packet[3] |= counter;
        self.next += 1;
    }

    fn write(&mut self, section: &[u8], pids: &PidMap) {
        if section == self.section {
            return;
        }
        let Ok(parsed) = Section::parse(section) else { return };
        let mut buf = [0; SECTION_LEN_MAX];
        let pid = |pid| pids.get(pid);
        let len = match (Pat::parse(parsed), Pmt::parse(parsed)) {
            (Ok(pat), _) => rewrite_pat(&mut buf, &pat, pid),
            (_, Ok(pmt)) => rewrite_pmt(&mut buf, &pmt, pid),
            _ => None,
        };
        let Some(len) = len else { return };
        self.section = section.to_vec();
        self.packets.clear();
        section_packets(&buf[..len], self.pid, 0, |packet| self.packets.push(*packet));
    }
}
