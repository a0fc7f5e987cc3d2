//! libFuzzer's entry to [`fuzz::http_request`].
#![no_main]

use fuzz::http_request::{Input, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| run(&input));
