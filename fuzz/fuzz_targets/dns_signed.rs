//! libFuzzer's entry to [`fuzz::dns_signed`].
#![no_main]

use fuzz::dns_signed::{Input, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| run(&input));
