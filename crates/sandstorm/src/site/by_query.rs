//! Redirects that are about the query of a request.

use super::{Page, Site, WITHOUT_SLASH, decoded};
use crate::rules::{MAX_PATTERN_RULES, Pattern, Query, QueryPattern, Template};

/// The index of the first of these redirects among all rules.
const FIRST: u16 = WITHOUT_SLASH / 2;
const _: () = assert!(MAX_PATTERN_RULES < FIRST as usize);

/// A redirect for the paths that match a pattern, if their query does too.
#[derive(Clone, Debug)]
pub(super) struct QueryRule {
    pub(super) from: Pattern,
    pub(super) query: QueryPattern,
    pub(super) to: Template,
    /// Whether it also holds for paths that have a file.
    pub(super) forced: bool,
    pub(super) page: Page,
}

/// Returns the index among all rules of the redirect with this index. Returns `None` if there are too
/// many.
pub(super) fn rule_of(index: usize) -> Option<u16> {
    let rule = u16::try_from(index).ok()?.checked_add(FIRST)?;
    (rule < WITHOUT_SLASH).then_some(rule)
}

/// Returns the index of a redirect by its index among all rules.
pub(super) fn query_rule_index(rule: u16) -> Option<usize> {
    let is_one = (FIRST..WITHOUT_SLASH).contains(&rule);
    is_one.then(|| usize::from(rule - FIRST))
}

impl Site {
    /// Finds the redirect for the path and the query of a request target.
    #[inline(always)]
    pub(crate) fn by_query(&self, path: &[u8], query: Option<&str>) -> Option<&Page> {
        if self.query_rules.is_empty() {
            return None;
        }
        self.find_by_query(path, query?.as_bytes())
    }

    #[cold]
    fn find_by_query(&self, path: &[u8], query: &[u8]) -> Option<&Page> {
        let path = decoded(path).ok()?;
        let has_file = self.pages.contains_key(&*path);
        let len = path.len() + query.len();
        let query = Query::decode(query);
        let rule = self.query_rules.iter().find(|rule| {
            let captures = || rule.query.captures(&query, rule.from.captures(&path)?);
            let holds = |captures| rule.to.holds(&captures, len);
            (rule.forced || !has_file) && captures().is_some_and(holds)
        });
        rule.map(|rule| &rule.page)
    }

    /// Appends the location to which a redirect leads. It has matched this path and query before.
    pub(super) fn write_location_by_query(
        &self,
        index: usize,
        path: &[u8],
        query: &[u8],
        out: &mut Vec<u8>,
    ) {
        let query = Query::decode(query);
        if let Some(rule) = self.query_rules.get(index)
            && let Ok(path) = decoded(path)
            && let Some(captures) = rule.from.captures(&path)
            && let Some(captures) = rule.query.captures(&query, captures)
        {
            // Cannot fail: the location has room.
            let _ = rule.to.write(&captures, out);
        }
    }
}
