//! Privileges that a device needs, and advice about missing ones.

/// An operation that needs privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Opening a netmap port.
    Netmap,
}

impl Needs {
    /// Returns advice: what the operation needs, and the remedy.
    pub(in crate::device) fn advice(self) -> String {
        match self {
            Self::Netmap => {
                "device netmap needs read and write access to /dev/netmap: run as root, or \
                             change the owner or the mode of this file"
                    .to_owned()
            }
        }
    }
}
