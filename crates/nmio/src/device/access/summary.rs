//! Lines that are added to the summary of an open interface. Only the devices of Linux do so.

use super::QueueAccess;

impl QueueAccess {
    pub(in crate::device) fn add_line(&mut self, name: &str, value: String) {
        self.facts.summary.push((name.to_owned(), value));
    }

    /// Adds the `device` line at the start of the summary.
    pub(in crate::device) fn set_device_line(&mut self, value: String) {
        self.facts.summary.insert(0, ("device".to_owned(), value));
    }
}
