//! libFuzzer's entry to [`fuzz::ip_receive`].
#![no_main]

use fuzz::ip_receive::{Frame, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Frame| run(&input));
