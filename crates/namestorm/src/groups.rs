//! Zone groups: which of them an answer belongs to, for counts of replies.
//!
//! The answers of a zone lie together in the arena, and the zones of a group follow each other. So
//! the position of an answer tells its group, and answers need no field for it.

use crate::index::At;

/// Maximum number of groups, [`NONE`] and [`OTHER`] included.
pub(crate) const MAX_GROUPS: usize = 64;
/// The number of replies without data of a zone, such as those with REFUSED.
pub(crate) const NO_GROUP: u8 = 0;
/// The number and the label of these replies.
const NONE: (u8, &str) = (NO_GROUP, "none");
/// The number and the label of the zones beyond the maximum number of groups.
const OTHER: (u8, &str) = (1, "other");

/// The labels of groups. A group keeps its number when zones are loaded again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupLabels(Vec<&'static str>);

impl Default for GroupLabels {
    fn default() -> Self {
        Self(vec![NONE.1, OTHER.1])
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
        self.push(at, NONE.0);
    }

    fn push(&mut self, at: At, number: u8) {
        if self.starts.last().is_none_or(|(_, last)| *last != number) {
            self.starts.push((at, number));
        }
    }

    /// Returns the number of the group of the answer at this position.
    #[inline(always)]
    pub(crate) fn of(&self, at: Option<At>) -> u8 {
        let Some(at) = at else {
            return NONE.0;
        };
        let begun = self.starts.partition_point(|(start, _)| *start <= at);
        let last = self.starts.get(begun.wrapping_sub(1));
        last.map_or(NONE.0, |(_, number)| *number)
    }

    /// Returns the labels by number.
    pub(crate) fn labels(&self) -> &GroupLabels {
        &self.labels
    }
}

/// Numbers of replies by group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupCounts {
    counts: [u64; MAX_GROUPS],
    /// The group of the last reply.
    last: u8,
}

impl Default for GroupCounts {
    fn default() -> Self {
        Self {
            counts: [0; MAX_GROUPS],
            last: NONE.0,
        }
    }
}

impl GroupCounts {
    /// Counts a reply of the group with this number.
    #[inline(always)]
    pub(crate) fn count(&mut self, number: u8) {
        self.last = number;
        // Groups have no larger number. This comparison is cheaper than a possible panic.
        if let Some(count) = self.counts.get_mut(usize::from(number)) {
            *count += 1;
        }
    }

    /// Takes the last reply back.
    pub(crate) fn uncount(&mut self) {
        if let Some(count) = self.counts.get_mut(usize::from(self.last)) {
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
        let of = |at| groups.labels().0[usize::from(groups.of(at))];
        let labels = [0, 4, 5, 8, 9, 11, 12, 99].map(|at| of(Some(at)));
        assert_eq!(labels, ["a.", "a.", "b.", "b.", "a.", "c.", "none", "none"]);
        assert_eq!(of(None), "none");
        assert_eq!(Groups::default().of(Some(0)), 0);
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
        assert_eq!((groups.of(Some(0)), groups.of(Some(1))), (63, 1));
    }

    #[test]
    fn a_reply_can_be_taken_back() {
        let labels = GroupLabels::default();
        let mut counts = GroupCounts::default();
        for number in [1, 0, 1] {
            counts.count(number);
        }
        counts.uncount();
        let by_label: Vec<_> = counts.by_label(&labels).collect();
        assert_eq!(by_label, [("none", 1), ("other", 1)]);
    }
}
