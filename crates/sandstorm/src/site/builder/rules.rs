//! Applies the rules of a site: clean URLs, redirects, and pages for errors.

use std::collections::HashSet;

use super::errors::ErrorPages;
use super::{Builder, PAGE_SUFFIX};
use crate::finding::{Report, no_target};
use crate::reply::open_redirect;
use crate::rules::{Action, Captures, Redirect};
use crate::site::page::Page;
use crate::site::rule_index::{WITHOUT_SLASH, rule_of};
use crate::site::{PathRule, QueryRule, Site};
use crate::status::{Status, StatusCode};

/// What the paths of a rule lead to.
#[derive(Clone, Copy)]
enum Lead {
    /// All of them lead to this page.
    Page(Page),
    /// Each one leads to another page of the site.
    Each,
}

impl Builder {
    /// Lets `/page` lead to `/page.html`, if the site has clean URLs. `/page/` is redirected to `/page`.
    pub(super) fn add_clean_urls(&mut self) {
        let Site {
            pages,
            aliases,
            settings,
            ..
        } = &mut self.site;
        if !settings.clean_urls {
            return;
        }
        for (path, page) in &*pages {
            if let Some(clean) = path.strip_suffix(PAGE_SUFFIX)
                && !clean.ends_with(b"/")
                && !pages.contains_key(clean)
            {
                aliases.insert(clean.into(), *page);
            }
        }
        let replies = open_redirect(Status::MovedPermanently, &self.everywhere);
        self.site.without_slash = Some(Page::Rule {
            rule: WITHOUT_SLASH,
            first: self.add(replies),
        });
    }

    /// Applies the redirects. The first one holds that matches a path. Passes to `report` what is
    /// probably a mistake.
    pub(super) fn apply_redirects(&mut self, report: &mut Report<'_>) {
        let mut errors = ErrorPages::new();
        let mut applied = HashSet::new();
        let mut forced = Vec::new();
        for rule in std::mem::take(&mut self.redirects) {
            if rule.has_query() {
                self.add_query_rule(rule);
                continue;
            }
            let Some(lead) = self.lead_of(&rule, &mut errors, report) else {
                continue;
            };
            if let (Some(path), Lead::Page(page)) = (rule.from.exact(), lead) {
                if self.site.page_by_rules(path).is_none() {
                    self.apply_exact(path, page, rule.forced, &mut applied);
                }
                continue;
            }
            if rule.forced {
                forced.push(self.site.rules.len());
            }
            self.site.rules.push(PathRule {
                from: rule.from,
                to: rule.to,
                page: match lead {
                    Lead::Page(page) => Some(page),
                    Lead::Each => None,
                },
            });
        }
        self.force(&forced, &applied);
    }

    /// Adds a redirect that is about a query.
    fn add_query_rule(&mut self, rule: Redirect) {
        let Some(number) = rule_of(self.site.query_rules.len()) else {
            return;
        };
        let replies = open_redirect(own_status(rule.action.status()), &self.everywhere);
        let first = self.add(replies);
        self.site.query_rules.push(QueryRule {
            from: rule.from,
            query: rule.query,
            to: rule.to,
            forced: rule.forced,
            page: Page::Rule {
                rule: number,
                first,
            },
        });
    }

    /// Lets a path lead to a page, and also the path with or without its final slash.
    fn apply_exact(
        &mut self,
        path: &[u8],
        page: Page,
        is_forced: bool,
        applied: &mut HashSet<Box<[u8]>>,
    ) {
        let other = match path.strip_suffix(b"/") {
            Some(rest) => rest.to_vec(),
            None => [path, b"/"].concat(),
        };
        for path in [path, &*other].into_iter().filter(|path| !path.is_empty()) {
            let is_taken = !is_forced && self.site.page(path).is_some();
            if is_taken || !applied.insert(Box::from(path)) {
                continue;
            }
            let Site { pages, aliases, .. } = &mut self.site;
            match pages.get_mut(path) {
                Some(old) => *old = page,
                None => drop(aliases.insert(path.into(), page)),
            }
        }
    }

