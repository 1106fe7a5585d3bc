//! Whatever is written, taken, told and handed over in whatever order: what a viewer has is whole units behind each other from a start
//! point on, and where there is a gap it begins again at a start point, behind the header of that place if it is another.

#[path = "support/world.rs"]
mod world;

use std::time::Duration;

use proptest::prelude::*;
use reflect::coalesce::Share;
use reflect::spec::{Command, EndReason, Join, Lag, Terms, ViewerId};
use reflect::window::Units;
use world::{HEAD, STREAM, World};

const UNIT_MARK: u8 = 0x47;
const HEADER_MARK: u8 = 0x5a;
const HEADER_LEN: usize = 24;

#[derive(Clone, Debug)]
enum Step {
    /// Units come; the number of units from one start point to the next, and whether the first is behind a new header.
    Write {
        count: usize,
        gap: usize,
        is_other: bool,
    },
    /// So many quarters of the viewers have a turn.
    Tell(u64),
    Join(Join),
    /// One of the viewers, counted from the newest, has so much more room.
    Room(usize, usize),
    Break(usize),
    End(usize),
    HandOver,
    Pass(Duration),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let join = prop_oneof![
        Just(Join::Next),
        Just(Join::Newest),
        (0..20_000_u64).prop_map(|ms| Join::Back(Duration::from_millis(ms))),
    ];
    let step = prop_oneof![
        8 => (1..150_usize, 1..60_usize, prop::bool::weighted(0.1))
            .prop_map(|(count, gap, is_other)| Step::Write { count, gap, is_other }),
        8 => (0..=4_u64).prop_map(Step::Tell),
        3 => join.prop_map(Step::Join),
        8 => (0..6_usize, 0..40_000_usize).prop_map(|(viewer, bytes)| Step::Room(viewer, bytes)),
        4 => (0..6_usize, 0..300_usize).prop_map(|(viewer, bytes)| Step::Room(viewer, bytes)),
        1 => (0..6_usize).prop_map(Step::Break),
        1 => (0..6_usize).prop_map(Step::End),
        1 => Just(Step::HandOver),
        2 => (0..5_000_u64).prop_map(|ms| Step::Pass(Duration::from_millis(ms))),
    ];
    prop::collection::vec(step, 1..200)
}

/// What was written, unit by unit.
struct Written {
    units: Vec<(Vec<u8>, bool, u32)>,
    /// Where the last start point is.
    last_start: u64,
    version: u32,
    since_start: usize,
    is_fixed: bool,
}

impl Written {
    fn unit(&mut self, is_start: bool) -> Vec<u8> {
        let number = self.units.len() as u32;
        let len = if self.is_fixed { 188 } else { 100 + (number as usize * 7_919) % 900 };
        let mut unit = vec![(number % 251) as u8; len];
        unit[0] = UNIT_MARK;
        unit[1..5].copy_from_slice(&number.to_be_bytes());
        self.units.push((unit.clone(), is_start, self.version));
        unit
    }

    fn header(&self) -> Vec<u8> {
        let mut header = vec![self.version as u8; HEADER_LEN];
        header[0] = HEADER_MARK;
        header
    }

    /// Looks at all that a viewer has; returns the number of gaps, and the unit that would be next.
    fn check(&self, mut bytes: &[u8]) -> (usize, Option<usize>) {
        let (mut gaps, mut next, mut header) = (0, None, None);
        let (mut is_behind_header, mut seen) = (false, None);
        while let Some(mark) = bytes.first() {
            if *mark == HEADER_MARK {
                let Some((whole, rest)) = bytes.split_at_checked(HEADER_LEN) else { break };
                assert!(whole[1..].iter().all(|byte| *byte == whole[1]), "a torn header");
                assert_ne!(seen, Some(whole[1]), "the same header twice");
                (header, is_behind_header, bytes) = (Some(whole[1]), true, rest);
                continue;
            }
            assert_eq!(*mark, UNIT_MARK, "a torn unit");
            let Some(number) = bytes.get(1..5) else { break };
            let number = u32::from_be_bytes(number.try_into().expect("four bytes")) as usize;
            let (unit, is_start, version) = &self.units[number];
            let len = unit.len().min(bytes.len());
            assert!(bytes[..len] == unit[..len], "unit {number} is as it was written");
            if next != Some(number) || is_behind_header {
                assert!(*is_start, "{number} is no start point");
                assert!(next.is_none_or(|next| number >= next), "no unit comes twice");
                assert_eq!(header.or(seen), Some(*version as u8), "the header that holds");
                gaps += usize::from(next.is_some());
                seen = header.or(seen);
            }
            (next, header, is_behind_header) = (Some(number + 1), None, false);
            if len < unit.len() {
                return (gaps, None);
            }
            bytes = &bytes[len..];
        }
        (gaps, next.filter(|_| bytes.is_empty()))
    }
}

