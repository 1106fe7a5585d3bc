//! Where in a title a time is, with as little reading as that takes.
//!
//! In: a title, a time since its start. Out: a packet, counted from the title's start.
//! An `Index` says where to look; a chunk of a remote title is looked at by its first part, and read whole only when its
//! pictures are needed: those chunks are then the ones that are played first.
//! Cost: a few short reads, however long the title is, and one or two chunks. What was looked at in part is not kept.

use std::sync::Arc;
use std::time::Duration;

use pump::index::{Found, Index};
use pump::title::Title;

use crate::error::Error;
use crate::library::Library;

/// Chunks that are looked at for one place; more than an index goes back to find a picture.
const LOOKS_MAX: usize = 48;

/// Time of a title in which a clock reference is to be expected: they may be 100 ms apart.
const PART_TICKS: u64 = 27_000_000 * 3 / 20;

/// A part of fewer packets (65,800 bytes) costs nothing less, as the way to the origin takes longer.
const PART_PACKETS_MIN: u64 = 350;

impl Library {
    /// Where a title is `at` after its start: the picture that stands alone, at that time or before, or with `exact` the
    /// packet itself. Behind the title's end it is the end. `None` when the title has no clock.
    ///
    /// # Errors
    /// When a chunk cannot be had that it takes to know.
    pub async fn place(&self, title: &Arc<Title>, at: Duration, exact: bool) -> Result<Option<u64>, Error> {
        let mut index = Index::new(title);
        index.add(&*self.chunk(title, 0).await?);
        for _ in 0..LOOKS_MAX {
            let found = if exact { index.find_packet(at) } else { index.find(at) };
            let number = match found {
                None => return Ok(None),
                Some(Found::At(position)) => return Ok(Some(end_or(position, title, &index, at))),
                Some(Found::Read(number)) => number,
            };
            if index.is_known_in_part(number) {
                index.add(&*self.chunk(title, number.into()).await?);
            } else {
                self.look(title, number, &mut index).await?;
            }
        }
        Ok(index.position_by_rate(at))
    }

    /// Adds a chunk to the index, or its first part when that is what can be had soon.
    async fn look(&self, title: &Arc<Title>, number: u32, index: &mut Index) -> Result<(), Error> {
        let packets = title.slope.map_or(0, |slope| PART_TICKS * slope.packets / slope.ticks.max(1));
        match self.first_part(title, number, packets.max(PART_PACKETS_MIN)).await? {
            Some(part) => index.add_part(&part),
            None => index.add(&*self.chunk(title, number.into()).await?),
        }
        Ok(())
    }
}

/// What was found, unless the title is known to have ended before.
fn end_or(position: u64, title: &Title, index: &Index, at: Duration) -> u64 {
    let has_ended = index.end_needs().is_none() && index.duration().is_some_and(|duration| duration <= at);
    if has_ended { title.packet_count() } else { position }
}
