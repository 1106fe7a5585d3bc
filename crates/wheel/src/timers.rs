//! The wheel itself: nodes in a slab, linked into the slots of two levels.
//!
//! A deadline is rounded up to a tick, so nothing fires early. Level 0 has a slot for each of the next 4,096 ticks;
//! level 1 has a slot for each of the next 4,096 blocks of 4,096 ticks, and its timers move to level 0 when their
//! block begins. What lies still further waits in the last block and is looked at again then.

use std::time::{Duration, Instant};

use crate::Lateness;
use crate::level::{Level, NONE, SLOTS};

/// Names one pending timer. It goes stale when the timer fires or is cancelled, and then names nothing, ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// Pending deadlines, each with a value.
#[derive(Debug)]
pub struct Wheel<T> {
    start: Instant,
    tick_ns: u64,
    /// Every tick before this one is served. Timers that are due stand in its slot of level 0.
    cursor: u64,
    /// The latest time seen, in nanoseconds since `start`.
    now_ns: u64,
    /// Indexed by `Node::level`: ticks, and blocks of `SLOTS` ticks.
    levels: [Level; 2],
    nodes: Vec<Node<T>>,
    free: u32,
    lateness: Lateness,
}

#[derive(Debug)]
struct Node<T> {
    /// Neighbours in the slot's ring. In the free list `next` is the next free node.
    prev: u32,
    next: u32,
    generation: u32,
    level: u8,
    /// The tick (level 0) or block (level 1) in whose slot the node is linked.
    slot: u64,
    /// The deadline in nanoseconds since the wheel's start.
    at_ns: u64,
    /// `None` in the free list.
    value: Option<T>,
}

impl<T> Wheel<T> {
    /// Makes an empty wheel whose clock stands at `start`. Deadlines are served to the next whole `tick`.
    ///
    /// # Panics
    /// When `tick` is zero.
    pub fn new(start: Instant, tick: Duration) -> Self {
        assert!(!tick.is_zero(), "a wheel turns");
        Wheel {
            start,
            tick_ns: saturating_ns(tick),
            cursor: 0,
            now_ns: 0,
            levels: [Level::new(), Level::new()],
            nodes: Vec::new(),
            free: NONE,
            lateness: Lateness::default(),
        }
    }

    /// Adds a timer. With a deadline in the past it is due at once.
    pub fn insert(&mut self, at: Instant, value: T) -> TimerId {
        self.insert_ns(self.since_start(at), value)
    }

    /// `insert` with a deadline in nanoseconds since the wheel's start, for who counts so anyway.
    pub fn insert_ns(&mut self, at_ns: u64, value: T) -> TimerId {
        let index = self.take_node();
        let node = &mut self.nodes[index as usize];
        (node.at_ns, node.value) = (at_ns, Some(value));
        let generation = node.generation;
        let due_now = at_ns <= self.now_ns;
        self.place(index, if due_now { self.cursor } else { self.tick_of(at_ns) });
        TimerId { index, generation }
    }

