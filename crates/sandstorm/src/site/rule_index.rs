//! The index among all rules by which a page names its rule.

use crate::rules::MAX_PATTERN_RULES;

/// Stands in the place of a rule's index for the redirect to a path without its final slash.
pub(super) const WITHOUT_SLASH: u16 = u16::MAX;
const _: () = assert!(MAX_PATTERN_RULES < WITHOUT_SLASH as usize);

/// The index of the first redirect that is about a query.
const FIRST: u16 = WITHOUT_SLASH / 2;
const _: () = assert!(MAX_PATTERN_RULES < FIRST as usize);

/// Returns the index among all rules of the redirect that has this index among those about a query.
/// Returns `None` if there are too many.
pub(super) fn rule_of(index: usize) -> Option<u16> {
    let rule = u16::try_from(index).ok()?.checked_add(FIRST)?;
    (rule < WITHOUT_SLASH).then_some(rule)
}

/// Returns the index among the redirects about a query, by the index among all rules. Returns `None` if
/// the rule is no such redirect.
pub(super) fn query_rule_index(rule: u16) -> Option<usize> {
    let is_one = (FIRST..WITHOUT_SLASH).contains(&rule);
    is_one.then(|| usize::from(rule - FIRST))
}
