//! The first two priorities of ETSI TR 101 290 as counters.
//!
//! In: packets with the time of their arrival. Out: how often each of the standard's conditions was met.
//! A condition that lasts (a table that does not come) counts once per its period.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use wire::ts::{Packet, Pat, Pcr, PesHeader, Pid, Pmt, Section, SectionBuffer, SectionError};

/// Errors by their number in TR 101 290 §5.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priorities {
    /// 1.1: two sync bytes in a row were wrong.
    pub sync_loss: u64,
    /// 1.2
    pub sync_byte: u64,
    /// 1.3: no PAT for 0.5 s, or PID 0 is scrambled or has another table.
    pub pat: u64,
    /// 1.4
    pub continuity: u64,
    /// 1.5: no PMT for 0.5 s, or it is scrambled.
    pub pmt: u64,
    /// 1.6: a PID that a PMT names did not come for 5 s.
    pub pid: u64,
    /// 2.1: transport_error_indicator.
    pub transport: u64,
    /// 2.2: of a PAT or PMT.
    pub crc: u64,
    /// 2.3a: more than 100 ms from reference to reference.
    pub pcr_repetition: u64,
    /// 2.3b: consecutive references more than 100 ms apart, or backwards, without the indicator.
    pub pcr_discontinuity: u64,
    /// 2.4: more than 500 ns from where the reference should be.
    pub pcr_accuracy: u64,
    /// 2.5: more than 700 ms from PTS to PTS.
    pub pts: u64,
    /// 2.6: scrambled packets, and no CAT.
    pub cat: u64,
}

impl Priorities {
    /// All counts of priority 1, and of priority 2.
    pub fn sums(&self) -> (u64, u64) {
        let first = [self.sync_loss, self.sync_byte, self.pat, self.continuity, self.pmt, self.pid];
        let second = [self.transport, self.crc, self.pcr_repetition, self.pcr_discontinuity, self.pcr_accuracy];
        (first.iter().sum(), second.iter().sum::<u64>() + self.pts + self.cat)
    }
}

const TABLE_NS: u64 = 500_000_000;
const PID_NS: u64 = 5_000_000_000;
const PCR_NS: u64 = 100_000_000;
const PTS_NS: u64 = 700_000_000;
const ACCURACY_NS: u64 = 500;

/// Once in this time all PIDs are looked through for those that do not come.
const SWEEP_NS: u64 = 100_000_000;

/// PIDs that are watched; of more, only these.
const PIDS_MAX: usize = 256;

/// What something that comes again and again was last seen doing. Zero length: it need not come.
#[derive(Clone, Copy, Debug)]
struct Period {
    last_ns: u64,
    max_ns: u64,
}

impl Period {
    /// How often it was due and did not come; then it counts from now.
    fn missed(&mut self, now_ns: u64) -> u64 {
        let over = now_ns.saturating_sub(self.last_ns) > self.max_ns;
        if over {
            self.last_ns = now_ns;
        }
        over.into()
    }
}

#[derive(Debug)]
struct PidWatch {
    seen: Period,
    is_named: bool,
    counter: Option<u8>,
    is_repeated: bool,
    pcr: Option<(Pcr, Period)>,
    pts: Option<Period>,
    /// Of a PID with tables.
    table: Option<(SectionBuffer, Period)>,
}

impl PidWatch {
    fn new(at_ns: u64) -> Self {
        let seen = Period { last_ns: at_ns, max_ns: PID_NS };
        PidWatch { seen, is_named: false, counter: None, is_repeated: false, pcr: None, pts: None, table: None }
    }

    /// Packets that are missing before this one (§5.2.1, 1.4), and whether it is out of order.
    fn continuity(&mut self, packet: &Packet<'_>) -> (u64, bool) {
        let counter = packet.continuity();
        let Some(last) = self.counter.replace(counter) else { return (0, false) };
        if packet.discontinuity() {
            return (0, false);
        }
        let step = counter.wrapping_sub(last) & 0x0f;
        if !packet.has_payload() {
            return (0, step != 0);
        }
        let was_repeated = std::mem::replace(&mut self.is_repeated, step == 0);
        match step {
            0 => (0, was_repeated),
            1 => (0, false),
            _ => (u64::from(step) - 1, true),
        }
    }
}

/// Watches one stream.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) counts: Priorities,
    pids: HashMap<Pid, PidWatch, FxBuildHasher>,
    is_out_of_sync: bool,
    wrong_sync_bytes: u32,
    has_cat: bool,
    swept_ns: Option<u64>,
}

impl Watch {
    pub(super) fn sync_byte(&mut self) {
        self.counts.sync_byte += 1;
        self.wrong_sync_bytes += 1;
        if self.wrong_sync_bytes == 2 && !self.is_out_of_sync {
            self.is_out_of_sync = true;
            self.counts.sync_loss += 1;
        }
    }

    pub(super) fn in_sync(&mut self) {
        (self.wrong_sync_bytes, self.is_out_of_sync) = (0, false);
    }

    /// True when that is an error.
    pub(super) fn accuracy(&mut self, off_ns: u64) -> bool {
        let is_error = off_ns > ACCURACY_NS;
        self.counts.pcr_accuracy += u64::from(is_error);
        is_error
    }

