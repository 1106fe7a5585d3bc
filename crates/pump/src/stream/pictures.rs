//! Other speeds: pictures that stand alone, one after the other, and what control is told of them.

use std::sync::Arc;

use wire::ts::Pcr;

use super::{Anchor, Padding, Stream};
use crate::queue::Plan;
use crate::spec::Event;
use crate::trick::Pick;

/// Pictures that are being shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pictures {
    /// Their number, from `Command::Trick`, and how many commands they came by.
    run: u64,
    parts: u32,
    /// Control was told that they are about to run out.
    is_asked_for: bool,
    /// All are shown, and nobody was told.
    pub(super) is_shown: bool,
}

impl Stream {
    /// Shows single pictures.
    pub(crate) fn show(&mut self, now_ns: i64, picks: Arc<[Pick]>, run: u64) {
        if self.spec.live.is_some() {
            return;
        }
        let is_shown = picks.is_empty();
        self.replace(now_ns, Plan::Pictures { picks, next: 0, at: 0 });
        self.pictures = Some(Pictures { run, parts: 1, is_asked_for: false, is_shown });
        let pcr = self.output_pcr(now_ns).unwrap_or(Pcr::from_ticks(0));
        self.trick = Some(Anchor { at_ns: now_ns, pcr });
        // Pictures alone leave gaps, in which a receiver still wants references.
        self.padding = Some(self.padding.unwrap_or(Padding::new(self.slope)));
    }

    /// Shows more of them.
    pub(crate) fn show_more(&mut self, picks: &[Pick], run: u64) {
        if let Some(pictures) = self.pictures.as_mut().filter(|pictures| pictures.run == run) {
            *pictures = Pictures { run, parts: pictures.parts + 1, is_asked_for: false, is_shown: false };
            self.queue.add_pictures(picks);
        }
    }

    /// What control is to be told of the pictures.
    pub(crate) fn poll_pictures(&mut self) -> Option<Event> {
        let session = self.spec.id;
        let pictures = self.pictures.as_mut()?;
        let Pictures { run, parts, .. } = *pictures;
        if !pictures.is_asked_for && self.queue.lacks_pictures() {
            pictures.is_asked_for = true;
            return Some(Event::PicturesWanted { session, run });
        }
        std::mem::take(&mut pictures.is_shown).then_some(Event::PicturesShown { session, run, parts })
    }
}
