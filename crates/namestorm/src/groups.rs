//! Zone groups: which of them an answer belongs to, for counts of replies.
//!
//! The answers of a zone lie together in the arena, and the zones of a group follow each other. So
//! the position of an answer tells its group, and answers need no field for it.

use crate::index::At;

/// Maximum number of groups, [`NO_GROUP`] and [`OTHER`] included.
pub(crate) const MAX_GROUPS: usize = 64;
/// The number of replies without data of a zone, such as those with REFUSED.
const NO_GROUP: u8 = 0;
/// The label of these replies.
const NONE: &str = "none";
/// The number and the label of the zones beyond the maximum number of groups.
const OTHER: (u8, &str) = (1, "other");

/// The labels of groups. A group keeps its number when zones are loaded again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupLabels(Vec<&'static str>);

impl Default for GroupLabels {
    fn default() -> Self {
        Self(vec![NONE, OTHER.1])
    }
}

impl GroupLabels {
    /// Returns the number of the group with this label. The labels of a process are never freed,
    /// because metrics show them until its end.
    fn number(&mut self, label: &str) -> u8 {
        if let Some(known) = self.0.iter().position(|one| *one == label) {
            return known as u8;
        }
        if self.0.len() == MAX_GROUPS {
            return OTHER.0;
        }
        self.0.push(label.to_owned().leak());
        (self.0.len() - 1) as u8
    }
}

/// The groups of the answers in an arena.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    labels: GroupLabels,
    /// Where the answers of a group begin, and its number, in ascending order.
    starts: Vec<(At, u8)>,
}

impl Groups {
    /// Starts with these labels, and without answers.
    pub(crate) fn new(labels: GroupLabels) -> Self {
        Self {
            labels,
            starts: Vec::new(),
        }
    }

    /// Notes that the answers from `at` on belong to the group with this label.
    pub(crate) fn begin(&mut self, at: At, label: &str) {
        let number = self.labels.number(label);
        self.push(at, number);
    }

    /// Notes that the answers from `at` on belong to no group.
    pub(crate) fn end(&mut self, at: At) {
        self.push(at, NO_GROUP);
    }

    fn push(&mut self, at: At, number: u8) {
        if self.starts.last().is_none_or(|(_, last)| *last != number) {
            self.starts.push((at, number));
        }
    }

    /// Returns the range of positions around `at` whose answers belong to one group.
    fn range_of(&self, at: At) -> Range {
        let begun = self.starts.partition_point(|(start, _)| *start <= at);
        let last = self.starts.get(begun.wrapping_sub(1));
        let (first, number) = last.copied().unwrap_or((0, NO_GROUP));
        let next = self.starts.get(begun).map(|(start, _)| *start);
        Range {
            first,
            last_offset: next.map_or(At::MAX, |next| next - 1) - first,
            number,
        }
    }

    /// Returns the labels by number.
    pub(crate) fn labels(&self) -> &GroupLabels {
        &self.labels
    }
}

/// A range of positions whose answers belong to one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: At,
    /// Offset of the last position from the first.
    last_offset: At,
    /// The number of the group.
    number: u8,
}

/// Numbers of replies by group.
#[derive(Clone, Debug)]
pub(crate) struct GroupCounts {
    counts: [u64; MAX_GROUPS],
    /// The range of the last reply. The next reply is often in it too, and then needs no search.
    last: Range,
}

impl GroupCounts {
    /// Starts to count replies from the answers with these groups.
    pub(crate) fn new(groups: &Groups) -> Self {
        Self {
            counts: [0; MAX_GROUPS],
            last: groups.range_of(0),
        }
    }

    /// Goes on with replies from other answers.
    pub(crate) fn set_groups(&mut self, groups: &Groups) {
        self.last = groups.range_of(0);
    }

    /// Counts a reply with the answer at this position, which is [`NONE`](crate::answers::NONE) if
    /// there is no answer.
    #[inline(always)]
    pub(crate) fn count(&mut self, groups: &Groups, at: At) {
        if at.wrapping_sub(self.last.first) > self.last.last_offset {
            self.search(groups, at);
        }
        // Groups have no larger number. This comparison is cheaper than a possible panic.
        if let Some(count) = self.counts.get_mut(usize::from(self.last.number)) {
            *count += 1;
        }
    }

    #[inline(never)]
    fn search(&mut self, groups: &Groups, at: At) {
        self.last = groups.range_of(at);
    }

    /// Takes the last reply back.
    pub(crate) fn uncount(&mut self) {
        if let Some(count) = self.counts.get_mut(usize::from(self.last.number)) {
            *count -= 1;
        }
    }

    /// Returns the label of each group with the number of its replies.
    pub(crate) fn by_label<'a>(
        &'a self,
        labels: &'a GroupLabels,
    ) -> impl Iterator<Item = (&'static str, u64)> + 'a {
        labels.0.iter().copied().zip(self.counts.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_tell_the_group() {
        let mut groups = Groups::default();
        for (at, label) in [(0, "a."), (5, "b."), (7, "b."), (9, "a."), (10, "c.")] {
            groups.begin(at, label);
        }
        groups.end(12);
        let of = |at| groups.labels().0[usize::from(groups.range_of(at).number)];
        let labels = [0, 4, 5, 8, 9, 11, 12, At::MAX].map(of);
        assert_eq!(labels, ["a.", "a.", "b.", "b.", "a.", "c.", "none", "none"]);
        let range = |first, last_offset, number| Range {
            first,
            last_offset,
            number,
        };
        assert_eq!(groups.range_of(8), range(5, 3, 3));
        assert_eq!(groups.range_of(12), range(12, At::MAX - 12, NO_GROUP));
        assert_eq!(Groups::default().range_of(7), range(0, At::MAX, NO_GROUP));
    }

    #[test]
    fn further_groups_are_counted_together_and_known_ones_keep_their_number() {
        let mut labels = GroupLabels::default();
        let numbers: Vec<_> = (0..99).map(|n| labels.number(&n.to_string())).collect();
        let expected = (2..64).chain(std::iter::repeat_n(1, 37));
        assert!(numbers.into_iter().eq(expected));
        let mut groups = Groups::new(labels);
        groups.begin(0, "61");
        groups.begin(1, "62");
        let number = |at| groups.range_of(at).number;
        assert_eq!((number(0), number(1)), (63, 1));
    }

    #[test]
    fn replies_are_counted_and_can_be_taken_back() {
        let mut groups = Groups::default();
        groups.begin(0, "a.");
        groups.begin(8, "b.");
        groups.end(9);
        let mut counts = GroupCounts::new(&groups);
        for at in [0, 7, 8, At::MAX, 9, 3, 8] {
            counts.count(&groups, at);
        }
        counts.uncount();
        let by_label: Vec<_> = counts.by_label(groups.labels()).collect();
        assert_eq!(by_label, [("none", 2), ("other", 0), ("a.", 3), ("b.", 1)]);
        let mut other = Groups::new(groups.labels().clone());
        other.begin(0, "b.");
        counts.set_groups(&other);
        counts.count(&other, 0);
        assert_eq!(counts.by_label(other.labels()).last(), Some(("b.", 2)));
    }
}
