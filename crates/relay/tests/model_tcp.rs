//! TCP allocations beside a small model of RFC 6062: the fuzz corpus is replayed, and others play anything.
#![allow(clippy::unwrap_used)]

#[path = "../../../fuzz/entry/relay_tcp.rs"]
mod entry;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use proptest::prelude::*;

#[test]
fn relay_tcp_corpus_holds() {
    replay::replay("../../fuzz/corpus/relay_tcp", 12, entry::relay_tcp);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn whatever_clients_and_peers_do_the_model_holds(records in prop::collection::vec(any::<[u8; 4]>(), 0..150)) {
        entry::relay_tcp(&records.concat());
    }

    /// One client, so that more of it fits together.
    #[test]
    fn whatever_one_client_does_the_model_holds(records in prop::collection::vec((1..14_u8, any::<[u8; 2]>()), 0..150)) {
        let records = records.into_iter().map(|(what, [how, more])| [what, 0, how, more]);
        entry::relay_tcp(&[&[0; 4][..], &records.collect::<Vec<_>>().concat()].concat());
    }
}
