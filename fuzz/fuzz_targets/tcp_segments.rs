//! Clients that send any segments near the valid ones, while time and the
//! application do what they like: see [`fuzz::tcp`].
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: fuzz::tcp::Input| fuzz::tcp::run(&input));
