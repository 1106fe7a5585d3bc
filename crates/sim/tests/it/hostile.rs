//! Random and hostile datagrams are counted and dropped, and those who watch see nothing of it.

use crate::common::*;
use sim::check::{Holes, check_track};
use sim::viewer::Behaviour;
use sim::world::{PeerId, World};
use wire::Random;
use wire::Seq;
use wire::rtp::{HeaderWriter, RtpHeader};

struct Scene {
    world: World,
    publisher: PeerId,
    viewer: PeerId,
    random: Random,
}

fn scene(seed: u64) -> Scene {
    let mut world = World::new(seed, quiet());
    let stream = world.open_stream(&[simulcast(), opus()]);
    let publisher = world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(2));
    Scene { world, publisher, viewer, random: Random::new(seed) }
}

impl Scene {
    fn drop_count(&self) -> u64 {
        self.world.counters(0).drops.iter().map(|(_, count)| count).sum()
    }

    /// Goes on for a while and looks whether the viewer is well.
    fn assert_watched(mut self, seed: u64) {
        self.world.run(seconds(3));
        let summary = check_track(&self.world.viewer(self.viewer).tracks[0], VIDEO_CLOCK, seconds(1), Holes::Refused);
        assert!(summary.as_ref().is_ok_and(|summary| summary.frames >= 110), "seed {seed}: {summary:?}");
    }

    fn bytes(&mut self, len_max: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.random.below(len_max) as usize];
        bytes.fill_with(|| self.random.next_u64() as u8);
        bytes
    }
}

#[test]
fn noise_from_anywhere_is_dropped() {
    for seed in 0..4 {
        let mut scene = scene(seed);
        let before = scene.drop_count();
        let strangers = [scene.world.addr(scene.publisher), scene.world.addr(scene.viewer), ([1, 2, 3, 4], 5).into()];
        let mut handshakes = 0;
        for round in 0..3_000 {
            let mut bytes = scene.bytes(1_400);
            if round % 2 == 0
                && let Some(first) = bytes.first_mut()
            {
                *first = 0x80 | (*first & 0x3f);
            }
            handshakes += u64::from(bytes.len() > 1 && matches!(bytes[0], 0..=3 | 20..=63));
            let from = strangers[round % 3];
            scene.world.inject(0, from, &bytes);
        }
        // A lone byte that might begin a handshake may be counted either way.
        let dropped = scene.drop_count() - before;
        assert!(dropped + handshakes >= 2_990, "seed {seed}: {dropped} dropped, {handshakes} passed on");
        scene.assert_watched(seed);
    }
}

#[test]
fn rtp_of_the_publisher_s_own_keys_with_any_content_is_survived() {
    for seed in 0..4 {
        let mut scene = scene(seed);
        let from = scene.world.addr(scene.publisher);
        for round in 0..3_000_u64 {
            let known = scene.random.chance(0.3);
            let ssrc = match known {
                // A layer that the viewer is not on, so that garbage in it is nobody's picture.
                true => scene.world.publisher(scene.publisher).ssrc(0, 0),
                false => scene.random.below(20) as u32,
            };
            let payload_type = 90 + scene.random.below(12) as u8;
            let seq = (1 << 16) + round * 7 % 60_000;
            let header =
                RtpHeader { payload_type, marker: round % 3 == 0, seq: Seq(seq as u16), timestamp: round as u32, ssrc };
            let mut plain = vec![0; 1_400];
            let mut writer = HeaderWriter::new(&mut plain, &header).unwrap();
            for id in 1..5 {
                let value = scene.bytes(16);
                writer.extension(id, &value);
            }
            let header_len = writer.finish();
            plain.truncate(header_len);
            plain.extend(scene.bytes(1_000));
            if round % 5 == 0 {
                plain[0] |= 0x20;
            }
            let sealed = scene.world.publisher(scene.publisher).seal_rtp(&plain, header_len, ssrc, seq);
            scene.world.inject(0, from, &sealed);
        }
        scene.assert_watched(seed);
    }
}

#[test]
fn rtcp_of_a_peer_s_own_keys_with_any_content_is_survived() {
    for seed in 0..4 {
        let mut scene = scene(seed);
        for round in 0..3_000_u64 {
            let mut plain = scene.bytes(600);
            plain.truncate(plain.len() & !3);
            plain.resize(plain.len().max(8), 0);
            let types = [200, 201, 202, 203, 204, 205, 206, 207];
            plain[0] = 0x80 | (plain[0] & 0x3f);
            plain[1] = types[round as usize % types.len()];
            if !scene.random.chance(0.2) {
                let words = (plain.len() / 4 - 1) as u16;
                plain[0] &= 0xdf;
                plain[2..4].copy_from_slice(&words.to_be_bytes());
            }
            if round % 2 == 0 {
                scene.world.viewer(scene.viewer).send_rtcp(&plain);
            } else {
                let sealed = scene.world.publisher(scene.publisher).seal_rtcp(&plain);
                let from = scene.world.addr(scene.publisher);
                scene.world.inject(0, from, &sealed);
            }
        }
        scene.assert_watched(seed);
    }
}
