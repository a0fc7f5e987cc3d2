//! Lines that are added to the summary of an open interface. Only the devices of Linux do so.

use super::Interface;

impl Interface {
    pub(in crate::device) fn add_line(&mut self, name: &str, value: String) {
        self.access.add_line(name, value);
    }

    pub(in crate::device) fn set_device_line(&mut self, value: String) {
        self.access.set_device_line(value);
    }
}
