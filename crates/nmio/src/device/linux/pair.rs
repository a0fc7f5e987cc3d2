//! A veth pair between this host and the server.

use std::io;
use std::os::fd::BorrowedFd;

use super::netlink;
use crate::sys::Control;

/// This host's end of a veth pair. Dropping this value removes the pair.
pub(super) struct VethPair {
    name: String,
    /// The interface's number, which stays the same when it gets another name.
    index: u32,
}

impl VethPair {
    /// Creates a pair: interface `name` in the calling thread's namespace, and interface `peer` in
    /// `namespace`.
    pub(super) fn create(
        name: String,
        peer: &str,
        queues: u32,
        namespace: BorrowedFd<'_>,
    ) -> io::Result<Self> {
        netlink::create_veth(&name, peer, queues, namespace)?;
        let index = Control::new()?.index(&name)?;
        Ok(Self { name, index })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        // The kernel would also remove the pair together with the namespace, but only after a
        // delay.
        if let Err(error) = netlink::delete_link(self.index) {
            tracing::debug!(target: "nmio::device", "cannot remove {}: {error}", self.name);
        }
    }
}
