use std::time::{Duration, Instant};

use wire::codec::{PayloadInfo, PictureNumbers};

use super::*;

const RATE: u32 = 90_000;
const FRAME: u32 = RATE / 30;

/// A publisher's layer: packets in sending order, some fields of which a test then changes.
struct Source {
    start: Instant,
    seq: u64,
    timestamp: u32,
    picture_id: u16,
}

impl Source {
    fn new(seq: u64, timestamp: u32) -> Self {
        Source { start: Instant::now(), seq, timestamp, picture_id: 7 }
    }

    /// The packets of the next frame.
    fn frame(&mut self, temporal_id: u8, count: usize) -> Vec<PacketMeta> {
        self.timestamp = self.timestamp.wrapping_add(FRAME);
        self.picture_id += 1;
        self.start += Duration::from_millis(33);
        let numbers = PictureNumbers {
            picture_id: Some(self.picture_id),
            long_picture_id: true,
            keeps_gaps: false,
            tl0_pic_idx: Some(0),
        };
        let packet = |index| {
            self.seq += 1;
            let payload =
                PayloadInfo { starts_frame: index == 0, temporal_id, picture: Some(numbers), ..PayloadInfo::default() };
            let marker = index + 1 == count;
            PacketMeta { seq: self.seq, timestamp: self.timestamp, arrival: self.start, marker, payload }
        };
        (0..count).map(packet).collect()
    }
}

fn started(first: &PacketMeta) -> Forwarder {
    let mut forwarder = Forwarder::new(RATE, 100, 5_000);
    forwarder.switch(0, first, SwitchClocks::default());
    forwarder
}

fn numbers(forwarder: &mut Forwarder, packets: &[PacketMeta]) -> Vec<Option<(u64, u32, u16)>> {
    let number = |packet| {
        let forwarded = forwarder.forward(packet).ok()?;
        Some((forwarded.seq - 65_536, forwarded.timestamp, forwarded.picture?.picture_id?))
    };
    packets.iter().map(number).collect()
}

#[test]
fn the_first_packet_gets_the_numbers_that_the_caller_gave() {
    let mut source = Source::new(70_000, 1);
    let frame = source.frame(0, 2);
    let mut forwarder = started(&frame[0]);
    assert_eq!(numbers(&mut forwarder, &frame), [Some((100, 5_000, 8)), Some((101, 5_000, 8))]);
}

#[test]
fn nothing_is_forwarded_before_a_switch_and_after_a_stop() {
    let frame = Source::new(70_000, 1).frame(0, 2);
    let mut forwarder = Forwarder::new(RATE, 100, 5_000);
    assert_eq!(forwarder.forward(&frame[0]), Err(DropReason::NotForwarding));
    assert_eq!(forwarder.last_seq(), None);
    forwarder.switch(0, &frame[0], SwitchClocks::default());
    forwarder.forward(&frame[0]).unwrap();
    forwarder.stop();
    assert_eq!(forwarder.forward(&frame[1]), Err(DropReason::NotForwarding));
    assert_eq!(forwarder.last_seq(), Some(65_636));
}

#[test]
fn a_dropped_temporal_layer_leaves_no_hole() {
    let mut source = Source::new(70_000, 1);
    let frames = [source.frame(0, 2), source.frame(1, 3), source.frame(0, 1)];
    let mut forwarder = started(&frames[0][0]);
    forwarder.set_temporal_max(0);
    numbers(&mut forwarder, &frames[0]);
    assert_eq!(numbers(&mut forwarder, &frames[1]), [None; 3]);
    assert_eq!(numbers(&mut forwarder, &frames[2]), [Some((102, 5_000 + 2 * FRAME, 9))]);
}

#[test]
fn a_frame_that_was_begun_is_sent_to_its_end() {
    let mut source = Source::new(70_000, 1);
    let (first, second) = (source.frame(0, 1), source.frame(1, 2));
    let mut forwarder = started(&first[0]);
    numbers(&mut forwarder, &first);
    forwarder.forward(&second[0]).unwrap();
    forwarder.set_temporal_max(0);
    assert!(forwarder.forward(&second[1]).is_ok_and(|forwarded| forwarded.marker));
}

