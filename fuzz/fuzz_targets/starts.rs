#![no_main]

#[path = "../entry/starts.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::starts(data));
