//! Applies the rules of a site: clean URLs, redirects, and pages for errors.

use std::collections::HashSet;

use super::errors::ErrorPages;
use super::{Builder, PAGE_SUFFIX};
use crate::finding::{Finding, Report, Warning, no_target};
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

/// The rules so far.
#[derive(Default)]
struct Applied {
    /// The paths that follow rules about a single path.
    paths: HashSet<Box<[u8]>>,
    /// The indices of the forced rules with patterns.
    forced: Vec<usize>,
}

impl Builder {
    /// Lets `/page` lead to `/page.html`, if the site has clean URLs. `/page/` is redirected to `/page`.
    pub(super) fn add_clean_urls(&mut self) {
        if !self.site.settings.clean_urls {
            return;
        }
        let pages = self.site.pages.iter();
        let clean = pages.filter_map(|(path, page)| {
            let clean = path.strip_suffix(PAGE_SUFFIX)?;
            let is_free =
                !self.site.pages.contains_key(clean) || self.is_beside_closed_index(path, clean);
            (is_free && !clean.ends_with(b"/")).then(|| (Box::from(clean), *page))
        });
        for (clean, page) in clean.collect::<Vec<(Box<[u8]>, _)>>() {
            self.site.pages.remove(&clean);
            self.site.aliases.insert(clean, page);
        }
        let replies = open_redirect(Status::MovedPermanently, &self.everywhere);
        self.site.without_slash = Some(Page::Rule {
            rule: WITHOUT_SLASH,
            first: self.add(replies),
        });
    }

    /// Applies the redirects. The first one holds that matches a path, and leads to a page. Passes to
    /// `report` what is probably a mistake.
    pub(super) fn apply_redirects(&mut self, report: &mut Report<'_>) {
        let mut errors = ErrorPages::new();
        let mut applied = Applied::default();
        for rule in std::mem::take(&mut self.redirects) {
            if rule.has_query() {
                self.add_query_rule(rule);
                continue;
            }
            // An earlier rule with a pattern may end a series of longer and longer paths.
            if self.site.rules.is_empty() && rule.grows() {
                let rule = rule.text.into_string();
                report(Finding::Warning(Warning::Endless { rule }));
                continue;
            }
            let Some(lead) = self.lead_of(&rule, &mut errors, report) else {
                continue;
            };
            let (is_forced, text) = (rule.forced, rule.text.into_string());
            let rule = PathRule {
                from: rule.from,
                to: rule.to,
                page: match lead {
                    Lead::Page(page) => Some(page),
                    Lead::Each => None,
                },
            };
            if let (Some(path), Some(page)) = (rule.from.exact(), rule.page) {
                if !self.apply_exact(path, page, &rule, is_forced, &mut applied) {
                    report(Finding::Warning(Warning::Endless { rule: text }));
                }
                continue;
            }
            if is_forced {
                applied.forced.push(self.site.rules.len());
            }
            self.site.rules.push(rule);
        }
        self.force(&applied);
    }

