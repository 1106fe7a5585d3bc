//! Replays the fuzz corpora of SRTP and of a worker's rooms.

#[path = "../../../../fuzz/entry/rooms.rs"]
mod entry;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn srtp_corpus_holds() {
    replay("../../fuzz/corpus/srtp", 1_000, entry::srtp);
}

#[test]
fn rooms_corpus_holds() {
    replay("../../fuzz/corpus/rooms", 40, entry::rooms);
}
