//! The relay beside a small model of RFC 8656: the fuzz corpus is replayed, and others play anything.
#![allow(clippy::unwrap_used)]

#[path = "../../../fuzz/entry/relay.rs"]
mod entry;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use proptest::prelude::*;

#[test]
fn relay_corpus_holds() {
    replay::replay("../../fuzz/corpus/relay", 12, entry::relay);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn whatever_clients_and_peers_do_the_model_holds(records in prop::collection::vec(any::<[u8; 4]>(), 0..150)) {
        entry::relay(&records.concat());
    }

    /// One client and one peer, so that more of it fits together.
    #[test]
    fn whatever_one_client_does_the_model_holds(records in prop::collection::vec((0..13_u8, any::<u8>(), 0..2_u8), 0..150)) {
        let records = records.into_iter().map(|(what, how, more)| [what, 0, how, more * 6 + 2]);
        let first = [0, 0, 0x80, 2];
        entry::relay(&[&first[..], &records.collect::<Vec<_>>().concat()].concat());
    }
}
