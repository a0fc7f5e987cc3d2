//! libFuzzer's entry to [`fuzz::udp_datagram`].
#![no_main]

use fuzz::udp_datagram::{Input, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| run(&input));
