//! libFuzzer's entry to [`fuzz::site_rules`].
#![no_main]

use fuzz::site_rules::{Input, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| run(&input));
