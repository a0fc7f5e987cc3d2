//! Sites for different hosts at one address.

use std::sync::Arc;

use super::page::ReplyId;
use super::{ByHost, NEW, NextSite, SHARED, Site};
use crate::hosts::{HostName, Hosts};
use crate::site::Builder;

/// The number of a site among those for different hosts, from 1. 0 stands for none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostedId(pub(crate) u16);

/// A site and the hosts that it is served for.
#[derive(Clone, Debug)]
pub struct HostedSite {
    /// The hosts. Without any, the site is served for all hosts that no other site has.
    pub hosts: Vec<HostName>,
    /// The site.
    pub site: Arc<Site>,
}

impl ByHost {
    /// Finds the site for the host of a request, and the number of replies before its own.
    pub(crate) fn find(&self, host: &[u8]) -> Option<(&Site, u32)> {
        let (site, first) = &self.sites[self.hosts.find(host)?];
        Some((site, *first))
    }

    /// Returns the number of the site that has a reply.
    fn hosted(&self, reply: ReplyId) -> HostedId {
        let number = self.sites.partition_point(|(_, first)| *first <= reply.0);
        // Counts and logs of further sites would be those of no site.
        HostedId(u16::try_from(number).unwrap_or_default())
    }

    /// Returns the site that has a reply, unless it is the reply of no host.
    pub(super) fn owner(&self, reply: ReplyId) -> Option<&Site> {
        self.with_first(reply).map(|(site, _)| site)
    }

    /// Same as [`owner`](Self::owner), with the number of replies before those of the site.
    pub(super) fn with_first(&self, reply: ReplyId) -> Option<(&Site, u32)> {
        let after = self.sites.partition_point(|(_, first)| *first <= reply.0);
        let (site, first) = &self.sites[after.checked_sub(1)?];
        Some((site, *first))
    }

    pub(crate) fn sites(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().map(|(site, _)| &**site)
    }
}

impl Site {
    /// Returns the number of the hosted site that has a reply.
    pub(crate) fn hosted(&self, reply: ReplyId) -> HostedId {
        let by_host = self.by_host();
        by_host.map_or_else(HostedId::default, |sites| sites.hosted(reply))
    }

    /// Number of sites for different hosts.
    pub(crate) fn hosted_count(&self) -> usize {
        self.by_host().map_or(0, |sites| sites.sites.len())
    }

    /// Makes a site that leads each request to the site for its host. A request for another host gets
    /// status 421 (RFC 9110, section 15.5.20). The fields of all responses are those of the first site.
    ///
    /// # Panics
    /// Panics if there is no site.
    pub fn by_hosts(members: &[HostedSite]) -> Self {
        let mut site =
            Builder::with_settings(std::time::UNIX_EPOCH, &members[0].site.settings).build();
        let mut by_host = ByHost {
            hosts: Hosts::default(),
            sites: Vec::new(),
        };
        for (index, member) in members.iter().enumerate() {
            for host in &member.hosts {
                by_host.hosts.add(host, index);
            }
            if member.hosts.is_empty() {
                by_host.hosts.set_default(index);
            }
            let first = site.replies.len() as u32;
            site.replies.extend_from_slice(&member.site.replies);
            site.totals.add(&member.site.totals);
            by_host.sites.push((Arc::clone(&member.site), first));
        }
        site.by_host = Some(Box::new(by_host));
        site
    }

    /// Makes a site that takes over from this one, after one of its sites has changed. `members` are
    /// the sites from now on. `next` takes over from the site with the number `changed`.
    pub(crate) fn next_by_hosts(
        &self,
        members: &[HostedSite],
        changed: usize,
        next: &NextSite,
    ) -> NextSite {
        let site = Self::by_hosts(members);
        let firsts = |site: &Self| -> Vec<u32> {
            let sites = site.by_host.iter().flat_map(|one| &one.sites);
            sites.map(|(_, first)| *first).collect()
        };
        let old_firsts = firsts(self);
        // The replies for no host are the same.
        let mut origins: Vec<u32> = (0..2 * SHARED.len() as u32).collect();
        for (index, member) in members.iter().enumerate() {
            let old_first = old_firsts[index];
            let moved = |origin: u32| {
                if origin == NEW {
                    NEW
                } else {
                    old_first + origin
                }
            };
            if index == changed {
                origins.extend(next.origins.iter().map(|origin| moved(*origin)));
            } else {
                origins.extend((0..member.site.replies.len() as u32).map(moved));
            }
        }
        let old_first = old_firsts[changed];
        NextSite {
            leaving: next.leaving.iter().map(|index| old_first + index).collect(),
            origins: origins.into(),
            site: Arc::new(site),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn when_a_site_changes_the_replies_of_the_others_stay() {
        let site = |texts: &[&str]| {
            let file = |builder: Builder, text: &&str| {
                builder.file(format!("/{text}").as_bytes(), UNIX_EPOCH, text.as_bytes())
            };
            texts.iter().fold(Builder::new(UNIX_EPOCH), file)
        };
        let member = |name: &str, site: &Arc<Site>| HostedSite {
            hosts: vec![name.parse().unwrap()],
            site: Arc::clone(site),
        };
        let [a, b, c] =
            [&["a"][..], &["b", "gone"], &["c"]].map(|texts| Arc::new(site(texts).build()));
        let old = Site::by_hosts(&[member("a", &a), member("b", &b), member("c", &c)]);
        let next = site(&["new", "b", "more"]).build_next(&b);
        let members = [member("a", &a), member("b", &next.site), member("c", &c)];
        let all = old.next_by_hosts(&members, 1, &next);
        assert_eq!(all.origins.len(), all.site.replies().len());
        for (reply, origin) in all.site.replies().iter().zip(&all.origins) {
            if *origin != NEW {
                assert_eq!(reply.bytes(), old.replies()[*origin as usize].bytes());
            }
        }
        assert_eq!(
            all.origins.iter().filter(|origin| **origin == NEW).count(),
            4
        );
        let gone: Vec<_> = all
            .leaving
            .iter()
            .map(|index| &old.replies()[*index as usize])
            .collect();
        assert_eq!(gone.len(), 2);
        assert!(gone[0].bytes().ends_with(b"gone"));
        assert_eq!(all.site.totals().files, 5);
        assert_eq!(all.site.file_paths().count(), 5);
    }
}