#[test]
fn a_temporal_layer_is_taken_up_only_where_it_may_be() {
    let mut source = Source::new(70_000, 1);
    let mut forwarder = started(&source.frame(0, 1)[0]);
    forwarder.set_temporal_max(0);
    forwarder.forward(&source.frame(0, 1)[0]).unwrap();
    forwarder.set_temporal_max(u8::MAX);
    assert_eq!(forwarder.forward(&source.frame(1, 1)[0]), Err(DropReason::TemporalLayer));
    let mut sync = source.frame(1, 1)[0];
    sync.payload.switch_up = true;
    assert!(forwarder.forward(&sync).is_ok());
    assert!(forwarder.forward(&source.frame(1, 1)[0]).is_ok());
    assert_eq!(forwarder.forward(&source.frame(2, 1)[0]), Err(DropReason::TemporalLayer));
    let mut keyframe = source.frame(0, 1)[0];
    keyframe.payload.keyframe = true;
    assert!(forwarder.forward(&keyframe).is_ok());
    assert!(forwarder.forward(&source.frame(2, 1)[0]).is_ok());
}

#[test]
fn a_frame_of_a_low_layer_may_open_higher_ones_to_who_decodes_it() {
    let mut source = Source::new(70_000, 1);
    let mut forwarder = started(&source.frame(0, 1)[0]);
    forwarder.set_temporal_max(0);
    let mut frame = |temporal_id, switch_to| {
        let mut packet = source.frame(temporal_id, 1)[0];
        packet.payload.switch_to = switch_to;
        packet
    };
    assert!(forwarder.forward(&frame(0, 0b111)).is_ok(), "it goes no higher than it may");
    assert_eq!(forwarder.forward(&frame(1, 0)), Err(DropReason::TemporalLayer));
    forwarder.set_temporal_max(1);
    assert_eq!(forwarder.forward(&frame(1, 0b110)), Err(DropReason::TemporalLayer), "it does not decode this one");
    assert!(forwarder.forward(&frame(0, 0b100)).is_ok(), "which opens the layer two above only");
    assert_eq!(forwarder.forward(&frame(1, 0)), Err(DropReason::TemporalLayer));
    assert!(forwarder.forward(&frame(0, 0b111)).is_ok());
    assert!(forwarder.forward(&frame(1, 0)).is_ok());
    assert_eq!(forwarder.forward(&frame(2, 0)), Err(DropReason::TemporalLayer));
}

#[test]
fn a_late_packet_gets_the_number_that_was_kept_for_it() {
    let mut source = Source::new(70_000, 1);
    let frames = [source.frame(0, 3), source.frame(1, 3), source.frame(0, 1)];
    let mut forwarder = started(&frames[0][0]);
    forwarder.set_temporal_max(0);
    numbers(&mut forwarder, &[frames[0][0], frames[0][2]]);
    numbers(&mut forwarder, &frames[1]);
    numbers(&mut forwarder, &frames[2]);
    assert_eq!(numbers(&mut forwarder, &frames[0][1..2]), [Some((101, 5_000, 8))]);
}

#[test]
fn what_is_missing_of_a_dropped_frame_leaves_no_hole_either() {
    let mut source = Source::new(70_000, 1);
    let frames = [source.frame(0, 1), source.frame(1, 5), source.frame(0, 1)];
    let mut forwarder = started(&frames[0][0]);
    forwarder.set_temporal_max(0);
    numbers(&mut forwarder, &frames[0]);
    numbers(&mut forwarder, &[frames[1][1], frames[1][3]]);
    assert_eq!(numbers(&mut forwarder, &frames[2]), [Some((101, 5_000 + 2 * FRAME, 9))]);
    assert_eq!(numbers(&mut forwarder, &[frames[1][0], frames[1][2], frames[1][4]]), [None; 3]);
}

