//! libFuzzer's entry to [`fuzz::http_app`].
#![no_main]

use fuzz::http_app::{Input, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| run(&input));
