//! Redirects that are about the query of a request.

use super::page::Page;
use super::{QueryRule, Site, decoded};
use crate::rules::{Captures, Query};

impl QueryRule {
    /// Returns true if the location for a request has this query, so that it may lead to itself.
    #[cold]
    fn has_query(&self, captures: &Captures<'_>, query: &[u8]) -> bool {
        let mut location = Vec::new();
        let is_written = self.to.write(captures, &mut location).is_some();
        let end = memchr::memchr(b'#', &location).unwrap_or(location.len());
        let at = memchr::memchr(b'?', &location[..end]);
        is_written && at.is_some_and(|at| &location[at + 1..end] == query)
    }
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
        let decoded_query = Query::decode(query);
        let rule = self.query_rules.iter().find(|rule| {
            let captures = || {
                let of_path = rule.from.captures(&path)?;
                rule.query.captures(&decoded_query, of_path)
            };
            let holds = |captures| {
                let mut buffer = arrayvec::ArrayVec::new();
                let target = rule.to.path(&captures, &mut buffer);
                let or_other = target.is_some_and(|target| self.has_own_redirect(target));
                rule.to.holds(&captures, len)
                    && !(rule.to.leads_to(&captures, &path, or_other)
                        && rule.has_query(&captures, query))
            };
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
