//! Which PIDs of a title are sent, and as which.

use wire::ts::Pid;

use crate::title::Title;

/// Stands for a PID that is left out.
const DROPPED: u16 = u16::MAX;

/// A map of all PIDs; shared by the sessions that have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PidMap {
    to: Box<[u16; Pid::COUNT]>,
}

impl PidMap {
    /// Keeps the PIDs in `keep` (`None`: all), and gives those in `rename` another number. What the tables of a kept
    /// program need stays as well: PAT, the PMT of the title's program, and its PCR PID.
    pub fn new(title: &Title, keep: Option<&[Pid]>, rename: &[(Pid, Pid)]) -> PidMap {
        let mut to = Box::new([DROPPED; Pid::COUNT]);
        let mut map = |from: Pid, pid: Pid| to[usize::from(from.number())] = pid.number();
        match keep {
            None => (0..Pid::COUNT as u16).filter_map(Pid::new).for_each(|pid| map(pid, pid)),
            Some(keep) => {
                let tables = title.program().map(|program| program.pmt_pid);
                let needed = [Some(Pid::PAT), tables, title.pcr_pid].into_iter().flatten();
                keep.iter().copied().chain(needed).for_each(|pid| map(pid, pid));
            }
        }
        for (from, pid) in rename {
            map(*from, *pid);
        }
        PidMap { to }
    }

    /// The PID as which packets of `pid` are sent; `None` when they are not.
    #[inline]
    pub fn get(&self, pid: Pid) -> Option<Pid> {
        Pid::new(self.to[usize::from(pid.number())])
    }
}
