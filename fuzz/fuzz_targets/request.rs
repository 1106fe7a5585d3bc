#![no_main]

#[path = "../entry/request.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::request(data));
