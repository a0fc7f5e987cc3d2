//! Giving up rights once every port is open.
//!
//! Capabilities belong to threads. A worker needs none after its port and
//! handler are made. The main thread keeps the one that removing an interface
//! takes, where it has made one, because it cleans up after the workers.

use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

/// Gives up all capabilities of the calling thread, and the means to gain any.
pub(crate) fn give_up_all() -> io::Result<()> {
    keep_only(CapabilitySet::empty())
}

/// As [`give_up_all`], but `CAP_NET_ADMIN` stays if it was there.
pub(crate) fn keep_interfaces() -> io::Result<()> {
    keep_only(CapabilitySet::NET_ADMIN)
}

fn keep_only(keep: CapabilitySet) -> io::Result<()> {
    let now = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: now.effective & keep,
            permitted: now.permitted & keep,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    set_no_new_privs(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_is_gone_for_this_thread_only() {
        let before = capabilities(None).unwrap();
        std::thread::spawn(|| {
            keep_interfaces().unwrap();
            let now = capabilities(None).unwrap();
            assert!(CapabilitySet::NET_ADMIN.contains(now.permitted));
            give_up_all().unwrap();
            let now = capabilities(None).unwrap();
            assert!(now.permitted.is_empty() && now.effective.is_empty());
            assert!(rustix::thread::no_new_privs().unwrap());
        })
        .join()
        .unwrap();
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
