//! The query types for which replies are counted.

use crate::rtype;

/// The query types that are counted on their own, with their mnemonics.
const TYPES: [(u16, &str); 14] = [
    (rtype::A, "A"),
    (rtype::AAAA, "AAAA"),
    (rtype::NS, "NS"),
    (rtype::MX, "MX"),
    (rtype::TXT, "TXT"),
    (rtype::SOA, "SOA"),
    (rtype::DS, "DS"),
    (rtype::DNSKEY, "DNSKEY"),
    (rtype::HTTPS, "HTTPS"),
    (rtype::ANY, "ANY"),
    (rtype::PTR, "PTR"),
    (rtype::SRV, "SRV"),
    (rtype::CNAME, "CNAME"),
    (rtype::CAA, "CAA"),
];
/// Number of counters. The last one is for all other types.
pub(crate) const COUNTERS: usize = TYPES.len() + 1;
/// The counter of each type up to the largest of [`TYPES`]. Larger types have the last counter.
static COUNTER_OF: [u8; rtype::CAA as usize + 1] = {
    let mut counters = [TYPES.len() as u8; rtype::CAA as usize + 1];
    let mut index = 0;
    while index < TYPES.len() {
        counters[TYPES[index].0 as usize] = index as u8;
        index += 1;
    }
    counters
};

/// Returns the number of the counter for a type.
#[inline(always)]
pub(crate) fn counter_of(qtype: u16) -> usize {
    let counter = COUNTER_OF.get(usize::from(qtype));
    counter.map_or(TYPES.len(), |counter| usize::from(*counter))
}

/// Returns the mnemonics of the types in the order of their counters, and last `other`.
pub(crate) fn names() -> [&'static str; COUNTERS] {
    std::array::from_fn(|counter| TYPES.get(counter).map_or("other", |(_, name)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_types_have_counters_of_their_own() {
        let name = |qtype| names()[counter_of(qtype)];
        for (qtype, mnemonic) in TYPES {
            assert_eq!(name(qtype), mnemonic);
        }
        for qtype in [0, 3, 256, 258, u16::MAX] {
            assert_eq!(name(qtype), "other");
        }
    }
}
