use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use wire::codec::Codec;
use wire::{Random, Seq};

use super::Receiver;
use super::nacks::MISSING_MAX;
use crate::drops::DropReason;

/// A receiver and a clock.
struct Bench {
    start: Instant,
    now: Instant,
    receiver: Receiver,
}

impl Bench {
    fn new() -> Self {
        let now = Instant::now();
        Bench { start: now, now, receiver: Receiver::new(now, 9, Codec::Vp8) }
    }

    fn receive(&mut self, seqs: impl IntoIterator<Item = u16>) {
        for seq in seqs {
            self.receiver.on_packet(self.now, Seq(seq), 0, false).unwrap();
        }
    }

    fn at_ms(&mut self, ms: u64) -> &mut Self {
        self.now = self.start + Duration::from_millis(ms);
        self
    }

    fn nacks(&mut self) -> Vec<u16> {
        let mut lost = Vec::new();
        self.receiver.poll_nacks(self.now, &mut |seq| lost.push(seq));
        lost
    }
}

#[test]
fn numbers_are_extended_and_told_apart_from_duplicates() {
    let mut bench = Bench::new();
    let mut receive = |seq| bench.receiver.on_packet(bench.now, Seq(seq), 0, false);
    assert_eq!(receive(65_535), Ok(65_536 + 65_535));
    assert_eq!(receive(1), Ok(2 * 65_536 + 1));
    assert_eq!(receive(0), Ok(2 * 65_536));
    assert_eq!(receive(65_535), Err(DropReason::Duplicate));
    assert_eq!(receive(57_000), Err(DropReason::TooOld));
}

#[test]
fn a_gap_is_asked_for_after_a_moment() {
    let mut bench = Bench::new();
    bench.receive([10, 12, 15]);
    assert_eq!(bench.nacks(), []);
    assert_eq!(bench.receiver.next_nack_at(), Some(bench.start + Duration::from_millis(5)));
    bench.receive([13]);
    assert_eq!(bench.at_ms(5).nacks(), [11, 14]);
    bench.receive([11, 14]);
    assert_eq!(bench.receiver.next_nack_at(), None);
}

/// What asking for lost packets comes to.
struct Asked {
    /// Requests for each.
    requests: f64,
    /// How long each was missing, those that came.
    missing_ms: f64,
}

/// Loses every tenth packet, which is answered after a round trip each time that it is asked for, or not at all.
fn ask(bench: &mut Bench, count: u16, mut rtt_ms: impl FnMut() -> Option<u64>) -> Asked {
    let (mut answers, mut lost_at) = (Vec::new(), HashMap::new());
    let (mut requests, mut lost, mut missing_ms) = (0, 0, 0);
    let first = bench.now.duration_since(bench.start).as_millis() as u64;
    for step in 0..u64::from(count) * 10 {
        let now_ms = first + 1 + step;
        bench.at_ms(now_ms);
        if now_ms.is_multiple_of(10) {
            let seq = (now_ms / 10) as u16;
            if seq % 10 == 5 {
                lost += 1;
                lost_at.insert(seq, now_ms);
            } else {
                bench.receive([seq]);
            }
        }
        for seq in bench.nacks() {
            answers.extend(rtt_ms().map(|rtt_ms| (now_ms + rtt_ms, seq)));
            requests += 1;
        }
        let due: Vec<u16> = answers.iter().filter(|(at, _)| *at <= now_ms).map(|(_, seq)| *seq).collect();
        answers.retain(|(at, _)| *at > now_ms);
        for seq in due {
            let _ = bench.receiver.on_packet(bench.now, Seq(seq), 0, true);
            missing_ms += lost_at.remove(&seq).map_or(0, |at| now_ms - at);
        }
    }
    let [requests, missing_ms] = [requests, missing_ms].map(|sum| sum as f64 / f64::from(lost));
    Asked { requests, missing_ms }
}

#[test]
fn requests_follow_a_round_trip_apart_whatever_it_is() {
    for rtt_ms in [5, 40, 150, 300, 600] {
        let mut bench = Bench::new();
        assert!(ask(&mut bench, 200, || Some(rtt_ms)).requests < 2.0, "before it is known");
        let asked = ask(&mut bench, 500, || Some(rtt_ms)).requests;
        assert!(asked < 1.2, "{asked} requests for each packet over {rtt_ms} ms");
    }
}

#[test]
fn a_round_trip_that_changes_is_followed() {
    let mut bench = Bench::new();
    for rtt_ms in [300, 20, 300, 100, 600, 40, 90, 400, 250] {
        ask(&mut bench, 1_000, || Some(rtt_ms));
        let asked = ask(&mut bench, 1_000, || Some(rtt_ms)).requests;
        assert!(asked < 1.3, "{asked} requests for each packet over {rtt_ms} ms");
    }
}

/// Where requests and answers are lost, one in five each, most answers that come are to repeated requests.
#[test]
fn a_lossy_path_seems_no_longer_than_it_is() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new();
        let asked = ask(&mut bench, 10_000, || (random.below(100) >= 36).then(|| 2 + random.below(10)));
        assert!(asked.missing_ms < 42.0, "seed {seed}: missing for {} ms", asked.missing_ms);
    }
}

#[test]
fn what_was_taken_for_the_round_trip_before_one_was_known_is_corrected_by_the_first_answer() {
    let mut bench = Bench::new();
    bench.receive([10, 12]);
    let mut repair = |asked_ms: &[u64], came_ms, seq| {
        for ms in asked_ms {
            assert_eq!(bench.at_ms(*ms).nacks(), [seq]);
        }
        bench.at_ms(came_ms);
        assert_eq!(bench.receiver.on_packet(bench.now, Seq(seq), 0, true), Ok(65_536 + u64::from(seq)));
        bench.receive([seq + 3]);
    };
    repair(&[5, 105], 125, 11);
    repair(&[130], 150, 13);
    // Lost three times.
    repair(&[155, 180, 205, 255], 275, 15);
}

