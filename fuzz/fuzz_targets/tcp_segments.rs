//! Runs clients, a network and an application against the TCP stack, see
//! [`fuzz::tcp`].
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: fuzz::tcp::Input| fuzz::tcp::run(&input));