#[test]
fn a_switch_goes_on_by_the_clocks_where_both_layers_have_one() {
    let (mut low, mut high) = (Source::new(70_000, 1), Source::new(90_000, 4_000_000_000));
    let mut forwarder = started(&low.frame(0, 1)[0]);
    numbers(&mut forwarder, &low.frame(0, 1));
    let last = numbers(&mut forwarder, &low.frame(0, 1))[0].unwrap();
    // The same instant in both clocks; the new layer's packet was sent 40 ms after it, the old one's 20 ms.
    let from = SenderClock { ntp: 9 << 32, rtp: low.timestamp.wrapping_sub(RATE / 50) };
    let frame = high.frame(0, 1);
    let to = SenderClock { ntp: 9 << 32, rtp: high.timestamp.wrapping_sub(RATE / 25) };
    forwarder.switch(1, &frame[0], SwitchClocks { from: Some(from), to: Some(to) });
    assert_eq!(numbers(&mut forwarder, &frame), [Some((last.0 + 1, last.1 + RATE / 50, last.2 + 1))]);
    assert_eq!(forwarder.map_clock(to).unwrap().rtp, last.1 + RATE / 50 - RATE / 25);
}

#[test]
fn a_switch_goes_on_by_arrival_when_clocks_are_missing_or_wrong() {
    let wrong = SenderClock { ntp: 9 << 32, rtp: 0 };
    for clocks in [SwitchClocks::default(), SwitchClocks { from: Some(wrong), to: Some(wrong) }] {
        let (mut low, mut high) = (Source::new(70_000, 1), Source::new(90_000, 2_000_000_000));
        let first = low.frame(0, 1);
        let mut forwarder = started(&first[0]);
        numbers(&mut forwarder, &first);
        let mut frame = high.frame(0, 1);
        frame[0].arrival = first[0].arrival + Duration::from_millis(100);
        forwarder.switch(1, &frame[0], clocks);
        assert_eq!(numbers(&mut forwarder, &frame), [Some((101, 5_000 + RATE / 10, 9))]);
        frame[0].arrival = first[0].arrival;
        forwarder.switch(0, &frame[0], clocks);
        assert_eq!(numbers(&mut forwarder, &frame)[0].unwrap().1, 5_000 + RATE / 10 + 1);
    }
}

#[test]
fn the_same_layer_keeps_its_timestamps_after_a_pause() {
    let mut source = Source::new(70_000, 1);
    let first = source.frame(0, 1);
    let mut forwarder = started(&first[0]);
    numbers(&mut forwarder, &first);
    forwarder.stop();
    source.frame(0, 400);
    let next = source.frame(0, 1);
    forwarder.switch(0, &next[0], SwitchClocks::default());
    assert_eq!(numbers(&mut forwarder, &next), [Some((101, 5_000 + 2 * FRAME, 9))]);
}

#[test]
fn what_was_sent_before_the_switch_has_no_place() {
    let mut source = Source::new(70_000, 1);
    let (old, keyframe) = (source.frame(0, 1), source.frame(0, 1));
    let mut forwarder = started(&keyframe[0]);
    numbers(&mut forwarder, &keyframe);
    assert_eq!(forwarder.forward(&old[0]), Err(DropReason::BeforeSwitch));
}

#[test]
fn a_forwarder_stays_small() {
    assert!(size_of::<Forwarder>() <= 192, "{}", size_of::<Forwarder>());
}

/// The packets of the next picture of spatial layers, two packets for each.
fn spatial_picture(source: &mut Source, layers: u8, keyframe: bool) -> Vec<PacketMeta> {
    let mut packets = source.frame(0, 2 * usize::from(layers));
    for (packet, place) in packets.iter_mut().zip(0u8..) {
        let (spatial_id, begins) = (place / 2, place.is_multiple_of(2));
        packet.payload.picture = packet.payload.picture.map(|numbers| PictureNumbers { keeps_gaps: true, ..numbers });
        packet.payload = PayloadInfo {
            starts_frame: place == 0,
            keyframe: place == 0 && keyframe,
            spatial_id,
            ends_layer: !begins,
            ..packet.payload
        };
    }
    packets
}