    /// Takes a timer out and returns its value; `None` when it has fired or was cancelled before.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let node = self.nodes.get(id.index as usize)?;
        if node.generation != id.generation || node.value.is_none() {
            return None;
        }
        self.unlink(id.index);
        self.release(id.index)
    }

    /// Returns one timer whose deadline has passed, and records how late it is. **Call it until it returns `None`.**
    ///
    /// `now` never runs backwards; a smaller one than before counts as the one before.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        self.pop_due_ns(self.since_start(now))
    }

    /// `pop_due` at a time in nanoseconds since the wheel's start.
    pub fn pop_due_ns(&mut self, now_ns: u64) -> Option<T> {
        self.now_ns = self.now_ns.max(now_ns);
        let target = self.now_ns / self.tick_ns;
        loop {
            let index = self.levels[0].head(self.cursor);
            if index != NONE {
                self.unlink(index);
                let late_ns = self.now_ns.saturating_sub(self.nodes[index as usize].at_ns);
                self.lateness.record(Duration::from_nanos(late_ns));
                return self.release(index);
            }
            if self.cursor >= target {
                return None;
            }
            self.advance(target);
        }
    }

    /// No timer is due before this; `None` when none is pending. It can be up to one block of ticks too early for
    /// timers that are far away.
    pub fn next_deadline(&self) -> Option<Instant> {
        let tick = self.next_event()?;
        self.start.checked_add(Duration::from_nanos(tick.saturating_mul(self.tick_ns)))
    }

    /// How late timers fired, the rounding up to a tick included.
    pub fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    fn since_start(&self, at: Instant) -> u64 {
        saturating_ns(at.saturating_duration_since(self.start))
    }

    /// The next tick at which a slot is served or a block is opened.
    fn next_event(&self) -> Option<u64> {
        let tick = self.levels[0].next_occupied(self.cursor);
        let block = self.levels[1].next_occupied(self.cursor / SLOTS + 1).map(|block| block * SLOTS);
        tick.into_iter().chain(block).min()
    }

    /// Moves the cursor to the next event, or to `target` when that comes first.
    fn advance(&mut self, target: u64) {
        match self.next_event() {
            Some(event) if event <= target => self.cursor = event,
            _ => self.cursor = target,
        }
        if self.cursor.is_multiple_of(SLOTS) {
            self.open_block(self.cursor / SLOTS);
        }
    }

    /// Moves the timers of a block that begins to level 0.
    fn open_block(&mut self, block: u64) {
        // A timer that lies beyond the ring comes back to another slot than this one, so this ends.
        loop {
            let index = self.levels[1].head(block);
            if index == NONE {
                return;
            }
            self.unlink(index);
            self.place(index, self.tick_of(self.nodes[index as usize].at_ns));
        }
    }

    /// The tick, of those that are not served yet, at which a deadline is over.
    fn tick_of(&self, at_ns: u64) -> u64 {
        at_ns.div_ceil(self.tick_ns).max(self.cursor)
    }

    /// Links a node into the slot that serves `tick`.
    fn place(&mut self, index: u32, tick: u64) {
        let (level, slot) = if tick - self.cursor < SLOTS {
            (0, tick)
        } else {
            (1, (tick / SLOTS).min(self.cursor / SLOTS + SLOTS - 1))
        };
        self.link(index, level, slot);
    }

    /// Puts a node at the end of a slot's ring.
    fn link(&mut self, index: u32, level: u8, slot: u64) {
        let ring = &mut self.levels[usize::from(level)];
        let head = ring.head(slot);
        let (prev, next) = if head == NONE {
            ring.set_head(slot, index);
            (index, index)
        } else {
            (self.nodes[head as usize].prev, head)
        };
        let node = &mut self.nodes[index as usize];
        (node.prev, node.next, node.level, node.slot) = (prev, next, level, slot);
        self.nodes[prev as usize].next = index;
        self.nodes[next as usize].prev = index;
    }

    fn unlink(&mut self, index: u32) {
        let Node { prev, next, level, slot, .. } = self.nodes[index as usize];
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
        let ring = &mut self.levels[usize::from(level)];
        if next == index {
            ring.set_head(slot, NONE);
        } else if ring.head(slot) == index {
            ring.set_head(slot, next);
        }
    }

    fn take_node(&mut self) -> u32 {
        if self.free != NONE {
            let index = self.free;
            self.free = self.nodes[index as usize].next;
            return index;
        }
        let index = self.nodes.len() as u32;
        assert!(index < NONE, "fewer than 2^32 timers");
        self.nodes.push(Node { prev: NONE, next: NONE, generation: 0, level: 0, slot: 0, at_ns: 0, value: None });
        index
    }

    fn release(&mut self, index: u32) -> Option<T> {
        let node = &mut self.nodes[index as usize];
        node.generation = node.generation.wrapping_add(1);
        node.next = self.free;
        self.free = index;
        node.value.take()
    }
}

