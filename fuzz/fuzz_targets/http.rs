#![no_main]

#[path = "../entry/http.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::http(data));
