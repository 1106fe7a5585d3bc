#![no_main]

#[path = "../entry/live.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::live(data));
