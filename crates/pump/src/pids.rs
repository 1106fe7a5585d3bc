//! Which PIDs of a title are sent, and as which.

use std::ops::RangeInclusive;

use wire::ts::{Pid, Pmt, Section};

use crate::title::Title;

/// Stands for a PID that is left out.
const DROPPED: u16 = u16::MAX;

/// PIDs of streams: below them are those of tables (ISO/IEC 13818-1 §2.4.3.3, ETSI EN 300 468 §5.1.3), above null packets.
const STREAMS: RangeInclusive<u16> = 0x20..=0x1ffe;

/// Why PIDs cannot be renamed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum RenameError {
    #[error(
        "rename has PID {0}; from and to are 32 to 8190, as PIDs below are for tables and 8191 is for null packets"
    )]
    Reserved(u16),
    #[error("rename makes more than one PID {0}")]
    Twice(u16),
    #[error(
        "rename makes another PID {0} than the title's own; take one that it does not have, or rename that one too"
    )]
    Taken(u16),
}

/// Whether `rename` leaves streams that can be told apart. `seen`: PIDs that the title is known to have beside those that its
/// tables name.
///
/// # Errors
/// Why not.
pub fn check_rename(
    title: &Title,
    seen: impl IntoIterator<Item = Pid>,
    keep: Option<&[Pid]>,
    rename: &[(Pid, Pid)],
) -> Result<(), RenameError> {
    let has = |side: fn(&(Pid, Pid)) -> Pid, pid: Pid| rename.iter().filter(move |pair| side(pair) == pid).count();
    for number in rename.iter().flat_map(|(from, to)| [from.number(), to.number()]) {
        if !STREAMS.contains(&number) {
            return Err(RenameError::Reserved(number));
        }
    }
    if let Some((_, to)) = rename.iter().find(|(_, to)| has(|(_, to)| *to, *to) > 1) {
        return Err(RenameError::Twice(to.number()));
    }
    let kept = PidMap::new(title, keep, &[]);
    let known = named(title).into_iter().chain(seen);
    let stays = |pid: &Pid| kept.get(*pid).is_some() && has(|(from, _)| *from, *pid) == 0;
    match known.into_iter().filter(stays).find(|pid| has(|(_, to)| *to, *pid) > 0) {
        Some(pid) => Err(RenameError::Taken(pid.number())),
        None => Ok(()),
    }
}

/// The PIDs that a title's tables name.
fn named(title: &Title) -> Vec<Pid> {
    let mut pids: Vec<Pid> = title.pcr_pid.into_iter().collect();
    for program in &title.programs {
        pids.push(program.pmt_pid);
        if let Ok(pmt) = Section::parse(&program.pmt).and_then(Pmt::parse) {
            pids.push(pmt.pcr_pid());
            pids.extend(pmt.streams().map(|stream| stream.pid));
        }
    }
    pids
}

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
