//! The layer that a down track has left: what was missing of it then fills the gap that was left for it when it comes.
//! The viewer knows of the gap, and asks for it until it gives up, with what stands behind it waiting.
//!
//! In: what is appended to that layer's log. Out: what of it has a number.
//! Cost: nothing where nothing was missing; else 192 bytes, and for `REPAIRED_FOR` a look at each packet of the layer.

use std::time::Instant;

use crate::down_track::Next;
use crate::forward::{Forwarder, Kept};
use crate::log::Log;
use crate::packet::REPAIRED_FOR;
use crate::stream::Track;

/// A layer that was left.
#[derive(Debug)]
pub struct Former {
    layer: u8,
    /// Of its log.
    epoch: u32,
    /// Where in its log the next packet stands that was not looked at.
    position: u64,
    until: Instant,
    numbers: Kept,
}

impl Former {
    /// The layer that `forwarder` is about to leave, with what is unread from `position` on; `None` when nothing of it is
    /// missing.
    pub fn of(now: Instant, forwarder: &Forwarder, log: &Log, (epoch, position): (u32, u64)) -> Option<Box<Self>> {
        let (layer, span) = (forwarder.current()?, forwarder.span());
        let mut unread = (position..log.head()).map_while(|position| log.at(position));
        let may_come = log.lacks_some(span.clone()) || unread.any(|logged| span.contains(&logged.meta.seq));
        if log.epoch() != epoch || !may_come {
            return None;
        }
        Some(Box::new(Former { layer, epoch, position, until: now + REPAIRED_FOR, numbers: forwarder.keep() }))
    }

    /// Whether nothing of it may come any more.
    pub fn is_over(&self, now: Instant, track: &Track) -> bool {
        now >= self.until || self.log(track).is_none()
    }

    /// Whether packets of it wait that were not looked at.
    pub fn is_behind(&self, track: &Track) -> bool {
        self.log(track).is_some_and(|log| self.position < log.head())
    }

    /// The next packet that was missing.
    pub fn next<'a>(&mut self, track: &'a Track) -> Option<Next<'a>> {
        let log = self.log(track)?;
        while self.position < log.head() {
            let position = self.position;
            self.position += 1;
            let Some(logged) = log.at(position) else { continue };
            if let Some(forwarded) = self.numbers.forward_late(logged.meta) {
                return Some(Next::new(logged, forwarded, self.layer, position));
            }
        }
        None
    }

    fn log<'a>(&self, track: &'a Track) -> Option<&'a Log> {
        let log = &track.layers.get(usize::from(self.layer))?.log;
        (log.epoch() == self.epoch).then_some(log)
    }
}
