//! Parses arbitrary text as a device, an address and a fault configuration. A valid value must not
//! change in a round trip through its text.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use nmio::FaultConfig;
use nmio::device::{AddressPrefix, Device};

/// Runs the target.
pub fn run(text: &str) {
    round_trip::<Device>(text);
    round_trip::<FaultConfig>(text);
    if let Some(prefix) = round_trip::<AddressPrefix>(text) {
        assert!(prefix.contains(prefix.address));
    }
}

fn round_trip<T>(text: &str) -> Option<T>
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
