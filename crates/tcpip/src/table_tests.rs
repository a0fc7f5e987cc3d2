use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

#[test]
fn entries_are_found_even_if_all_hashes_collide() {
    let mut table = Table::new(8);
    for id in 0..8 {
        table.insert(0xffff_ffff, id);
    }
    for id in 0..8 {
        assert_eq!(table.find(0xffff_ffff, |found| found == id), Some(id));
    }
    assert_eq!(table.find(0xffff_ffff, |_| false), None);
    assert_eq!(table.find(0, |_| true), None);
    for id in [3, 0, 7] {
        assert!(table.remove(0xffff_ffff, id));
        assert!(!table.remove(0xffff_ffff, id));
    }
    for id in [1, 2, 4, 5, 6] {
        assert_eq!(table.find(0xffff_ffff, |found| found == id), Some(id));
    }
    assert_eq!(table.len(), 5);
}

#[test]
fn the_hash_depends_on_everything_and_on_the_key() {
    let keys = Keys::new([1, 2, 3, 4]);
    let v4 = |src: u32, dst: u32| Addresses::V4 {
        src: Ipv4Addr::from_bits(src),
        dst: Ipv4Addr::from_bits(dst),
    };
    let v6 = |src: u128, dst: u128| Addresses::V6 {
        src: Ipv6Addr::from_bits(src),
        dst: Ipv6Addr::from_bits(dst),
    };
    let all = [
        keys.hash(&v4(1, 2), 3, 4),
        keys.hash(&v4(2, 1), 3, 4),
        keys.hash(&v4(1, 2), 4, 3),
        keys.hash(&v4(1, 2), 3, 5),
        keys.hash(&v6(1, 2), 3, 4),
        keys.hash(&v6(2, 1), 3, 4),
        keys.hash(&v6(1 << 64 | 1, 2), 3, 4),
        Keys::new([1, 2, 9, 4]).hash(&v4(1, 2), 3, 4),
        Keys::new([1, 2, 3, 9]).hash(&v4(1, 2), 3, 4),
    ];
    for (i, a) in all.iter().enumerate() {
        for b in &all[i + 1..] {
            assert_ne!(a, b);
        }
    }
    assert_eq!(keys.hash(&v4(1, 2), 3, 4), all[0]);
    let offset = |keys: &Keys| keys.offsets(&v4(1, 2), 3, 4).0;
    assert_ne!(offset(&Keys::new([1, 5, 3, 4])), offset(&keys));
    // The keys of the hash and of the offsets are independent.
    assert_eq!(offset(&Keys::new([1, 2, 5, 6])), offset(&keys));
    let hash = |keys: &Keys| keys.hash(&v4(1, 2), 3, 4);
    assert_eq!(hash(&Keys::new([5, 6, 3, 4])), hash(&keys));
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_hash_map(
        capacity in 1u32..40,
        steps in prop::collection::vec((any::<bool>(), 0u32..40, 0u32..12), 1..300),
    ) {
        let mut table = Table::new(capacity);
        let mut map = HashMap::new();
        // A few hashes near the end of the table cause long probe sequences that wrap around.
        let hash_of = |hash: u32| hash.wrapping_mul(0x1111_1111).wrapping_sub(6);
        for (insert, id, hash) in steps {
            let id = id % capacity;
            if insert && !map.contains_key(&id) {
                table.insert(hash_of(hash), id);
                map.insert(id, hash_of(hash));
            } else if !insert {
                let known = map.remove(&id);
                prop_assert_eq!(table.remove(known.unwrap_or(hash_of(hash)), id), known.is_some());
            }
            prop_assert_eq!(table.len() as usize, map.len());
            for id in 0..capacity {
                for hash in (0..12).map(hash_of) {
                    let found = table.find(hash, |found| found == id);
                    prop_assert_eq!(found.is_some(), map.get(&id) == Some(&hash));
                }
            }
        }
    }
}
