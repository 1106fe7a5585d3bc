#![no_main]

#[path = "../entry/pump.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    entry::pump(data);
    entry::monitor(data);
});
