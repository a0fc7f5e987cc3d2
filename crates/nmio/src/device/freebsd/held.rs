//! What an interface keeps open or attached while it is served.

use crate::device::{CurrentAddresses, DeviceError};

/// What an interface keeps open or attached.
pub(in crate::device) enum Held {}

impl Held {
    pub(in crate::device) fn needs_removal(&self) -> bool {
        match *self {}
    }

    pub(in crate::device) fn follow(&mut self) -> Option<Result<CurrentAddresses, DeviceError>> {
        match *self {}
    }
}