#[test]
fn what_requests_do_not_bring_within_a_second_needs_a_keyframe() {
    let mut bench = Bench::new();
    bench.receive([10, 12]);
    let mut requests = 0;
    while let Some(at) = bench.receiver.next_nack_at() {
        bench.now = at;
        requests += bench.nacks().len();
        if bench.receiver.take_keyframe_needed() {
            break;
        }
    }
    assert_eq!((requests, bench.receiver.missing_count()), (4, 0));
    assert!((1_000..1_600).contains(&bench.now.duration_since(bench.start).as_millis()));
    assert_eq!(bench.receiver.next_nack_at(), None);
    assert!(!bench.receiver.take_keyframe_needed());
}

#[test]
fn too_much_missing_needs_a_keyframe_at_once() {
    let mut bench = Bench::new();
    bench.receive([0, MISSING_MAX as u16 + 1]);
    assert_eq!(bench.receiver.missing_count(), MISSING_MAX);
    bench.receive([MISSING_MAX as u16 + 3]);
    assert_eq!(bench.receiver.missing_count(), 0);
    assert_eq!(bench.receiver.next_nack_at(), Some(bench.now));
    assert!(bench.receiver.take_keyframe_needed());
}

#[test]
fn audio_is_never_asked_for_again() {
    let mut bench = Bench::new();
    bench.receiver = Receiver::new(bench.now, 9, Codec::Opus);
    bench.receive([0, 2, 2_000]);
    assert_eq!((bench.receiver.missing_count(), bench.receiver.next_nack_at()), (0, None));
}

#[test]
fn a_report_counts_what_was_lost_on_the_way_even_if_it_came_back() {
    let mut bench = Bench::new();
    bench.receive([65_534, 65_535, 1, 2]);
    bench.receiver.on_packet(bench.now, Seq(0), 0, true).unwrap();
    let block = bench.receiver.report(bench.now);
    assert_eq!((block.ssrc, block.cumulative_lost, block.highest_seq), (9, 1, 65_536 + 2));
    assert_eq!(block.fraction_lost, 51);
    bench.receive([3]);
    let block = bench.receiver.report(bench.now);
    assert_eq!((block.cumulative_lost, block.fraction_lost), (1, 0));
    assert_eq!(bench.receiver.report(bench.now).fraction_lost, 0);
}

#[test]
fn a_report_says_when_the_last_sender_report_came() {
    let mut bench = Bench::new();
    bench.receiver.on_sender_report(bench.start, 0x1234_5678_9abc_def0);
    bench.at_ms(500);
    let block = bench.receiver.report(bench.now);
    assert_eq!((block.last_sr, block.delay_since_last_sr), (0x5678_9abc, 32_768));
}

#[test]
fn jitter_approaches_the_mean_step_of_the_delay() {
    let mut bench = Bench::new();
    let mut receive = |n: u64, late_ms: u64| {
        let now = bench.start + Duration::from_millis(20 * n + late_ms);
        bench.receiver.on_packet(now, Seq(n as u16), (n * 1_800) as u32, false).unwrap();
        bench.receiver.report(now).jitter
    };
    assert_eq!((0..100).map(|n| receive(n, 0)).max(), Some(0));
    let jitter = (100..300).map(|n| receive(n, n % 2 * 4)).last();
    assert!(jitter.is_some_and(|jitter| (355..=361).contains(&jitter)), "{jitter:?}");
}

#[test]
fn a_pause_of_the_publisher_is_no_jitter() {
    let mut bench = Bench::new();
    bench.receiver.on_packet(bench.now, Seq(1), 0, false).unwrap();
    bench.at_ms(60_000);
    bench.receiver.on_packet(bench.now, Seq(2), 3_000, false).unwrap();
    assert_eq!(bench.receiver.report(bench.now).jitter, 0);
}

/// Against a model that remembers everything: random loss, duplicates, reordering and repair, across wraps.
#[test]
fn every_packet_is_taken_once_and_what_is_asked_for_is_what_is_missing() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new();
        let mut taken = HashSet::new();
        let (mut next, mut highest) = (65_536 + random.next_u64() % 65_536, 0);
        let first = next;
        for step in 0..3_000 {
            let back = [0, 0, 0, 0, 0, 0, 1, 2 + random.next_u64() % 40][random.next_u64() as usize % 8];
            let skip = [0, 0, 0, 0, 0, 1, 1, 3][random.next_u64() as usize % 8];
            next += 1 + skip;
            let sent = next.saturating_sub(back).max(first + 1);
            bench.at_ms(step * 2);
            let result = bench.receiver.on_packet(bench.now, Seq(sent as u16), 0, back > 0);
            let expected = if taken.insert(sent) { Ok(sent) } else { Err(DropReason::Duplicate) };
            assert_eq!(result, expected, "seed {seed}, step {step}");
            highest = highest.max(sent);
            for lost in bench.nacks() {
                let lost = highest - u64::from((highest as u16).wrapping_sub(lost));
                assert!(lost < highest && !taken.contains(&lost), "seed {seed}: {lost} is not missing");
            }
            assert!(bench.receiver.missing_count() <= MISSING_MAX, "seed {seed}");
            bench.receiver.take_keyframe_needed();
            assert!(bench.receiver.next_nack_at().is_none_or(|at| at > bench.now), "seed {seed}: a request is overdue");
        }
    }
}
