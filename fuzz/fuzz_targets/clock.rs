#![no_main]

#[path = "../entry/clock.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::clock(data));
