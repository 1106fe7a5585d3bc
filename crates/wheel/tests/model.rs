//! The wheel against a sorted list: the same timers fire at the same time, whatever is done in whatever order.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use wheel::{TimerId, Wheel};

const TICK_NS: u64 = 1_000;

#[derive(Clone, Debug)]
enum Step {
    /// Nanoseconds from now; negative is in the past.
    Insert(i64),
    /// Which of all timers so far, modulo their count.
    Cancel(usize),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (-5_000_i64..20_000).prop_map(Step::Insert),
        2 => (0_i64..20_000_000).prop_map(Step::Insert),
        1 => (0_i64..100_000_000_000).prop_map(Step::Insert),
        2 => any::<usize>().prop_map(Step::Cancel),
        3 => (0_u64..30_000).prop_map(Step::Advance),
        1 => (0_u64..10_000_000).prop_map(Step::Advance),
        1 => (0_u64..50_000_000_000).prop_map(Step::Advance),
    ]
}

/// Deadlines in a list, searched from end to end.
#[derive(Default)]
struct Model {
    now_ns: u64,
    /// Value, and the time at which it is due: the tick after its deadline, or at once when that has passed.
    pending: Vec<(usize, u64)>,
}

impl Model {
    fn insert(&mut self, value: usize, at_ns: u64) {
        let due_ns = if at_ns <= self.now_ns { self.now_ns } else { at_ns.div_ceil(TICK_NS) * TICK_NS };
        self.pending.push((value, due_ns));
    }

    fn cancel(&mut self, value: usize) -> bool {
        let before = self.pending.len();
        self.pending.retain(|(pending, _)| *pending != value);
        self.pending.len() < before
    }

    fn advance(&mut self, span_ns: u64) -> Vec<usize> {
        self.now_ns += span_ns;
        let (due, pending) = self.pending.iter().partition(|(_, due_ns)| *due_ns <= self.now_ns);
        self.pending = pending;
        due.into_iter().map(|(value, _): (usize, u64)| value).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_wheel_does_what_a_sorted_list_does(steps in prop::collection::vec(step(), 1..120)) {
        let start = Instant::now();
        let mut wheel = Wheel::new(start, Duration::from_nanos(TICK_NS));
        let mut model = Model::default();
        let mut ids: Vec<TimerId> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(offset_ns) => {
                    let at_ns = model.now_ns.saturating_add_signed(offset_ns);
                    model.insert(ids.len(), at_ns);
                    ids.push(wheel.insert(start + Duration::from_nanos(at_ns), ids.len()));
                }
                Step::Cancel(_) if ids.is_empty() => {}
                Step::Cancel(pick) => {
                    let value = pick % ids.len();
                    let expected = model.cancel(value).then_some(value);
                    prop_assert_eq!(wheel.cancel(ids[value]), expected);
                }
                Step::Advance(span_ns) => {
                    let mut expected = model.advance(span_ns);
                    let now = start + Duration::from_nanos(model.now_ns);
                    let mut fired: Vec<usize> = std::iter::from_fn(|| wheel.pop_due(now)).collect();
                    fired.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(fired, expected);
                }
            }
            let earliest = model.pending.iter().map(|(_, due_ns)| *due_ns).min();
            let bound = wheel.next_deadline();
            prop_assert_eq!(bound.is_some(), earliest.is_some());
            if let (Some(bound), Some(earliest)) = (bound, earliest) {
                prop_assert!(bound <= start + Duration::from_nanos(earliest));
            }
        }
    }
}
