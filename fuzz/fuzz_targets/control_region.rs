#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| echo_hostile::shared_words::control_region_holds(bytes));
