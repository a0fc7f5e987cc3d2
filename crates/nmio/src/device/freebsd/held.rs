//! What an interface keeps open or attached while it is served.

/// What an interface keeps open or attached.
pub(in crate::device) enum Held {}

impl Held {
    pub(in crate::device) fn needs_removal(&self) -> bool {
        match *self {}
    }
}
