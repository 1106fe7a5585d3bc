#![no_main]

#[path = "../entry/negotiator.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::negotiator(data));