/// Number and marker of what goes out.
fn marked(forwarder: &mut Forwarder, packets: &[PacketMeta]) -> Vec<(u64, bool)> {
    let forwarded = packets.iter().filter_map(|packet| forwarder.forward(packet).ok());
    forwarded.map(|forwarded| (forwarded.seq - 65_536, forwarded.marker)).collect()
}

#[test]
fn upper_spatial_layers_go_with_the_next_picture_and_leave_no_hole() {
    let mut source = Source::new(70_000, 1);
    let first = spatial_picture(&mut source, 3, true);
    let mut forwarder = started(&first[0]);
    assert_eq!(marked(&mut forwarder, &first[..3]), [(100, false), (101, false), (102, false)]);
    forwarder.set_spatial_max(1);
    let all = [(103, false), (104, false), (105, true)];
    assert_eq!(marked(&mut forwarder, &first[3..]), all, "what has begun is finished");
    let second = spatial_picture(&mut source, 3, false);
    assert_eq!(marked(&mut forwarder, &second), [(106, false), (107, false), (108, false), (109, true)]);
    assert_eq!(forwarder.forward(&second[4]), Err(DropReason::TemporalLayer), "again, and late");
    assert_eq!(marked(&mut forwarder, &spatial_picture(&mut source, 3, false)[..1]), [(110, false)]);
}

#[test]
fn upper_spatial_layers_come_with_the_next_keyframe() {
    let mut source = Source::new(70_000, 1);
    let first = spatial_picture(&mut source, 3, true);
    let mut forwarder = Forwarder::new(RATE, 100, 5_000);
    forwarder.set_spatial_max(0);
    forwarder.switch(0, &first[0], SwitchClocks::default());
    assert_eq!(marked(&mut forwarder, &first).len(), 2);
    forwarder.set_spatial_max(u8::MAX);
    assert!(forwarder.waits_for_spatial());
    assert_eq!(marked(&mut forwarder, &spatial_picture(&mut source, 3, false)), [(102, false), (103, true)]);
    let keyframe = spatial_picture(&mut source, 3, true);
    let all = [(104, false), (105, false), (106, false), (107, false), (108, false), (109, true)];
    assert_eq!(marked(&mut forwarder, &keyframe), all);
    assert!(!forwarder.waits_for_spatial());
}

#[test]
fn what_is_lost_of_upper_spatial_layers_leaves_no_hole_and_of_lower_ones_does() {
    let mut source = Source::new(70_000, 1);
    let first = spatial_picture(&mut source, 3, true);
    let mut forwarder = Forwarder::new(RATE, 100, 5_000);
    forwarder.set_spatial_max(1);
    forwarder.switch(0, &first[0], SwitchClocks::default());
    assert_eq!(marked(&mut forwarder, &first), [(100, false), (101, false), (102, false), (103, true)]);
    // The last picture's upper layer is lost, in part and whole.
    for lost in [5..6, 4..5, 4..6] {
        let mut packets = spatial_picture(&mut source, 3, false);
        packets.drain(lost);
        marked(&mut forwarder, &packets);
    }
    let fifth = spatial_picture(&mut source, 3, false);
    assert_eq!(marked(&mut forwarder, &fifth[..3]), [(116, false), (117, false), (118, false)]);
    // The end of layer 1 is lost, and comes late.
    assert_eq!(marked(&mut forwarder, &fifth[4..]), []);
    let sixth = spatial_picture(&mut source, 3, false);
    assert_eq!(marked(&mut forwarder, &sixth[..2]), [(120, false), (121, false)]);
    assert_eq!(marked(&mut forwarder, &fifth[3..4]), [(119, true)]);
}

