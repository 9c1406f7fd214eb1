#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| echo_hostile::replay::holds(bytes));
