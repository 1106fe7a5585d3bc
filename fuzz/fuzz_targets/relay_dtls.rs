#![no_main]

#[path = "../entry/relay_dtls.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::relay_dtls(data));
