//! Replays the fuzz corpora through the entries of the fuzz targets: whole, cut at every length, and damaged at every
//! byte.

use crate::entry;
use crate::replay::replay;

#[test]
fn rtp_corpus_holds() {
    replay("../../fuzz/corpus/rtp", usize::MAX, entry::rtp);
}

#[test]
fn rtcp_corpus_holds() {
    replay("../../fuzz/corpus/rtcp", usize::MAX, entry::rtcp);
}

#[test]
fn stun_corpus_holds() {
    replay("../../fuzz/corpus/stun", usize::MAX, entry::stun);
}

#[test]
fn codec_corpus_holds() {
    replay("../../fuzz/corpus/codec", usize::MAX, entry::codec);
}

#[test]
fn framing_corpus_holds() {
    replay("../../fuzz/corpus/framing", usize::MAX, entry::framing);
}

#[test]
fn proxy_corpus_holds() {
    replay("../../fuzz/corpus/proxy", usize::MAX, entry::proxy);
}

#[test]
fn rtsp_corpus_holds() {
    replay("../../fuzz/corpus/rtsp", usize::MAX, entry::rtsp);
}