fn play(steps: &[Step], is_fixed: bool, lag: Lag) {
    let mut world = World::new(if is_fixed { Units::Fixed(188) } else { Units::Marked });
    let mut written = Written { units: Vec::new(), last_start: 0, version: 0, since_start: usize::MAX, is_fixed };
    world.backlog.set_header(&written.header());
    world.add_stream(Terms { lag, ..Terms::default() });
    world.room = 0;
    let mut viewers: Vec<u64> = Vec::new();
    for step in steps {
        let of = |index: usize| viewers.iter().rev().nth(index).copied();
        match step {
            Step::Write { count, gap, is_other } => {
                for index in 0..*count {
                    if index == 0 && *is_other {
                        written.version += 1;
                        world.backlog.set_header(&written.header());
                        written.since_start = usize::MAX;
                    }
                    let is_start = written.since_start >= *gap;
                    written.since_start = if is_start { 1 } else { written.since_start + 1 };
                    if is_start {
                        world.backlog.mark_start(world.now);
                        written.last_start = world.backlog.end();
                    }
                    world.backlog.mark_boundary();
                    let unit = written.unit(is_start);
                    world.write(&unit);
                }
                if !is_fixed {
                    world.backlog.mark_boundary();
                }
            }
            Step::Tell(quarters) => {
                world.tell_some(Share::of(Duration::from_secs(*quarters), Duration::from_secs(4)));
            }
            Step::Join(join) => viewers.push(world.join(*join)),
            Step::Room(viewer, bytes) => {
                if let Some(viewer) = of(*viewer) {
                    world.give_room(viewer, *bytes);
                }
            }
            Step::Break(viewer) => {
                if let Some(viewer) = of(*viewer) {
                    world.break_off(viewer);
                }
            }
            Step::End(viewer) => {
                if let Some(viewer) = of(*viewer) {
                    world.command(Command::EndViewer(ViewerId(viewer)));
                }
            }
            Step::HandOver => world.hand_over(),
            Step::Pass(time) => world.advance(*time),
        }
        if world.backlog.end().is_multiple_of(7) {
            world.tell();
        }
    }
    world.tell();
    for viewer in &viewers {
        world.give_room(*viewer, usize::MAX);
    }
    for viewer in &viewers {
        let (_, next) = written.check(world.received(*viewer));
        let is_there = !world.links[viewer].is_closed;
        // Who waits for a start point may have nothing.
        if is_there && next.is_some() {
            let has_all = next == Some(written.units.len());
            let is_waiting = written.last_start < world.begin;
            assert!(has_all || is_waiting, "viewer {viewer} has not got all: {next:?} of {}", written.units.len());
        }
    }
    world.command(Command::RemoveStream(STREAM));
    assert_eq!(world.reflect.counters().rest_bytes, 0, "nothing is kept for nobody");
    assert!(world.has_left && world.ended.len() == viewers.len(), "nobody is left behind");
    for ended in &world.ended {
        let link = &world.links[&ended.id.0];
        assert_eq!(link.received.len() as u64, ended.sent_bytes, "each byte is counted once");
        let (gaps, _) = written.check(&link.received[link.received.len().min(HEAD.len())..]);
        assert!(gaps <= ended.course.skips as usize, "each gap is a skip");
        let may_lag = lag == Lag::Close || !is_fixed;
        assert!(ended.reason != EndReason::Lagged || may_lag);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn viewers_of_packets_get_whole_ones_from_start_points_on(steps in steps()) {
        play(&steps, true, Lag::Skip);
    }

    #[test]
    fn viewers_of_units_of_any_size_get_whole_ones_from_start_points_on(steps in steps()) {
        play(&steps, false, Lag::Skip);
    }

    #[test]
    fn viewers_that_are_closed_when_they_lag_have_no_gap(steps in steps()) {
        play(&steps, false, Lag::Close);
    }
}
