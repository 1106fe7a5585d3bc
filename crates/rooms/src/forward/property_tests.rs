//! Whatever is lost, reordered, switched and left out: the viewer sees one row of numbers.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use wire::Random;
use wire::codec::{PayloadInfo, PictureNumbers};

use super::*;

const FRAMES: usize = 240;
const LAYERS: usize = 3;
const FRAME_TICKS: u32 = 3_000;
/// Packets that a late one may come behind its place.
const REORDER_MAX: u64 = 50;

/// What happens in one run.
struct Case {
    seed: u64,
    /// In 256ths.
    loss: u64,
    reorder: u64,
    temporal: bool,
    switches: bool,
}

#[derive(Clone, Copy)]
struct Sent {
    layer: usize,
    frame: usize,
    meta: PacketMeta,
}

/// One packet that went out.
struct Out {
    /// Switches before it.
    epoch: usize,
    frame: usize,
    input: u64,
    forwarded: Forwarded,
}

#[derive(Default)]
struct Run {
    outs: Vec<Out>,
    /// Epoch and number of packets that were left out when they came in order.
    left_out: HashSet<(usize, u64)>,
    /// The same for pictures.
    pictures_left_out: HashSet<(usize, usize)>,
    /// Numbers that went out with padding.
    padding: Vec<u64>,
    /// Packets that came after their layer was left.
    late_of_left: usize,
}

#[test]
fn without_loss_the_output_is_dense() {
    for seed in 0..60 {
        let flag = |bit: u64| seed >> bit & 1 == 1;
        let case = Case { seed, loss: 0, reorder: 0, temporal: flag(0), switches: flag(1) };
        let run = case.run();
        run.check(case.seed, case.picture_mask());
        run.check_dense(case.seed, case.picture_mask());
    }
}

#[test]
fn holes_are_only_where_the_publisher_has_holes() {
    let mut late_of_left = 0;
    for seed in 0..240 {
        let flag = |bit: u64| seed >> bit & 1 == 1;
        let (loss, reorder) = (seed % 5 * 8, seed % 3 * 20);
        let case = Case { seed, loss, reorder, temporal: flag(0), switches: flag(1) };
        let run = case.run();
        run.check(case.seed, case.picture_mask());
        late_of_left += run.late_of_left;
    }
    assert!(late_of_left > 100, "{late_of_left} packets came after their layer was left");
}

impl Case {
    fn picture_mask(&self) -> u16 {
        if self.long_ids() { 0x7fff } else { 0x7f }
    }

    fn long_ids(&self) -> bool {
        self.seed & 8 == 0
    }

    fn run(&self) -> Run {
        let mut random = Random::new(self.seed);
        let packets = self.arrivals(&mut random);
        let mut forwarder = Forwarder::new(90_000, random.next_u64() as u16, random.next_u64() as u32);
        let (mut run, mut epoch, mut wanted) = (Run::default(), 0, 0);
        let mut highest = 0;
        let mut kept: [Option<(usize, Kept)>; LAYERS] = Default::default();
        for Sent { layer, frame, meta } in packets {
            if self.switches && random.next_u64().is_multiple_of(200) {
                wanted = random.next_u64() as usize % LAYERS;
            }
            if self.temporal && random.next_u64().is_multiple_of(50) {
                forwarder.set_temporal_max(random.next_u64() as u8 % 4);
            }
            let starts_keyframe = meta.payload.keyframe && meta.payload.starts_frame;
            let current = forwarder.current().map(usize::from);
            if layer == wanted && current != Some(wanted) && starts_keyframe {
                if let Some(left) = current {
                    kept[left] = Some((epoch, forwarder.keep()));
                }
                forwarder.switch(wanted as u8, &meta, SwitchClocks::default());
                (epoch, highest) = (epoch + 1, meta.seq - 1);
            }
            if let Some((epoch, kept)) = &kept[layer]
                && let Some(forwarded) = kept.forward_late(&meta)
            {
                run.late_of_left += 1;
                match forwarded.is_padding {
                    true => run.padding.push(forwarded.seq),
                    false => run.outs.push(Out { epoch: *epoch, frame, input: meta.seq, forwarded }),
                }
            }
            if forwarder.current().map(usize::from) != Some(layer) {
                continue;
            }
            let is_late = meta.seq <= highest;
            highest = highest.max(meta.seq);
            match forwarder.forward(&meta) {
                Ok(forwarded) if forwarded.is_padding => {
                    assert!(self.temporal && is_late, "seed {}", self.seed);
                    run.pictures_left_out.insert((epoch, frame));
                    run.padding.push(forwarded.seq);
                }
                Ok(forwarded) => run.outs.push(Out { epoch, frame, input: meta.seq, forwarded }),
                Err(DropReason::TemporalLayer) => {
                    assert!(self.temporal, "seed {}", self.seed);
                    run.pictures_left_out.insert((epoch, frame));
                    if !is_late {
                        run.left_out.insert((epoch, meta.seq));
                    }
                }
                Err(reason) => assert_eq!(reason, DropReason::BeforeSwitch, "seed {}", self.seed),
            }
        }
        run
    }

