//! libFuzzer's entry to [`fuzz::dns_batch`].
#![no_main]

use fuzz::dns_batch::{Input, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| run(&input));
