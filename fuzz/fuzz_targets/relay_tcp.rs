#![no_main]

#[path = "../entry/relay_tcp.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::relay_tcp(data));
