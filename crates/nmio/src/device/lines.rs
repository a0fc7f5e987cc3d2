//! Facts about an interface, for people.

use super::AddressPrefix;

/// Lines of a name and a value, for people.
pub(super) type Lines = Vec<(&'static str, String)>;

pub(super) fn join(list: &[impl ToString]) -> String {
    list.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The addresses without their networks, for people.
pub(super) fn join_addresses(list: &[AddressPrefix]) -> String {
    join(&list.iter().map(|one| one.address).collect::<Vec<_>>())
}