fn saturating_ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_micros(250);

    fn wheel() -> (Instant, Wheel<u32>) {
        let start = Instant::now();
        (start, Wheel::new(start, TICK))
    }

    fn due(wheel: &mut Wheel<u32>, now: Instant) -> Vec<u32> {
        std::iter::from_fn(|| wheel.pop_due(now)).collect()
    }

    #[test]
    fn a_timer_fires_at_its_tick_and_never_before_its_deadline() {
        let (start, mut wheel) = wheel();
        let at = start + TICK * 3 + Duration::from_nanos(1);
        wheel.insert(at, 1);

        assert_eq!(due(&mut wheel, at), []);
        assert_eq!(wheel.next_deadline(), Some(start + TICK * 4));
        assert_eq!(due(&mut wheel, start + TICK * 4), [1]);
        assert_eq!(wheel.next_deadline(), None);
    }

    #[test]
    fn a_deadline_in_the_past_is_due_at_once() {
        let (start, mut wheel) = wheel();
        let now = start + TICK * 10 + TICK / 2;
        assert_eq!(due(&mut wheel, now), []);

        wheel.insert(start, 1);
        wheel.insert(now, 2);
        assert!(wheel.next_deadline().is_some_and(|at| at <= now));
        assert_eq!(due(&mut wheel, now), [1, 2]);
    }

    #[test]
    fn a_cancelled_timer_gives_its_value_back_once() {
        let (start, mut wheel) = wheel();
        let id = wheel.insert(start + TICK, 1);
        assert_eq!((wheel.cancel(id), wheel.cancel(id)), (Some(1), None));

        let reused = wheel.insert(start + TICK, 2);
        assert_ne!(id, reused);
        assert_eq!(wheel.cancel(id), None);
        assert_eq!(due(&mut wheel, start + TICK), [2]);
        assert_eq!(wheel.cancel(reused), None);
    }

    #[test]
    fn far_timers_come_down_from_the_coarse_level_and_from_beyond_it() {
        let (start, mut wheel) = wheel();
        let spans = [TICK * 4_096, TICK * 10_000, TICK * 4_096 * 4_095, TICK * 4_096 * 4_096 * 3];
        for (value, span) in spans.into_iter().enumerate() {
            wheel.insert(start + span, value as u32);
        }
        for (value, span) in spans.into_iter().enumerate() {
            assert!(wheel.next_deadline().is_some_and(|at| at <= start + span));
            assert_eq!(due(&mut wheel, start + span - TICK), []);
            assert_eq!(due(&mut wheel, start + span), [value as u32]);
        }
    }

    #[test]
    fn a_far_timer_fires_at_its_tick_too_when_its_block_begins_at_its_deadline() {
        let (start, mut wheel) = wheel();
        let at = start + TICK * 5_000 + Duration::from_nanos(1);
        wheel.insert(at, 1);

        assert_eq!(due(&mut wheel, at), []);
        assert_eq!(due(&mut wheel, start + TICK * 5_001), [1]);
    }

    #[test]
    fn one_long_sleep_serves_everything_in_order() {
        let (start, mut wheel) = wheel();
        for value in [9_000, 3, 5_000, 1, 20_000, 4_999] {
            wheel.insert(start + TICK * value, value);
        }
        assert_eq!(due(&mut wheel, start + TICK * 30_000), [1, 3, 4_999, 5_000, 9_000, 20_000]);
    }

    #[test]
    fn lateness_counts_from_the_deadline_that_was_asked_for() {
        let (start, mut wheel) = wheel();
        wheel.insert(start + TICK, 1);
        due(&mut wheel, start + TICK + Duration::from_nanos(1_000));
        assert_eq!((wheel.lateness().count(), wheel.lateness().buckets()[10]), (1, 1));
    }

    #[test]
    fn following_next_deadline_alone_serves_every_timer_within_a_tick() {
        let (start, mut wheel) = wheel();
        for value in 0..5_000 {
            wheel.insert(start + Duration::from_micros(u64::from(value) * 977), value);
        }
        let mut fired = 0;
        while let Some(at) = wheel.next_deadline() {
            for value in due(&mut wheel, at) {
                let asked = start + Duration::from_micros(u64::from(value) * 977);
                assert!(asked <= at && at < asked + TICK);
                fired += 1;
            }
        }
        assert_eq!(fired, 5_000);
    }
}
