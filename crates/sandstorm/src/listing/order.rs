//! Sorts the entries of a folder as people expect it.

use std::cmp::Ordering;

use super::entry::ListingEntry;

/// Sorts folders before files, and each kind by name in natural order: without regard to case, and
/// digits by the value of their number. Names that are equal in this order are sorted by their
/// bytes.
pub(super) fn sorted(entries: &[ListingEntry]) -> Vec<&ListingEntry> {
    let mut keyed: Vec<_> = entries
        .iter()
        .map(|entry| (String::from_utf8_lossy(&entry.name).to_lowercase(), entry))
        .collect();
    keyed.sort_by(|(a_folded, a), (b_folded, b)| {
        b.is_folder
            .cmp(&a.is_folder)
            .then_with(|| natural(a_folded.as_bytes(), b_folded.as_bytes()))
            .then_with(|| a.name.cmp(&b.name))
    });
    keyed.into_iter().map(|(_, entry)| entry).collect()
}

/// Compares byte by byte, but runs of digits by the value of their number.
fn natural(mut a: &[u8], mut b: &[u8]) -> Ordering {
    loop {
        match (a.first(), b.first()) {
            (Some(first), Some(second)) if first.is_ascii_digit() && second.is_ascii_digit() => {
                let (a_number, b_number) = (take_number(&mut a), take_number(&mut b));
                let order = a_number.len().cmp(&b_number.len());
                let order = order.then_with(|| a_number.cmp(b_number));
                if order.is_ne() {
                    return order;
                }
            }
            (Some(first), Some(second)) if first == second => {
                a = &a[1..];
                b = &b[1..];
            }
            (first, second) => return first.cmp(&second),
        }
    }
}

/// Takes the digits at the beginning of `text`, and returns them without leading zeros.
fn take_number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let is_no_digit = |byte: &u8| !byte.is_ascii_digit();
    let len = text.iter().position(is_no_digit).unwrap_or(text.len());
    let (digits, rest) = text.split_at(len);
    *text = rest;
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str, is_folder: bool) -> ListingEntry {
        ListingEntry {
            name: name.into(),
            is_folder,
            len: 0,
            modified: 0,
        }
    }

    fn sorted_names(entries: &[ListingEntry]) -> Vec<&str> {
        let sorted = sorted(entries).into_iter();
        sorted
            .map(|entry| std::str::from_utf8(&entry.name).unwrap())
            .collect()
    }

    #[test]
    fn names_are_in_natural_order() {
        let in_order = [
            "",
            " a",
            "0",
            "00",
            "01.txt",
            "1.txt",
            "2.txt",
            "10.txt",
            "99999999999999999999999999",
            "100000000000000000000000000",
            "A",
            "a",
            "a-b",
            "a1b2",
            "a1b10",
            "a2b1",
            "a10b1",
            "B",
            "b",
            "z",
            // Letters with marks follow the letters of ASCII, as their code points do.
            "Ä",
            "ä",
        ];
        let entries: Vec<ListingEntry> = in_order
            .iter()
            .rev()
            .map(|name| entry(name, false))
            .collect();
        assert_eq!(sorted_names(&entries), in_order);
    }

    #[test]
    fn folders_come_before_files() {
        let entries = ["b", "a", "d", "c"].map(|name| entry(name, name > "b"));
        assert_eq!(sorted_names(&entries), ["c", "d", "a", "b"]);
    }

    proptest! {
        #[test]
        fn the_order_is_total(names in prop::collection::vec("[0-2aAb]{0,5}", 3)) {
            let [a, b, c] = [0, 1, 2].map(|n: usize| names[n].as_bytes());
            prop_assert_eq!(natural(a, b), natural(b, a).reverse());
            if natural(a, b).is_le() && natural(b, c).is_le() {
                prop_assert!(natural(a, c).is_le());
            }
        }

        /// Checks that the result does not depend on the order in which entries are read.
        #[test]
        fn the_order_of_reading_does_not_matter(
            names in prop::collection::hash_set("[0-2aAbB]{0,3}", 0..20),
        ) {
            let entries: Vec<ListingEntry> = names.iter().map(|name| entry(name, false)).collect();
            let reversed: Vec<ListingEntry> = entries.iter().rev().cloned().collect();
            prop_assert_eq!(sorted(&entries), sorted(&reversed));
        }
    }
}
