#![no_main]

#[path = "../entry/relay.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::relay(data));
