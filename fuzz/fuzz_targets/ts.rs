#![no_main]

#[path = "../entry/ts.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::ts(data));
