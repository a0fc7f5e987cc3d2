//! libFuzzer's entry to [`fuzz::dns_hook`].
#![no_main]

use fuzz::dns_hook::{Input, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| run(&input));
