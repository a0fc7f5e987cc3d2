//! Reduces the five capability sets of the calling thread.

use rustix::io::{self, Errno};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
};

/// All capability numbers are below this bound.
const MAX_CAPABILITIES: u32 = u64::BITS;

/// Removes every capability from the thread's bounding set, so that executing a program cannot
/// restore one. This needs `CAP_SETPCAP`.
pub(crate) fn empty_bounding_set() -> io::Result<()> {
    for number in 0..MAX_CAPABILITIES {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(one) {
            Ok(true) => remove_capability_from_bounding_set(one)?,
            Ok(false) => {}
            // The kernel has no capability with this number or a higher one.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reduces the thread's effective and permitted capabilities to those in `keep`, and prevents the
/// thread from gaining any others.
pub(crate) fn keep_only(keep: CapabilitySet) -> io::Result<()> {
    let now = rustix::thread::capabilities(None)?;
    set_keep_capabilities(false)?;
    clear_ambient_capability_set()?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: now.permitted & keep,
            permitted: now.permitted & keep,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    set_no_new_privs(true)
}
