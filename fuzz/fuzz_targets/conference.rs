#![no_main]

#[path = "../entry/webrtc.rs"]
#[allow(dead_code, reason = "each target uses one of the entries")]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::conference(data));
