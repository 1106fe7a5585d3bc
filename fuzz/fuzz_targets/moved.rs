#![no_main]

#[path = "../entry/moved.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::moved(data));
