//! The fuzz targets' corpus, through the same functions.

#[path = "../../../../fuzz/entry/starts.rs"]
mod entry;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn the_corpus_holds() {
    replay::replay("../../fuzz/corpus/starts", 150, entry::starts);
}
