//! Runs clients, a network and an application with the TCP stack. [`fuzz::tcp`] has the details.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: fuzz::tcp::Input| fuzz::tcp::run(&input));
