//! Whatever text comes in, it is answered or refused; an answer always has as many sections as its offer.

use std::sync::OnceLock;
use std::time::Instant;

use crate::common::{TO_RECEIVE, TO_SEND, udp};
use proptest::prelude::*;
use webrtc::{AnswerOptions, Context, Fragment, Peer};

const OFFERS: [&str; 6] = [
    include_str!("../offers/chrome-whip-simulcast.sdp"),
    include_str!("../offers/chrome-whep-recvonly.sdp"),
    include_str!("../offers/chrome-whep-max-bundle-extra.sdp"),
    include_str!("../offers/firefox-whep.sdp"),
    include_str!("../offers/obs-whip.sdp"),
    include_str!("../offers/pion-whip.sdp"),
];

/// Whether any of those who read session descriptions took it.
fn is_taken(text: &str) -> bool {
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    let context = CONTEXT.get_or_init(|| Context::new().unwrap());
    let mut is_taken = false;
    for purpose in [TO_RECEIVE, TO_SEND] {
        let options = AnswerOptions { purpose, candidates: &[udp("127.0.0.1:7000")] };
        if let Ok((_, negotiated)) = Peer::answer(context, Instant::now(), text, &options) {
            let sections = |text: &str| text.lines().filter(|line| line.starts_with("m=")).count();
            assert_eq!(sections(&negotiated.sdp), sections(text), "{}", negotiated.sdp);
            assert!(!negotiated.media.is_empty());
            is_taken = true;
        }
    }
    let (mut client, _) = Peer::offer(context, Instant::now(), &crate::common::WATCH).unwrap();
    let _ = Fragment::parse(text);
    is_taken | client.accept_answer(text).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn offers_with_changed_lines_are_answered_or_refused(
        which in 0..OFFERS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..5_u8, any::<prop::sample::Index>()), 1..8),
    ) {
        let mut lines: Vec<String> = OFFERS[which].lines().map(Into::into).collect();
        for (line, change, other) in changes {
            let (line, other) = (line.index(lines.len()), other.index(lines.len()));
            match change {
                0 if lines.len() > 1 => { lines.remove(line); }
                1 => { let copy = lines[other].clone(); lines.insert(line, copy); }
                2 => lines.swap(line, other),
                3 => { let keep = lines[line].len() / 2; lines[line].truncate(keep); }
                _ => lines[line] = lines[line].replace(|c: char| c.is_ascii_digit(), "9999"),
            }
        }
        is_taken(&lines.join("\r\n"));
    }

    #[test]
    fn offers_with_changed_bytes_are_answered_or_refused(
        which in 0..OFFERS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..16),
    ) {
        let mut bytes = OFFERS[which].as_bytes().to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        is_taken(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_text_at_all_is_refused(text in "(v=0\n)?([a-z]=[ -~é]{0,40}\n){0,20}") {
        prop_assert!(!is_taken(&text));
    }
}