    /// Returns what the paths of a rule lead to, or `None` if no page has the path of its target. A rewrite
    /// into a part with a password holds without a page too. Otherwise it would tell whether there is one.
    fn lead_of(
        &mut self,
        rule: &Redirect,
        errors: &mut ErrorPages,
        report: &mut Report<'_>,
    ) -> Option<Lead> {
        let none = Captures::default();
        match rule.action {
            Action::Redirect(code) => {
                let status = own_status(code);
                let mut location = Vec::new();
                let page = if rule.to.is_fixed() {
                    rule.to.write(&none, &mut location)?;
                    self.redirect_to(status, &String::from_utf8_lossy(&location))
                } else {
                    let replies = open_redirect(status, &self.everywhere);
                    Page::Rule {
                        rule: self.site.rules.len() as u16,
                        first: self.add(replies),
                    }
                };
                return Some(Lead::Page(page));
            }
            Action::Rewrite if !rule.to.is_fixed() => return Some(Lead::Each),
            Action::Rewrite | Action::Error(_) => {}
        }
        let mut buffer = arrayvec::ArrayVec::new();
        let target = rule.to.path(&none, &mut buffer)?;
        let page = match rule.action {
            Action::Error(code) => {
                let status = own_status(code);
                let page = self.error_of(status, target, errors);
                if page.is_none() {
                    report(no_target(target, &rule.text));
                }
                self.report_open_page(target, &rule.from, &rule.text, report);
                // Without its page, the rule still keeps the file from clients.
                let page = page.unwrap_or_else(|| Site::shared(status, false));
                return Some(Lead::Page(Page::Error(page)));
            }
            _ => self.page_of_rewrite(target),
        };
        if page.is_none() {
            report(no_target(target, &rule.text));
        }
        let closed = || self.realm_of_path(target).map(|_| Lead::Each);
        page.map(Lead::Page).or_else(closed)
    }

    /// Returns the page at the target of a rewrite. A folder need not end with a slash, because the client
    /// would lose the path that it asked for if it were redirected.
    fn page_of_rewrite(&self, target: &[u8]) -> Option<Page> {
        let page = self.site.page(target).copied();
        if let Some(Page::Redirect { .. }) = page
            && let Some(folder) = self.site.page(&[target, b"/"].concat())
        {
            return Some(*folder);
        }
        page
    }

    /// Applies forced rules with patterns to all paths that lead to a page, such as clean URLs. `forced` has
    /// the index of each such rule. The paths in `applied` follow earlier rules.
    fn force(&mut self, forced: &[usize], applied: &HashSet<Box<[u8]>>) {
        if forced.is_empty() {
            return;
        }
        let Site { pages, aliases, .. } = &self.site;
        let paths: Vec<Box<[u8]>> = pages.keys().chain(aliases.keys()).cloned().collect();
        for path in paths.into_iter().filter(|path| !applied.contains(path)) {
            let mut rules = forced.iter().map(|index| &self.site.rules[*index]);
            let Some(rule) = rules.find(|rule| rule.matches(&path)) else {
                continue;
            };
            let Some(captures) = rule.from.captures(&path) else {
                continue;
            };
            let mut buffer = arrayvec::ArrayVec::new();
            let page = match rule.page {
                Some(page) => rule.to.holds(&captures, path.len()).then_some(page),
                None => rule
                    .to
                    .path(&captures, &mut buffer)
                    .and_then(|target| self.site.page(target).copied()),
            };
            let Site { pages, aliases, .. } = &mut self.site;
            let known = pages.get_mut(&path).or_else(|| aliases.get_mut(&path));
            if let (Some(page), Some(known)) = (page, known) {
                *known = page;
            }
        }
    }
}

/// Returns the status of a rule, which is always one that the server has.
fn own_status(code: StatusCode) -> Status {
    Status::of_code(code).unwrap_or(Status::NotFound)
}
