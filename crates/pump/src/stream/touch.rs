//! Reads what a burst needs, so that it comes into the caches: that of many streams at once (`Pump::read_together`).

use super::Stream;
use crate::pace::Pace;
use crate::spec::SessionSpec;

impl Stream {
    /// Reads what a burst needs of the stream itself.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        let Stream { due_ns, origin_ns, step_ns, end_position, tables_left, burst, burst_left, seq, .. } = self;
        let marks = self.padding.is_some() ^ self.rewriter.is_active() ^ self.pace.is_some() ^ self.trick.is_some();
        let ends =
            self.stats.late_max.subsec_nanos() ^ u32::from(*burst_left ^ *burst) ^ u32::from(seq.0) ^ u32::from(marks);
        let times = (due_ns ^ origin_ns ^ step_ns) as u64 ^ self.pace.as_ref().map_or(0, Pace::touch);
        let rest =
            *tables_left as u64 ^ self.stats.datagrams ^ u64::from(self.stats.lateness[0]) ^ self.measure.touch();
        times ^ end_position ^ rest ^ u64::from(ends) ^ self.queue.touch()
    }

    /// Reads what it needs of what the stream points at. **Touch the stream before.**
    #[inline]
    pub(crate) fn touch_plan(&self) -> u64 {
        let SessionSpec { path, play, .. } = &*self.spec;
        let rest = u32::from(path.remote.port()) ^ play.speed_permille;
        u64::from(rest) ^ self.queue.touch_row()
    }

    /// Reads what it needs of the chunk. **Touch the plan before.**
    #[inline]
    pub(crate) fn touch_chunk(&self) -> u64 {
        self.queue.current().map_or(0, |(chunk, at)| chunk.first() ^ u64::from(at) ^ chunk.bytes().len() as u64)
    }
}
