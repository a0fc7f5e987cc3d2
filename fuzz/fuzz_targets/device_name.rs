//! libFuzzer's entry to [`fuzz::device_name`].
#![no_main]

use fuzz::device_name::run;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| run(text));
