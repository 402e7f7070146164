#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| userdma_sim::fuzz::cm(bytes));
