//! Finds out what a live stream is: its tables, its clock, its rate.
//!
//! In: packets with their times of arrival. Out: a `Title`, and the references of its clock so far.
//! Cost: a copy of each packet while it looks, and a probe every tenth of a second.

use wire::ts::{PACKET_LEN, Packet, Pcr, Pid};

use super::recovery::Recovery;
use crate::title::{CHUNK_PACKETS, Title};

/// It listens for so long at least, to know the rate, and how uneven arrivals are.
const LISTEN_NS: i64 = 500_000_000;

/// From one probe to the next.
const PROBE_NS: i64 = 100_000_000;

/// Tables that have not come by then are taken not to be there.
const TABLES_NS: i64 = 2_000_000_000;

/// Bytes that are looked at; when they tell nothing it begins anew.
const HEAD_MAX: usize = 4 << 20;

#[derive(Debug, Default)]
pub(super) struct Search {
    since_ns: Option<i64>,
    probed_ns: i64,
    head: Vec<u8>,
    /// When each packet of the head arrived.
    arrivals: Vec<i64>,
    references: Vec<(Pid, Pcr, i64)>,
}

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) title: Title,
    /// The line on which the references so far lie. It has not noted them.
    pub(super) recovery: Recovery,
    /// All packets so far, and when each arrived.
    pub(super) head: Vec<u8>,
    pub(super) arrivals: Vec<i64>,
}

impl Search {
    pub(super) fn push(&mut self, arrived_ns: i64, packet: &Packet<'_>, step_ns: i64) -> Option<Found> {
        if self.head.len() >= HEAD_MAX {
            *self = Search::default();
        }
        let since_ns = *self.since_ns.get_or_insert(arrived_ns);
        self.head.extend(packet.bytes());
        self.arrivals.push(arrived_ns);
        if let Some(pcr) = packet.pcr() {
            self.references.push((packet.pid(), pcr, arrived_ns));
        }
        let listened_ns = arrived_ns.saturating_sub(since_ns);
        if listened_ns < LISTEN_NS || arrived_ns.saturating_sub(self.probed_ns) < PROBE_NS {
            return None;
        }
        self.probed_ns = arrived_ns;
        let len = self.head.len().max(2 * PACKET_LEN) as u64;
        let title = Title::probe(&self.head, len, CHUNK_PACKETS).ok()?;
        let has_tables = title.program_number.is_some() || listened_ns > TABLES_NS;
        let pcr_pid = title.pcr_pid.filter(|_| has_tables && title.slope.is_some())?;
        let recovery = self.recovery(pcr_pid, step_ns)?;
        let Search { head, arrivals, .. } = std::mem::take(self);
        Some(Found { title, recovery, head, arrivals })
    }

    /// A line through the references behind the last jump.
    fn recovery(&self, pcr_pid: Pid, step_ns: i64) -> Option<Recovery> {
        let of_pid = || self.references.iter().filter(|(pid, ..)| *pid == pcr_pid);
        let mut run: Vec<(Pcr, i64)> = Vec::new();
        for (_, pcr, arrived_ns) in of_pid() {
            if run
                .last()
                .is_some_and(|(last, at_ns)| !Recovery::new(*last, *at_ns, step_ns).continues(*pcr, *arrived_ns))
            {
                run.clear();
            }
            run.push((*pcr, *arrived_ns));
        }
        let (first, _) = *run.first()?;
        let errors = run.iter().map(|(pcr, arrived_ns)| arrived_ns - first.ticks_to(*pcr) * 1_000 / 27);
        let at_ns = errors.sum::<i64>() / run.len() as i64;
        Some(Recovery::new(first, at_ns, step_ns))
    }
}
