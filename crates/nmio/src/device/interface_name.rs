//! The names of interfaces.

use super::ParseDeviceError;
use super::limits::MAX_INTERFACE_NAME;

/// Returns the name if an interface can have it.
pub(super) fn interface_name(name: &str) -> Result<String, ParseDeviceError> {
    let valid = (1..=MAX_INTERFACE_NAME).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains([' ', '\t', '\n', '\0', '/', ',', ':']);
    if valid {
        Ok(name.to_owned())
    } else {
        Err(ParseDeviceError::Name(name.to_owned()))
    }
}
