//! Zone groups, for counts of replies and transfers.

use crate::counted_type;
use crate::zone_counts::QueryCounts;
use crate::zone_number::ZoneNumber;

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

/// The mnemonics of the response codes that are counted on their own, ordered by code, and the label of all
/// larger codes.
const CLASSES: [&str; 8] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "other",
];

/// Numbers of replies over one transport, by group and response code, and by query type and response code.
/// Also counts them by zone, over all transports.
#[derive(Clone, Debug)]
pub(crate) struct ReplyCounts {
    /// The counts of each group, one for each of [`CLASSES`].
    counts: [u64; MAX_GROUPS * CLASSES.len()],
    /// The counts of each query type, one for each of [`CLASSES`].
    by_type: [u64; counted_type::COUNTERS * CLASSES.len()],
    by_zone: QueryCounts,
    /// The place of the last reply's count.
    last: usize,
    /// The place of the last reply's count in `by_type`. It is outside if the reply's query has no type.
    last_of_type: usize,
    last_zone: ZoneNumber,
}

impl ReplyCounts {
    /// Starts to count.
    pub(crate) fn new() -> Self {
        Self {
            counts: [0; MAX_GROUPS * CLASSES.len()],
            by_type: [0; counted_type::COUNTERS * CLASSES.len()],
            by_zone: QueryCounts::default(),
            last: 0,
            last_of_type: usize::MAX,
            last_zone: ZoneNumber::NONE,
        }
    }

    /// Counts replies from zones in this table, too.
    pub(crate) fn set_by_zone(&mut self, counts: QueryCounts) {
        self.by_zone = counts;
    }

    /// Counts a reply without question, which has this response code.
    pub(crate) fn count_bare(&mut self, rcode: u16) {
        self.count_zone::<true>(ZoneNumber::NONE);
        self.count_group::<true>(NO_GROUP, class_of(rcode));
        self.last_of_type = usize::MAX;
    }

    /// Counts a query for this zone, if there is one, before its reply is made. Only with `KEEPS`, it can be
    /// [taken back](Self::uncount) together with its reply.
    #[inline(always)]
    pub(crate) fn count_zone<const KEEPS: bool>(&mut self, zone: ZoneNumber) {
        self.by_zone.add(zone);
        if KEEPS {
            self.last_zone = zone;
        }
    }

    /// Counts a reply with this response code to a query for this type, in the group with this number. Only
    /// with `KEEPS`, it can be [taken back](Self::uncount).
    #[inline(always)]
    pub(crate) fn count<const KEEPS: bool>(&mut self, group: u8, qtype: u16, rcode: u16) {
        let class = class_of(rcode);
        self.count_group::<KEEPS>(group, class);
        let place = counted_type::counter_of(qtype) * CLASSES.len() + class;
        // Types have no larger number.
        if let Some(count) = self.by_type.get_mut(place) {
            *count += 1;
        }
        if KEEPS {
            self.last_of_type = place;
        }
    }

    #[inline(always)]
    fn count_group<const KEEPS: bool>(&mut self, group: u8, class: usize) {
        let place = usize::from(group) * CLASSES.len() + class;
        // Groups have no larger number. This comparison is cheaper than a possible panic.
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
        }
        if KEEPS {
            self.last = place;
        }
    }

    /// Takes the last reply back.
    pub(crate) fn uncount(&mut self) {
        if let Some(count) = self.counts.get_mut(self.last) {
            *count -= 1;
        }
        if let Some(count) = self.by_type.get_mut(self.last_of_type) {
            *count -= 1;
        }
        self.by_zone.take_back(self.last_zone);
    }

    /// Returns the label of each group, and response codes with the numbers of the group's replies. Leaves
    /// out codes other than NOERROR that have not occurred.
    pub(crate) fn by_label<'a>(
        &'a self,
        labels: &'a GroupLabels,
    ) -> impl Iterator<Item = ReplyCount> + 'a {
        by_class(labels.0.iter().copied(), &self.counts)
    }

    /// Returns the mnemonic of each query type, and response codes with the numbers of the replies to such
    /// queries. Leaves out codes other than NOERROR that have not occurred.
    pub(crate) fn by_type(&self) -> impl Iterator<Item = ReplyCount> + '_ {
        by_class(counted_type::names().into_iter(), &self.by_type)
    }
}

/// A label, the mnemonic of a response code, and the number of such replies.
pub(crate) type ReplyCount = (&'static str, &'static str, u64);

