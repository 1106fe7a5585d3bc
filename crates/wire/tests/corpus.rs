//! Replays the fuzz corpora through the entries of the fuzz targets: whole, cut at every length, and damaged at every
//! byte.

use std::path::PathBuf;

#[path = "../../../fuzz/entry.rs"]
mod entry;

/// What a byte is turned into, one after the other, to damage it.
const DAMAGES: [fn(u8) -> u8; 6] =
    [|_| 0, |_| 0xff, |byte| byte ^ 0x80, |byte| byte ^ 0x20, |byte| byte.wrapping_add(1), |byte| byte.wrapping_sub(1)];

fn replay(target: &str, entry: fn(&[u8])) {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../fuzz/corpus", target].iter().collect();
    let mut count = 0;
    for file in std::fs::read_dir(&folder).expect("the corpus is checked in") {
        let mut data = std::fs::read(file.unwrap().path()).unwrap();
        for len in 0..=data.len() {
            entry(&data[..len]);
        }
        for at in 0..data.len() {
            let intact = data[at];
            for damage in DAMAGES {
                data[at] = damage(intact);
                entry(&data);
            }
            data[at] = intact;
        }
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}

#[test]
fn rtp_corpus_holds() {
    replay("rtp", entry::rtp);
}

#[test]
fn rtcp_corpus_holds() {
    replay("rtcp", entry::rtcp);
}

#[test]
fn stun_corpus_holds() {
    replay("stun", entry::stun);
}

#[test]
fn codec_corpus_holds() {
    replay("codec", entry::codec);
}

#[test]
fn framing_corpus_holds() {
    replay("framing", entry::framing);
}