    /// What the layers send, in the order in which it arrives.
    fn arrivals(&self, random: &mut Random) -> Vec<Sent> {
        let start = Instant::now();
        let mut next = [(); LAYERS].map(|()| {
            let bits = random.next_u64();
            ((1 << 16) + (bits & 0xffff), (bits >> 16) as u32, (bits >> 48) as u16)
        });
        let mut tl0 = 0_u8;
        let mut arrivals = Vec::new();
        for frame in 0..FRAMES {
            let keyframe = frame % 32 == 0;
            let temporal_id = [0, 2, 1, 2][frame % 4];
            tl0 = tl0.wrapping_add(u8::from(temporal_id == 0));
            for (layer, (seq, first_timestamp, picture_id)) in next.iter_mut().enumerate() {
                *picture_id = picture_id.wrapping_add(1) & self.picture_mask();
                let numbers = PictureNumbers {
                    picture_id: Some(*picture_id),
                    long_picture_id: self.long_ids(),
                    keeps_gaps: false,
                    tl0_pic_idx: Some(tl0.wrapping_add(100 * layer as u8)),
                };
                let count = 1 + random.next_u64() % (2 + 2 * layer as u64);
                for index in 0..count {
                    let payload = PayloadInfo {
                        starts_frame: index == 0,
                        keyframe,
                        temporal_id,
                        switch_up: temporal_id > 0 && frame % 32 < 8,
                        switch_to: if frame % 32 == 16 { 0b111 } else { 0 },
                        picture: Some(numbers),
                        ..PayloadInfo::default()
                    };
                    let meta = PacketMeta {
                        seq: *seq,
                        timestamp: first_timestamp.wrapping_add(frame as u32 * FRAME_TICKS),
                        arrival: start + Duration::from_micros(33_333 * frame as u64),
                        marker: index + 1 == count,
                        payload,
                    };
                    *seq += 1;
                    let bits = random.next_u64();
                    let late = if bits % 256 < self.reorder { bits >> 32 } else { 0 };
                    if bits >> 8 & 0xff >= self.loss {
                        arrivals.push((meta.seq + late % REORDER_MAX, Sent { layer, frame, meta }));
                    }
                }
            }
        }
        self.interleave(arrivals)
    }

    /// Puts each layer in the order of its packets' places, and the layers beside each other by frame.
    fn interleave(&self, mut arrivals: Vec<(u64, Sent)>) -> Vec<Sent> {
        arrivals.sort_by_key(|(place, sent)| (sent.layer, *place));
        let mut newest = [0; LAYERS];
        let mut ordered: Vec<_> = arrivals
            .into_iter()
            .map(|(_, sent)| {
                newest[sent.layer] = newest[sent.layer].max(sent.frame);
                (newest[sent.layer], sent)
            })
            .collect();
        ordered.sort_by_key(|(frame, sent)| (*frame, sent.layer));
        ordered.into_iter().map(|(_, sent)| sent).collect()
    }
}

impl Run {
    fn check(&self, seed: u64, mask: u16) {
        let mut seen = HashSet::new();
        for seq in self.outs.iter().map(|out| out.forwarded.seq).chain(self.padding.iter().copied()) {
            assert!(seen.insert(seq), "seed {seed}: {seq} was given twice");
        }
        let mut by_input: Vec<_> = self.outs.iter().collect();
        by_input.sort_by_key(|out| (out.epoch, out.input));
        for pair in by_input.windows(2) {
            self.check_pair(seed, mask, pair[0], pair[1]);
        }
    }

    /// Two packets that went out, next to each other as the publisher numbered them.
    fn check_pair(&self, seed: u64, mask: u16, first: &Out, second: &Out) {
        let (a, b) = (&first.forwarded, &second.forwarded);
        assert!(a.seq < b.seq, "seed {seed}: output runs against the input at {}", b.seq);
        let later = b.timestamp.wrapping_sub(a.timestamp) as i32;
        let pictures = picture_id(b).wrapping_sub(picture_id(a)) & mask;
        if first.epoch != second.epoch {
            assert!(later > 0, "seed {seed}: time stands still at a switch");
            return;
        }
        let inputs = first.input + 1..second.input;
        let lost = inputs.filter(|input| !self.left_out.contains(&(first.epoch, *input))).count() as u64;
        let holes = b.seq - a.seq - 1;
        assert!(holes <= lost, "seed {seed}: {holes} holes before {}, {lost} lost", b.seq);
        assert_eq!(later, (second.frame - first.frame) as i32 * FRAME_TICKS as i32, "seed {seed}");

        let between = (first.frame + 1)..second.frame;
        let missing = between.filter(|frame| !self.pictures_left_out.contains(&(first.epoch, *frame))).count();
        let newer = usize::from(first.frame != second.frame);
        let allowed = newer..=newer + missing;
        assert!(allowed.contains(&pictures.into()), "seed {seed}: {pictures} pictures on at {}, {allowed:?}", b.seq);
    }

    /// Nothing was lost or late, so the order of sending is the order of numbers.
    fn check_dense(&self, seed: u64, mask: u16) {
        for pair in self.outs.windows(2) {
            let (a, b) = (&pair[0].forwarded, &pair[1].forwarded);
            assert_eq!(b.seq, a.seq + 1, "seed {seed}");
            let new_picture = u16::from(a.timestamp != b.timestamp);
            assert_eq!(picture_id(b).wrapping_sub(picture_id(a)) & mask, new_picture, "seed {seed}");
            let tl0 = |out: &Forwarded| out.picture.unwrap().tl0_pic_idx.unwrap();
            assert!(tl0(b).wrapping_sub(tl0(a)) <= 1, "seed {seed}");
        }
    }
}

fn picture_id(out: &Forwarded) -> u16 {
    out.picture.unwrap().picture_id.unwrap()
}