#[test]
fn what_was_lost_before_upper_spatial_layers_went_fills_its_hole() {
    let mut source = Source::new(70_000, 1);
    let first = spatial_picture(&mut source, 3, true);
    for lost in [vec![1], vec![3], vec![4], vec![5], vec![1, 3, 5]] {
        let mut forwarder = started(&first[0]);
        assert_eq!(marked(&mut forwarder, &first).len(), 6);
        let second = spatial_picture(&mut source, 3, false);
        let is_lost = |packet: &PacketMeta| lost.contains(&(packet.seq - second[0].seq));
        let (lost, came): (Vec<PacketMeta>, Vec<PacketMeta>) = second.iter().copied().partition(is_lost);
        let place = |packet: &PacketMeta| (100 + packet.seq - first[0].seq, packet.marker);
        let mut second = marked(&mut forwarder, &came);
        forwarder.set_spatial_max(0);
        let third = spatial_picture(&mut source, 3, false);
        assert_eq!(marked(&mut forwarder, &third).last().map(|(_, marker)| *marker), Some(true));
        second.extend(marked(&mut forwarder, &lost));
        let expected: Vec<(u64, bool)> = came.iter().chain(&lost).map(place).collect();
        assert_eq!(second, expected, "each packet of the picture before has its number, and the last one the marker");
    }
}

#[test]
fn upper_spatial_layers_go_where_a_picture_is_seen_to_begin() {
    let mut source = Source::new(70_000, 1);
    let first = spatial_picture(&mut source, 3, true);
    let mut forwarder = started(&first[0]);
    marked(&mut forwarder, &first);
    forwarder.set_spatial_max(0);
    let second = spatial_picture(&mut source, 3, false);
    let came = [(108, false), (109, false), (110, false), (111, true)];
    assert_eq!(marked(&mut forwarder, &second[2..]), came, "its lowest layer may come late, and all of it go out");
    assert_eq!(marked(&mut forwarder, &second[..2]), [(106, false), (107, false)]);
    assert_eq!(marked(&mut forwarder, &spatial_picture(&mut source, 3, false)), [(112, false), (113, true)]);
}

#[test]
fn what_comes_late_of_what_is_left_out_fills_its_hole_with_padding() {
    let mut source = Source::new(70_000, 1);
    // Without picture numbers nobody knows that the next picture follows.
    let mut picture = |keyframe| {
        let mut packets = spatial_picture(&mut source, 3, keyframe);
        packets.iter_mut().for_each(|packet| packet.payload.picture = None);
        packets
    };
    let (first, second, third) = (picture(true), picture(false), picture(false));
    let mut forwarder = Forwarder::new(RATE, 100, 5_000);
    forwarder.set_spatial_max(0);
    forwarder.switch(0, &first[0], SwitchClocks::default());
    assert_eq!(marked(&mut forwarder, &first), [(100, false), (101, true)]);
    assert_eq!(marked(&mut forwarder, &second[..5]), [(102, false), (103, true)]);
    assert_eq!(marked(&mut forwarder, &third), [(105, false), (106, true)]);
    let late = forwarder.forward(&second[5]).expect("it has a number");
    assert_eq!((late.seq - 65_536, late.timestamp, late.marker), (104, 5_000 + FRAME, false));
    assert!(late.is_padding);
}

#[test]
fn of_spatial_layers_with_shifted_temporal_ones_all_pictures_go_out_or_the_lowest_is_thinned() {
    for (spatial_max, expected) in [(1, [4, 4, 4, 4, 4]), (0, [2, 2, 0, 2, 0])] {
        let mut source = Source::new(70_000, 1);
        let mut picture = |temporal_ids: [u8; 2]| {
            let mut packets = spatial_picture(&mut source, 2, temporal_ids == [0, 0]);
            for packet in &mut packets {
                packet.payload.temporal_id = temporal_ids[usize::from(packet.payload.spatial_id)];
            }
            packets
        };
        let pictures = [[0, 0], [0, 1], [1, 0], [0, 1], [1, 0]].map(&mut picture);
        let mut forwarder = Forwarder::new(RATE, 100, 5_000);
        forwarder.set_spatial_max(spatial_max);
        forwarder.set_temporal_max(0);
        forwarder.switch(0, &pictures[0][0], SwitchClocks::default());
        assert_eq!(pictures.map(|packets| marked(&mut forwarder, &packets).len()), expected);
    }
}
