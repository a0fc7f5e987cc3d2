//! Zone groups, for counts of replies.

/// Maximum number of groups, [`NO_GROUP`] and [`OTHER`] included.
pub(crate) const MAX_GROUPS: usize = 64;
/// The number of replies without data of a zone, such as those with REFUSED.
pub(crate) const NO_GROUP: u8 = 0;
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
    pub(crate) fn number(&mut self, label: &str) -> u8 {
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

/// Numbers of replies by group.
#[derive(Clone, Debug)]
pub(crate) struct GroupCounts {
    counts: [u64; MAX_GROUPS],
    /// The group of the last reply.
    last: u8,
}

impl GroupCounts {
    /// Starts to count.
    pub(crate) fn new() -> Self {
        Self {
            counts: [0; MAX_GROUPS],
            last: NO_GROUP,
        }
    }

    /// Counts a reply in the group with this number.
    #[inline(always)]
    pub(crate) fn count(&mut self, group: u8) {
        self.last = group;
        // Groups have no larger number. This comparison is cheaper than a possible panic.
        if let Some(count) = self.counts.get_mut(usize::from(group)) {
            *count += 1;
        }
    }

    /// Takes the last reply back.
    pub(crate) fn uncount(&mut self) {
        if let Some(count) = self.counts.get_mut(usize::from(self.last)) {
            *count -= 1;
        }
    }

    /// Returns the number of all replies.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum()
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
    fn further_groups_are_counted_together_and_known_ones_keep_their_number() {
        let mut labels = GroupLabels::default();
        let numbers: Vec<_> = (0..99).map(|n| labels.number(&n.to_string())).collect();
        let expected = (2..64).chain(std::iter::repeat_n(1, 37));
        assert!(numbers.into_iter().eq(expected));
        assert_eq!((labels.number("61"), labels.number("62")), (63, 1));
    }

    #[test]
    fn replies_are_counted_and_can_be_taken_back() {
        let mut labels = GroupLabels::default();
        let (a, b) = (labels.number("a."), labels.number("b."));
        let mut counts = GroupCounts::new();
        for group in [a, a, b, NO_GROUP, NO_GROUP, a, b] {
            counts.count(group);
        }
        counts.uncount();
        let by_label: Vec<_> = counts.by_label(&labels).collect();
        assert_eq!(by_label, [("none", 2), ("other", 0), ("a.", 3), ("b.", 1)]);
    }
}
