//! Replays the fuzz corpora of session descriptions, and the browsers' offers beside this file.

#[path = "../../../../fuzz/entry/webrtc.rs"]
mod entry;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn offer_corpus_holds() {
    replay("../../fuzz/corpus/offer", 150, entry::offer);
    replay("tests/offers", 100, entry::offer);
}

#[test]
fn answer_corpus_holds() {
    replay("../../fuzz/corpus/answer", 150, entry::answer);
}

#[test]
fn conference_corpus_holds() {
    replay("../../fuzz/corpus/conference", 60, entry::conference);
}

#[test]
fn fragment_corpus_holds() {
    replay("../../fuzz/corpus/fragment", 150, entry::fragment);
}
