//! Summary lines about an interface.

use super::AddressPrefix;

/// Summary lines for people, as pairs of name and value.
pub(super) type Lines = Vec<(&'static str, String)>;

pub(super) fn join(list: &[impl ToString]) -> String {
    list.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the addresses as text, separated by commas and without prefix lengths.
pub(super) fn join_addresses(list: &[AddressPrefix]) -> String {
    join(&list.iter().map(|one| one.address).collect::<Vec<_>>())
}
