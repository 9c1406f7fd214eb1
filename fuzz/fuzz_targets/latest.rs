#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| echo_hostile::latest::holds(bytes));
