//! Clients by DTLS beside an attacker: the fuzz corpus is replayed, and others play anything.
#![allow(clippy::unwrap_used)]

#[path = "../../../fuzz/entry/relay_dtls.rs"]
mod entry;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use proptest::prelude::*;

#[test]
fn relay_dtls_corpus_holds() {
    replay::replay("../../fuzz/corpus/relay_dtls", 12, entry::relay_dtls);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn whatever_clients_and_attackers_do_nobody_is_harmed(records in prop::collection::vec(any::<[u8; 4]>(), 0..100)) {
        entry::relay_dtls(&records.concat());
    }
}
