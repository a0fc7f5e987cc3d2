//! Capabilities, all five sets of them, of the calling thread.

use rustix::io::{self, Errno};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
};

/// Numbers that a capability may have.
const MOST: u32 = u64::BITS;

/// Takes every capability out of the thread's bounding set, so that it cannot
/// come back by a program that has it. This takes `CAP_SETPCAP`.
pub(crate) fn empty_bounding_set() -> io::Result<()> {
    for number in 0..MOST {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(one) {
            Ok(true) => remove_capability_from_bounding_set(one)?,
            Ok(false) => {}
            // The kernel knows no more.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Leaves the thread `keep` of its permitted capabilities, and no means to gain
/// any.
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
