//! libFuzzer's entry to [`fuzz::tcp_segments`].
#![no_main]

use fuzz::tcp_segments::{Input, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| run(&input));
