//! Reads what a burst needs, so that it comes into the caches: that of many streams at once (`Pump::read_together`).
//! All of that is in here, but for the queue's rows and the run's clock, which their own modules know.

use super::Player;
use super::measure::Measure;
use super::reel::Reel;
use super::schedule::Schedule;
use super::sender::Sender;
use crate::pace::Pace;
use crate::spec::Target;

impl Player {
    /// Reads what a burst needs of the stream itself.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        let parts = self.reel.touch() ^ self.schedule.touch() ^ self.sender.touch() ^ self.measure.touch();
        parts ^ u64::from(self.burst ^ self.burst_left)
    }

    /// Reads what it needs of what the stream points at. **Touch the stream before.**
    #[inline]
    pub(crate) fn touch_plan(&self) -> u64 {
        self.reel.queue.touch_row()
    }

    /// Reads what it needs of the chunk. **Touch the plan before.**
    #[inline]
    pub(crate) fn touch_chunk(&self) -> u64 {
        self.reel.queue.current().map_or(0, |(chunk, at)| chunk.first ^ u64::from(at) ^ chunk.bytes().len() as u64)
    }
}

impl Reel {
    #[inline]
    fn touch(&self) -> u64 {
        self.queue.touch() ^ u64::from(self.rewriter.is_active) ^ self.end ^ self.tables_left as u64
    }
}

impl Schedule {
    #[inline]
    fn touch(&self) -> u64 {
        let run = self.run.pace().map_or(0, Pace::touch);
        let rest = self.slope.packets ^ u64::from(self.speed_permille) ^ u64::from(self.padding.is_some());
        run ^ (self.origin_ns ^ self.due_ns ^ self.step_ns) as u64 ^ rest
    }
}

impl Sender {
    #[inline]
    fn touch(&self) -> u64 {
        let to = match self.to {
            Target::Datagrams(path) => path.remote.port(),
            Target::Interleaved { channel, .. } => channel.into(),
        };
        u64::from(to) ^ u64::from(self.rtp.is_some() ^ self.fec.is_some())
    }
}

impl Measure {
    #[inline]
    fn touch(&self) -> u64 {
        let Measure { stats, second_ns, low_ns, high_ns, monitor, .. } = self;
        let counts = stats.datagrams ^ u64::from(stats.lateness[0]) ^ u64::from(stats.late_max.subsec_nanos());
        counts ^ *second_ns as u64 ^ u64::from(low_ns ^ high_ns) ^ u64::from(monitor.is_some())
    }
}
