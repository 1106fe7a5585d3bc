//! What is known of the stream that comes, and where in it one can begin.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::ts::{Packet, Pat, Pid, Pmt, Section, SectionBuffer};

use crate::picture::{Finder, Found};
use crate::title::Title;

/// Places that are remembered of each kind; the oldest are forgotten.
const PLACES_MAX: usize = 256;

/// Tables further before a picture than this do not belong to it: half a second of 20 Mbit/s.
const TABLES_BEFORE_MAX: u64 = 7_000;

#[derive(Debug)]
pub(super) struct Tuned {
    pub(super) title: Arc<Title>,
    pmt_pid: Option<Pid>,
    pat: SectionBuffer,
    pmt: SectionBuffer,
    finder: Option<(Pid, Finder)>,
    /// Where the picture began whose kind is not told yet.
    picture: u64,
    /// Positions of packets in which a PAT begins, and from which pictures that stand alone can be shown.
    pub(super) tables: VecDeque<u64>,
    pub(super) pictures: VecDeque<u64>,
}

impl Tuned {
    /// Places of the stream before stay.
    pub(super) fn new(title: Arc<Title>, before: Option<Tuned>) -> Self {
        let (tables, pictures) = before.map(|before| (before.tables, before.pictures)).unwrap_or_default();
        Tuned {
            pmt_pid: title.program().map(|program| program.pmt_pid),
            pat: SectionBuffer::default(),
            pmt: SectionBuffer::default(),
            finder: title.video.map(|(pid, codec)| (pid, Finder::new(codec))),
            picture: 0,
            tables,
            pictures,
            title,
        }
    }

    /// Notes the packet at `position`. Returns whether the tables are others than they were.
    pub(super) fn push(&mut self, position: u64, packet: &Packet<'_>) -> bool {
        let pid = packet.pid();
        let mut is_other = false;
        let title = &self.title;
        if pid == Pid::PAT {
            if packet.payload_unit_start() {
                remember(&mut self.tables, position);
            }
            let ours = title.program_number.zip(self.pmt_pid);
            self.pat.push(packet, |section| {
                let pat = Section::parse(section).and_then(Pat::parse);
                is_other |= pat.is_ok_and(|pat| !pat.programs().any(|program| Some(program) == ours));
            });
        }
        if Some(pid) == self.pmt_pid {
            let known = title.program().map(|program| program.pmt.as_slice());
            self.pmt.push(packet, |section| {
                let map = Section::parse(section).and_then(Pmt::parse);
                let is_ours = map.is_ok_and(|map| Some(map.program_number()) == title.program_number);
                is_other |= is_ours && known != Some(section);
            });
        }
        if let Some((video, finder)) = &mut self.finder
            && *video == pid
            && let Some(found) = finder.push(packet)
        {
            match found {
                Found::Start => self.picture = position,
                Found::StartAlone => self.begin(position),
                Found::Alone => self.begin(self.picture),
            }
        }
        is_other
    }

    /// One can begin at a picture, with the tables before it.
    fn begin(&mut self, picture: u64) {
        let tables = self.tables.iter().rev().find(|position| **position <= picture);
        let near = tables.filter(|position| picture - **position <= TABLES_BEFORE_MAX);
        remember(&mut self.pictures, near.copied().unwrap_or(picture));
    }

    /// Places before `position` are gone.
    pub(super) fn forget(&mut self, position: u64) {
        for places in [&mut self.tables, &mut self.pictures] {
            while places.front().is_some_and(|place| *place < position) {
                places.pop_front();
            }
        }
    }
}

fn remember(places: &mut VecDeque<u64>, position: u64) {
    if places.len() == PLACES_MAX {
        places.pop_front();
    }
    places.push_back(position);
}
