//! Any text where a command line wants a device, an address or faults: what
//! is taken is shown as it can be written again.
#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use nmio::FaultConfig;
use nmio::device::{AddressPrefix, Device};

fuzz_target!(|text: &str| {
    shows_what_it_read::<Device>(text);
    shows_what_it_read::<FaultConfig>(text);
    if let Some(prefix) = shows_what_it_read::<AddressPrefix>(text) {
        assert!(prefix.contains(prefix.address));
    }
});

fn shows_what_it_read<T>(text: &str) -> Option<T>
where
    T: FromStr<Err: Debug + Display> + Display + PartialEq + Debug,
{
    match text.parse::<T>() {
        Ok(value) => {
            assert_eq!(value.to_string().parse::<T>().as_ref().unwrap(), &value);
            Some(value)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}