/// Returns the index in [`CLASSES`] of a response code.
#[inline(always)]
fn class_of(rcode: u16) -> usize {
    usize::from(rcode).min(CLASSES.len() - 1)
}

/// Returns each label with its counts, of which there is one for each of [`CLASSES`].
fn by_class<'a>(
    labels: impl Iterator<Item = &'static str> + 'a,
    counts: &'a [u64],
) -> impl Iterator<Item = ReplyCount> + 'a {
    let all = labels.zip(counts.chunks(CLASSES.len()));
    let all = all.flat_map(|(label, counts)| {
        let classes = CLASSES.iter().zip(counts);
        classes.map(move |(class, count)| (label, *class, *count))
    });
    all.filter(|(_, class, count)| *count > 0 || *class == CLASSES[0])
}

/// Numbers of transfers by group.
#[derive(Clone, Debug)]
pub(crate) struct TransferCounts([u64; MAX_GROUPS]);

impl TransferCounts {
    /// Starts to count.
    pub(crate) fn new() -> Self {
        Self([0; MAX_GROUPS])
    }

    /// Counts a transfer of a zone in the group with this number.
    pub(crate) fn count(&mut self, group: u8) {
        if let Some(count) = self.0.get_mut(usize::from(group)) {
            *count += 1;
        }
    }

    /// Returns the number of all transfers.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the label of each group with the number of its transfers.
    pub(crate) fn by_label<'a>(
        &'a self,
        labels: &'a GroupLabels,
    ) -> impl Iterator<Item = (&'static str, u64)> + 'a {
        labels.0.iter().copied().zip(self.0.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use crate::{rcode, rtype};

    #[test]
    fn further_groups_are_counted_together_and_known_ones_keep_their_number() {
        let mut labels = GroupLabels::default();
        let numbers: Vec<_> = (0..99).map(|n| labels.number(&n.to_string())).collect();
        let expected = (2..64).chain(std::iter::repeat_n(1, 37));
        assert!(numbers.into_iter().eq(expected));
        assert_eq!((labels.number("61"), labels.number("62")), (63, 1));
    }

    #[test]
    fn replies_are_counted_by_group_and_code_and_can_be_taken_back() {
        let mut labels = GroupLabels::default();
        let (a, b) = (labels.number("a."), labels.number("b."));
        let mut counts = ReplyCounts::new();
        for (group, qtype, rcode) in [
            (a, rtype::A, rcode::NOERROR),
            (a, rtype::CAA, rcode::NXDOMAIN),
            (b, rtype::A, rcode::YXDOMAIN),
            (NO_GROUP, rtype::A, rcode::BADVERS),
            (NO_GROUP, rtype::AXFR, rcode::BADCOOKIE),
            (a, rtype::CAA, rcode::NXDOMAIN),
            (b, rtype::A, rcode::NOERROR),
            (b, rtype::MX, rcode::SERVFAIL),
        ] {
            counts.count::<true>(group, qtype, rcode);
        }
        counts.uncount();
        counts.count_bare(rcode::FORMERR);
        counts.uncount();
        let by_label: Vec<_> = counts.by_label(&labels).collect();
        let expected = [
            ("none", "NOERROR", 0),
            ("none", "other", 2),
            ("other", "NOERROR", 0),
            ("a.", "NOERROR", 1),
            ("a.", "NXDOMAIN", 2),
            ("b.", "NOERROR", 1),
            ("b.", "YXDOMAIN", 1),
        ];
        assert_eq!(by_label, expected);
        let by_type = counts.by_type().filter(|(.., count)| *count > 0);
        let expected = [
            ("A", "NOERROR", 2),
            ("A", "YXDOMAIN", 1),
            ("A", "other", 1),
            ("CAA", "NXDOMAIN", 2),
            ("other", "other", 1),
        ];
        assert_eq!(by_type.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_codes_have_the_names_that_all_replies_have() {
        for (code, class) in CLASSES[..CLASSES.len() - 1].iter().enumerate() {
            let mut counters = Counters::default();
            counters.replies[code] = 1;
            assert!(counters.by_rcode().contains(&(class, 1)), "{class}");
        }
    }

    #[test]
    fn transfers_are_counted_by_group() {
        let mut labels = GroupLabels::default();
        let a = labels.number("a.");
        let mut counts = TransferCounts::new();
        counts.count(a);
        counts.count(a);
        let by_label: Vec<_> = counts.by_label(&labels).collect();
        assert_eq!(by_label, [("none", 0), ("other", 0), ("a.", 2)]);
        assert_eq!(counts.total(), 2);
    }
}
