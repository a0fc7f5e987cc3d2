//! libFuzzer's entry to [`fuzz::dns_query`].
#![no_main]

use fuzz::dns_query::{Input, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| run(&input));
