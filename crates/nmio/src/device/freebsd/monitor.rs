//! Reports changes of an interface while it is served.

use std::io;

use crate::device::Change;

/// Receives the changes of one interface from the kernel.
#[derive(Debug)]
pub enum Monitor {}

impl Monitor {
    /// Returns the next change, or `None` if no change is waiting. Never blocks.
    ///
    /// # Errors
    /// Fails if reading from the kernel fails.
    pub fn next_change(&mut self) -> io::Result<Option<Change>> {
        match *self {}
    }
}
