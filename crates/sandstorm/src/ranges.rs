//! Range requests (RFC 9110, section 14): which bytes of a file a client asks for.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::list::list;

/// Maximum number of parts in a response. A client that asks for more parts gets the whole file.
pub(crate) const MAX_PARTS: usize = 32;
/// Maximum number of ranges in a request. It bounds the work for ranges that overlap.
const MAX_RANGES: usize = 4 * MAX_PARTS;

/// The bytes of a file that a response contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// All of them: the ranges are invalid, or there are too many of them.
    Whole,
    /// The file has none of the ranges.
    Nothing,
    /// One part.
    Part(Range<usize>),
    /// Several parts, which neither overlap nor touch, in the order of the request.
    Parts(Vec<Range<usize>>),
}

type Parts = ArrayVec<Range<usize>, MAX_PARTS>;

impl Selection {
    /// Evaluates the value of `Range` for a file of `len` bytes. Ranges that overlap or touch become
    /// one part.
    pub(crate) fn of(value: &[u8], len: usize) -> Self {
        let Some((unit, ranges)) = value.split_first_chunk::<6>() else {
            return Self::Whole;
        };
        // An empty file has no part, so it is sent as a whole.
        if !unit.eq_ignore_ascii_case(b"bytes=") || len == 0 {
            return Self::Whole;
        }
        // Nearly all clients ask for one range, whose text is short.
        if !ranges.contains(&b',') {
            return match parse(ranges.trim_ascii(), len) {
                None => Self::Whole,
                Some(range) if range.is_empty() => Self::Nothing,
                Some(range) => Self::Part(range),
            };
        }
        let mut parts = Parts::new();
        let mut has_any = false;
        for (number, range) in list(ranges).enumerate() {
            let Some(range) = parse(range, len).filter(|_| number < MAX_RANGES) else {
                return Self::Whole;
            };
            has_any = true;
            if !range.is_empty() && add(&mut parts, range).is_none() {
                return Self::Whole;
            }
        }
        match &parts[..] {
            [] if has_any => Self::Nothing,
            [] => Self::Whole,
            [part] => Self::Part(part.clone()),
            parts => Self::Parts(parts.to_vec()),
        }
    }
}

/// Parses one range of a file of `len` bytes. The result is empty if the file has none of its bytes.
/// Returns `None` if the range is invalid.
fn parse(range: &[u8], len: usize) -> Option<Range<usize>> {
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&range[..dash], &range[dash + 1..]);
    if first.is_empty() {
        let suffix = number(last)?.min(len);
        return Some(len - suffix..len);
    }
    let (first_digits, last_digits) = (first, last);
    let first = number(first)?;
    let last = match last {
        [] => usize::MAX,
        last => number(last)?,
    };
    if !last_digits.is_empty() && is_less(last_digits, first_digits) {
        return None;
    }
    let first = first.min(len);
    let end = last.saturating_add(1).min(len);
    Some(first..end)
}

/// Parses a number of decimal digits. A number that is too large becomes the largest one.
fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_usize, |number, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        Some(number.saturating_mul(10).saturating_add(digit as usize))
    })
}

/// Compares two numbers of decimal digits, even if they are too large for an integer.
fn is_less(one: &[u8], other: &[u8]) -> bool {
    let significant = |digits: &[u8]| digits.iter().position(|digit| *digit != b'0');
    let significant = |digits| &digits[significant(digits).unwrap_or(digits.len())..];
    let (one, other): (&[u8], &[u8]) = (significant(one), significant(other));
    (one.len(), one) < (other.len(), other)
}

