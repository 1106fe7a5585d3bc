//! Inlets that go over to another process.

use super::*;

/// The same inlet in another process; false when its source does not go on.
fn hand_over(harness: &mut Harness, framing: Framing) -> bool {
    hand_over_to(harness, settings(framing))
}

fn hand_over_to(harness: &mut Harness, settings: Settings) -> bool {
    let (file, state) = harness.inlet.give_away(harness.now);
    let written = postcard::to_allocvec(&state).expect("it can be written");
    let state = postcard::from_bytes(&written).expect("it can be read");
    let file = file.try_clone().expect("a descriptor").into();
    let (inlet, goes_on) = Inlet::take_up(harness.now, settings, file, state).expect("it is as it was");
    harness.inlet = inlet;
    (_, _, harness.all) = harness.inlet.add_reader(WorkerId(0));
    goes_on
}

fn give_all(harness: &mut Harness, bytes: &[u8]) {
    bytes.chunks(1_000).for_each(|bytes| harness.give(bytes).expect("room"));
}

#[test]
fn a_source_goes_on_wherever_it_is_handed_over() {
    for made in samples::all(6, 1) {
        for framing in [Framing::None, Framing::Metacube] {
            let mut whole = Harness::new(settings(framing));
            give_all(&mut whole, &made.bytes);
            let mut handed_over = 0;
            for cut in (made.starts[0] as usize..made.bytes.len()).step_by((made.bytes.len() / 60) | 1) {
                let mut harness = Harness::new(settings(framing));
                give_all(&mut harness, &made.bytes[..cut]);
                if !hand_over(&mut harness, framing) {
                    assert!(cut < made.starts[1] as usize + 400, "{:?} {framing:?} {cut}", made.format);
                    continue;
                }
                handed_over += 1;
                give_all(&mut harness, &made.bytes[cut..]);
                let place = format!("{:?} {framing:?} {cut}", made.format);
                if framing == Framing::None {
                    assert!(harness.stream() == whole.stream(), "{place}");
                    assert_eq!(harness.starts(), whole.starts(), "{place}");
                } else {
                    assert!(unframe(&harness.stream()) == unframe(&whole.stream()), "{place}");
                }
                assert_eq!(harness.all.headers.len(), whole.all.headers.len(), "{place}");
                assert_eq!(harness.inlet.content_type(), whole.inlet.content_type());
            }
            assert!(handed_over > 10, "{:?} {framing:?}", made.format);
        }
    }
}

/// With parts, so that each seam counts; and what is read again is heard of twice by nobody.
#[test]
fn a_playlist_goes_on_wherever_its_stream_is_handed_over() {
    let settings = || Settings { hls: Some(in_parts()), ..settings(Framing::None) };
    let text = |harness: &Harness| {
        let mut text = None;
        harness.inlet.hls().expect("it has one").tell(|playlist| text = playlist.text(""));
        text.expect("it has segments")
    };
    for made in samples::all(20, 1).into_iter().filter(|made| matches!(made.format, Format::Ts | Format::Mp4)) {
        let mut whole = Harness::new(settings());
        give_all(&mut whole, &made.bytes);
        let mut handed_over = 0;
        for cut in (made.starts[0] as usize..made.bytes.len()).step_by((made.bytes.len() / 40) | 1) {
            let mut harness = Harness::new(settings());
            // In the same pieces as the whole, as it is when bytes come that counts.
            let cut = cut / 1_000 * 1_000;
            give_all(&mut harness, &made.bytes[..cut]);
            if !hand_over_to(&mut harness, settings()) {
                continue;
            }
            handed_over += 1;
            give_all(&mut harness, &made.bytes[cut..]);
            assert_eq!(text(&harness), text(&whole), "{:?} {cut}", made.format);
        }
        assert!(handed_over > 10, "{:?}", made.format);
    }
}

#[test]
fn what_nobody_was_told_of_is_told_by_the_next_process() {
    let made = &samples::all(4, 1)[0];
    let mut harness = Harness::plain();
    harness.tick = Duration::ZERO;
    give_all(&mut harness, &made.bytes);
    assert!(harness.all.extent.end < harness.inlet.ring.backlog.end(), "it waits for more");
    assert!(hand_over(&mut harness, Framing::None));
    harness.look();
    assert_eq!(harness.all.extent.end, harness.inlet.ring.backlog.end());
    assert!(harness.stream() == expected(made).0);
}
