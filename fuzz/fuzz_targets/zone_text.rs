//! libFuzzer's entry to [`fuzz::zone_text`].
#![no_main]

use fuzz::zone_text::run;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| run(text));