/// Adds a range, and joins it with the parts that it overlaps or touches. Returns `None` if there are
/// too many parts.
fn add(parts: &mut Parts, mut range: Range<usize>) -> Option<()> {
    let touches = |part: &Range<usize>, range: &Range<usize>| {
        part.start <= range.end && range.start <= part.end
    };
    let place = parts.iter().position(|part| touches(part, &range));
    // The joined range may touch further parts.
    while let Some(at) = parts.iter().position(|part| touches(part, &range)) {
        let part = parts.remove(at);
        range = part.start.min(range.start)..part.end.max(range.end);
    }
    let place = place.unwrap_or(parts.len()).min(parts.len());
    parts.try_insert(place, range).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(value: &str, len: usize) -> Selection {
        Selection::of(value.as_bytes(), len)
    }

    fn parts(list: &[Range<usize>]) -> Selection {
        Selection::Parts(list.to_vec())
    }

    #[test]
    fn one_range_is_one_part() {
        for (value, part) in [
            ("bytes=0-0", 0..1),
            ("bytes=0-499", 0..500),
            ("bytes=500-999", 500..1000),
            ("bytes=9500-", 9_500..10_000),
            ("bytes=-500", 9_500..10_000),
            ("bytes=-20000", 0..10_000),
            ("bytes=0-99999999999999999999999", 0..10_000),
            ("BYTES= 1-2 ", 1..3),
            ("bytes=,,1-2,", 1..3),
            ("bytes=0-", 0..10_000),
        ] {
            assert_eq!(of(value, 10_000), Selection::Part(part), "{value}");
        }
    }

    #[test]
    fn invalid_ranges_are_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=x",
            "bytes=1",
            "bytes=-",
            "bytes=2-1",
            "bytes=010-9",
            "bytes=99999999999999999999999-99999999999999999999998",
            "bytes=1-2-3",
            "bytes=1-x",
            "bytes=+1-2",
            "bytes=0-1,x",
            "bytes=0-1,5-4",
            "bytes =0-1",
            "lines=0-1",
            "bytes=1 - 2",
            "bytes=0-1;2-3",
        ] {
            assert_eq!(of(value, 10), Selection::Whole, "{value}");
        }
    }

    #[test]
    fn ranges_behind_the_end_are_left_out() {
        for value in [
            "bytes=10-",
            "bytes=10-20,11-",
            "bytes=-0",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(of(value, 10), Selection::Nothing, "{value}");
        }
        assert_eq!(of("bytes=10-,2-3,-0", 10), Selection::Part(2..4));
        assert_eq!(of("bytes=0-,-5", 0), Selection::Whole);
    }

    #[test]
    fn ranges_that_overlap_or_touch_become_one_part() {
        assert_eq!(of("bytes=0-1,2-3", 10), Selection::Part(0..4));
        assert_eq!(of("bytes=0-4,3-6", 10), Selection::Part(0..7));
        assert_eq!(of("bytes=0-1,4-5,1-4", 10), Selection::Part(0..6));
        assert_eq!(of("bytes=8-,0-1,-3", 10), parts(&[7..10, 0..2]));
        assert_eq!(of("bytes=5-5,0-0,9-9", 10), parts(&[5..6, 0..1, 9..10]));
        assert_eq!(of("bytes=0-0,5-5,9-9,1-4", 10), parts(&[0..6, 9..10]));
    }

    #[test]
    fn more_than_32_parts_or_128_ranges_are_the_whole_file() {
        let ask = |count: usize, gap: usize| {
            let ranges: Vec<_> = (0..count).map(|n| format!("{0}-{0}", n * gap)).collect();
            of(&format!("bytes={}", ranges.join(",")), 10_000)
        };
        assert!(matches!(ask(32, 2), Selection::Parts(parts) if parts.len() == 32));
        assert_eq!(ask(33, 2), Selection::Whole);
        assert_eq!(ask(128, 1), Selection::Part(0..128));
        assert_eq!(ask(129, 1), Selection::Whole);
    }

    proptest! {
        /// Compares the parts with a set of the bytes that the ranges name.
        #[test]
        fn parts_contain_the_bytes_that_were_asked_for(
            ranges in prop::collection::vec((0_usize..70, 0_usize..70, any::<bool>()), 1..20),
            len in 1_usize..60,
        ) {
            let mut asked = vec![false; len];
            let mut text = Vec::new();
            for (a, b, is_suffix) in ranges {
                let (first, last) = (a.min(b), a.max(b));
                let range = if is_suffix { len.saturating_sub(a)..len } else { first..last + 1 };
                text.push(if is_suffix { format!("-{a}") } else { format!("{first}-{last}") });
                range.filter(|at| *at < len).for_each(|at| asked[at] = true);
            }
            let found = match of(&format!("bytes={}", text.join(", ")), len) {
                Selection::Whole => return Err(TestCaseError::fail("the ranges are valid")),
                Selection::Nothing => Vec::new(),
                Selection::Part(part) => vec![part],
                Selection::Parts(parts) => parts,
            };
            let mut sent = vec![false; len];
            for part in found {
                prop_assert!(!part.is_empty());
                // Between two parts lies at least one byte.
                prop_assert!(part.start == 0 || !sent[part.start - 1]);
                prop_assert!(part.end == len || !sent[part.end]);
                for at in part {
                    prop_assert!(!sent[at]);
                    sent[at] = true;
                }
            }
            prop_assert_eq!(sent, asked);
        }
    }
}