    /// Takes a packet that is no null packet. Returns how many are missing before it.
    pub(crate) fn packet(&mut self, at_ns: u64, packet: &Packet<'_>) -> u64 {
        if self.swept_ns.is_none() {
            self.expect_table(at_ns, Pid::PAT);
        }
        if at_ns.saturating_sub(*self.swept_ns.get_or_insert(at_ns)) >= SWEEP_NS {
            self.sweep(at_ns);
        }
        self.counts.transport += u64::from(packet.transport_error());
        let pid = packet.pid();
        self.has_cat |= pid == Pid::CAT;
        self.counts.cat += u64::from(packet.is_scrambled() && !self.has_cat);
        if self.pids.len() >= PIDS_MAX && !self.pids.contains_key(&pid) {
            return 0;
        }
        let watch = self.pids.entry(pid).or_insert_with(|| PidWatch::new(at_ns));
        watch.seen.last_ns = at_ns;
        let (lost, is_wrong) = watch.continuity(packet);
        self.counts.continuity += u64::from(is_wrong);
        watch.clock(at_ns, packet, &mut self.counts);
        if watch.table.is_some() {
            self.table(at_ns, packet);
        } else {
            watch.timestamp(at_ns, packet);
        }
        lost
    }

    fn expect_table(&mut self, at_ns: u64, pid: Pid) {
        let watch = self.pids.entry(pid).or_insert_with(|| PidWatch::new(at_ns));
        let period = Period { last_ns: at_ns, max_ns: TABLE_NS };
        watch.table.get_or_insert_with(|| (SectionBuffer::default(), period));
    }

    fn table(&mut self, at_ns: u64, packet: &Packet<'_>) {
        let pid = packet.pid();
        let Some((mut buffer, mut period)) = self.pids.get_mut(&pid).and_then(|watch| watch.table.take()) else {
            return;
        };
        let count = if pid == Pid::PAT { &mut self.counts.pat } else { &mut self.counts.pmt };
        *count += u64::from(packet.is_scrambled());
        let mut named: Vec<(Pid, bool)> = Vec::new();
        let (mut crc, mut wrong) = (0, 0);
        buffer.push(packet, |bytes| match Section::parse(bytes) {
            Ok(section) if pid == Pid::PAT => match Pat::parse(section) {
                Ok(pat) => {
                    period.last_ns = at_ns;
                    let programs = pat.programs().filter(|(number, _)| *number != 0);
                    named.extend(programs.map(|(_, pmt_pid)| (pmt_pid, true)));
                }
                // Announced, and no error.
                Err(SectionError::NotCurrent) => {}
                Err(_) => wrong += 1,
            },
            Ok(section) => {
                if let Ok(pmt) = Pmt::parse(section) {
                    period.last_ns = at_ns;
                    named.extend(pmt.streams().map(|stream| (stream.pid, false)));
                }
            }
            Err(SectionError::Crc) => crc += 1,
            Err(_) => wrong += u64::from(pid == Pid::PAT),
        });
        *count += wrong;
        self.counts.crc += crc;
        if let Some(watch) = self.pids.get_mut(&pid) {
            watch.table = Some((buffer, period));
        }
        for (pid, is_table) in named {
            if is_table {
                self.expect_table(at_ns, pid);
            }
            if self.pids.len() < PIDS_MAX {
                self.pids.entry(pid).or_insert_with(|| PidWatch::new(at_ns)).is_named = true;
            }
        }
    }

    /// Counts what did not come.
    fn sweep(&mut self, at_ns: u64) {
        self.swept_ns = Some(at_ns);
        let counts = &mut self.counts;
        for (pid, watch) in &mut self.pids {
            if let Some((_, period)) = &mut watch.table {
                let count = if *pid == Pid::PAT { &mut counts.pat } else { &mut counts.pmt };
                *count += period.missed(at_ns);
            } else if watch.is_named {
                counts.pid += watch.seen.missed(at_ns);
            }
            if let Some((_, period)) = &mut watch.pcr {
                counts.pcr_repetition += period.missed(at_ns);
            }
            if let Some(period) = &mut watch.pts {
                counts.pts += period.missed(at_ns);
            }
        }
    }
}

impl PidWatch {
    fn clock(&mut self, at_ns: u64, packet: &Packet<'_>, counts: &mut Priorities) {
        let Some(pcr) = packet.pcr() else { return };
        if let Some((last, mut period)) = self.pcr {
            counts.pcr_repetition += period.missed(at_ns);
            let step_ns = i128::from(last.ticks_to(pcr)) * 1_000 / 27;
            let continues = (0..=i128::from(PCR_NS)).contains(&step_ns);
            counts.pcr_discontinuity += u64::from(!continues && !packet.discontinuity());
        }
        self.pcr = Some((pcr, Period { last_ns: at_ns, max_ns: PCR_NS }));
    }

    fn timestamp(&mut self, at_ns: u64, packet: &Packet<'_>) {
        if !packet.payload_unit_start() || packet.is_scrambled() {
            return;
        }
        if PesHeader::parse(packet.payload()).is_some_and(|header| header.pts.is_some()) {
            self.pts = Some(Period { last_ns: at_ns, max_ns: PTS_NS });
        }
    }
}