    /// Returns true if a rule redirects a path to its other spelling, with or without the final slash,
    /// from where the server itself redirects back.
    fn comes_back(&self, rule: &PathRule, path: &[u8]) -> bool {
        let is_redirect = matches!(rule.page, Some(Page::Redirect { .. } | Page::Rule { .. }));
        let Some(captures) = rule.from.captures(path).filter(|_| is_redirect) else {
            return false;
        };
        let mut buffer = arrayvec::ArrayVec::new();
        let target = rule.to.path(&captures, &mut buffer);
        target.is_some_and(|target| self.site.has_own_redirect(target))
            && rule.to.leads_to(&captures, path, true)
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

    /// Lets the path of a rule lead to its page, and also the path with or without its final slash. Returns
    /// false if the rule is a redirect to both of them.
    fn apply_exact(
        &mut self,
        path: &[u8],
        page: Page,
        rule: &PathRule,
        is_forced: bool,
        applied: &mut Applied,
    ) -> bool {
        let mut is_endless = true;
        let other = match path.strip_suffix(b"/") {
            Some(rest) => rest.to_vec(),
            None => [path, b"/"].concat(),
        };
        for path in [path, &*other].into_iter().filter(|path| !path.is_empty()) {
            let is_taken = if is_forced {
                self.earlier_page(path, &applied.forced).is_some()
            } else {
                self.site.page(path).is_some()
            };
            let holds = rule.holds(&page, &Captures::default(), path);
            let is_own = !holds || self.comes_back(rule, path);
            is_endless &= is_own;
            if !is_own && !is_taken && applied.paths.insert(Box::from(path)) {
                self.note_led(path, &applied.forced);
                self.set_page(path, page);
            }
        }
        !is_endless
    }

    /// Returns the page to which an earlier rule with a pattern leads. If the path has a page without
    /// rules, only those count that are `forced`, by their indices.
    fn earlier_page(&self, path: &[u8], forced: &[usize]) -> Option<Page> {
        if self.site.is_known(path) {
            let (_, page) = self.forced_page(path, forced)?;
            return Some(page);
        }
        self.site.page_by_rules(path).copied()
    }

    /// Notes the part with a password into which an earlier rule leads from a path, although its target has no
    /// page. Otherwise the page of this path would tell so. If the path has a page without rules, only those
    /// count that are `forced`, by their indices.
    fn note_led(&mut self, path: &[u8], forced: &[usize]) {
        if self.users.is_empty() {
            return;
        }
        let (site, is_known) = (&self.site, self.site.is_known(path));
        let forced = forced.iter().map(|index| &site.rules[*index]);
        let forced = forced.filter(|rule| is_known && !self.comes_back(rule, path));
        let all = site.rules.iter().filter(|_| !is_known);
        let own = |path: &[u8]| self.realm_of_name(path);
        if let Some(index) = site.realm_behind(forced.chain(all), path, &own) {
            self.site.led.insert(path.into(), index);
        }
    }

    /// Returns the first of the `forced` rules that holds for a path with a page, and the page to which it
    /// leads.
    fn forced_page(&self, path: &[u8], forced: &[usize]) -> Option<(&PathRule, Page)> {
        let rules = forced.iter().map(|index| &self.site.rules[*index]);
        let mut rules = rules.filter(|rule| !self.comes_back(rule, path));
        rules.find_map(|rule| Some((rule, *self.site.page_by_rule(rule, path)?)))
    }

    /// Lets a path lead to a page. Keeps the page that it replaces, because rewrites may lead there.
    fn set_page(&mut self, path: &[u8], page: Page) {
        let Site {
            pages,
            aliases,
            exact,
            replaced,
            ..
        } = &mut self.site;
        match pages.get_mut(path).or_else(|| aliases.get_mut(path)) {
            Some(old) => {
                replaced.insert(path.into(), std::mem::replace(old, page));
            }
            None => {
                exact.insert(path.into(), page);
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
                    self.report_no_error_page(target, &rule.text, false, report);
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
        let closed = || self.realm_of_name(target).map(|_| Lead::Each);
        page.map(Lead::Page).or_else(closed)
    }

    /// Returns the page at the target of a rewrite. A folder need not end with a slash, because the client
    /// would lose the path that it asked for if it were redirected.
    fn page_of_rewrite(&self, target: &[u8]) -> Option<Page> {
        let page = self.site.rewritten(target).copied();
        if let Some(Page::Redirect { .. }) = page
            && let Some(folder) = self.site.rewritten(&[target, b"/"].concat())
        {
            return Some(*folder);
        }
        page
    }

    /// Applies forced rules with patterns to all paths that lead to a page, such as clean URLs.
    fn force(&mut self, applied: &Applied) {
        if applied.forced.is_empty() {
            return;
        }
        let paths = self.site.known_paths().map(|(path, _)| path.clone());
        let paths: Vec<_> = paths.filter(|path| !applied.paths.contains(path)).collect();
        let mut pages = Vec::new();
        for path in paths {
            self.note_led(&path, &applied.forced);
            match self.forced_page(&path, &applied.forced) {
                // Rewrites depend on which files errors keep from clients.
                Some((rule, page @ Page::Error(_))) if rule.page.is_some() => {
                    self.set_page(&path, page);
                }
                Some(_) => pages.push(path),
                None => {}
            }
        }
        let page_of = |path: Box<[u8]>| Some((self.forced_page(&path, &applied.forced)?.1, path));
        let pages: Vec<_> = pages.into_iter().filter_map(page_of).collect();
        for (page, path) in pages {
            self.set_page(&path, page);
        }
    }
}

/// Returns the status of a rule, which is always one that the server has.
fn own_status(code: StatusCode) -> Status {
    Status::of_code(code).unwrap_or(Status::NotFound)
}
