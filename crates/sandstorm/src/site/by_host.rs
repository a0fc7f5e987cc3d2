//! Sites for different hosts at one address.

use std::collections::HashMap;
use std::sync::Arc;

use super::page::ReplyId;
use super::{ByHost, Hosted, NEW, NextSite, SHARED, Site};
use crate::hosts::{HostName, Hosts};
use crate::known_sites::{HostedId, KnownSites};
use crate::login::{Realm, Users};
use crate::site::Builder;

/// Number of replies that each site has at first, because all requests may need them.
const SHARED_REPLIES: usize = 2 * SHARED.len();

/// A site and the hosts that it is served for.
#[derive(Clone, Debug)]
pub struct HostedSite {
    /// The hosts. Without any, the site is served for all hosts that no other site has.
    pub hosts: Vec<HostName>,
    /// The site.
    pub site: Arc<Site>,
}

/// A site for certain hosts, as a program serves it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) hosts: Vec<HostName>,
    pub(crate) site: Arc<Site>,
    /// The number in counts and logs. Hosts that are only redirected to a site have its number.
    pub(crate) id: HostedId,
    /// Whether the site has a folder.
    pub(crate) has_folder: bool,
}

impl Member {
    /// Returns sites that are numbered by their places.
    fn all(sites: &[HostedSite]) -> Vec<Self> {
        let one = |(index, site): (usize, &HostedSite)| Self {
            hosts: site.hosts.clone(),
            site: Arc::clone(&site.site),
            id: HostedId(u16::try_from(index + 1).unwrap_or_default()),
            has_folder: true,
        };
        sites.iter().enumerate().map(one).collect()
    }
}

impl ByHost {
    /// Finds the site for the host of a request, and the number of replies before its own.
    pub(crate) fn find(&self, host: &[u8]) -> Option<(&Site, u32)> {
        let hosted = &self.sites[self.hosts.find(host)?];
        Some((&hosted.site, hosted.first))
    }

    /// Returns the hosted site that has a reply, unless it is the reply of no host.
    fn hosted(&self, reply: ReplyId) -> Option<&Hosted> {
        let after = self.sites.partition_point(|one| one.first <= reply.0);
        self.sites.get(after.checked_sub(1)?)
    }

    /// All sites that the program serves, or has served since its start.
    pub(crate) fn known(&self) -> &KnownSites {
        &self.known
    }

    /// Returns the site that has a reply, unless it is the reply of no host.
    pub(super) fn owner(&self, reply: ReplyId) -> Option<&Site> {
        self.with_first(reply).map(|(site, _)| site)
    }

    /// Same as [`owner`](Self::owner), with the number of replies before those of the site.
    pub(super) fn with_first(&self, reply: ReplyId) -> Option<(&Site, u32)> {
        let hosted = self.hosted(reply)?;
        Some((&hosted.site, hosted.first))
    }

    pub(crate) fn sites(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().map(|one| &*one.site)
    }

    /// The sites with a folder, each with its number.
    pub(crate) fn folders(&self) -> impl Iterator<Item = (HostedId, &Site)> {
        let folders = self.sites.iter().filter(|one| one.has_folder);
        folders.map(|one| (one.id, &*one.site))
    }
}

impl Site {
    /// Returns the number of the hosted site that has a reply.
    pub(crate) fn hosted(&self, reply: ReplyId) -> HostedId {
        let hosted = self.by_host().and_then(|sites| sites.hosted(reply));
        hosted.map_or_else(HostedId::default, |one| one.id)
    }

    /// Returns the hosted site with this number, or this site.
    pub(crate) fn with_id(&self, id: HostedId) -> &Self {
        let mut sites = self.by_host().into_iter().flat_map(ByHost::folders);
        let hosted = sites.find(|(known, _)| *known == id);
        hosted.map_or(self, |(_, site)| site)
    }

    /// The sites for different hosts that the program has served since its start.
    pub(crate) fn known(&self) -> KnownSites {
        let known = self.by_host().map(|sites| sites.known.clone());
        known.unwrap_or_default()
    }

    /// The users of all parts with a password.
    pub(crate) fn users(&self) -> impl Iterator<Item = &Arc<Users>> {
        self.with_hosted().flat_map(Site::realms).map(Realm::users)
    }

    /// Makes a site that leads each request to the site for its host. A request for another host gets
    /// status 421 (RFC 9110, section 15.5.20). A request of no site gets an answer of the site for all other
    /// hosts, or else of the first one.
    ///
    /// # Panics
    /// Panics if there is no site.
    pub fn by_hosts(members: &[HostedSite]) -> Self {
        let members = Member::all(members);
        Self::by_members(&members, &KnownSites::unnamed(members.len()))
    }

    /// Same as [`by_hosts`](Self::by_hosts), with the sites that the program has served since its start.
    pub(crate) fn by_members(members: &[Member], known: &KnownSites) -> Self {
        let usual = &members[usual_member(members)].site;
        // A finished site would have further replies, for example for clean URLs.
        let builder = Builder::with_settings(std::time::UNIX_EPOCH, &usual.settings);
        let mut site = builder.into_site();
        site.replies[..SHARED_REPLIES].clone_from_slice(&usual.replies[..SHARED_REPLIES]);
        let mut by_host = ByHost {
            hosts: Hosts::default(),
            sites: Vec::new(),
            known: known.clone(),
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
            by_host.sites.push(Hosted {
                site: Arc::clone(&member.site),
                id: member.id,
                has_folder: member.has_folder,
                first,
            });
        }
        site.by_host = Some(Box::new(by_host));
        site
    }

    /// Makes a site that takes over from this one. `members` are the sites from now on. For each of them that
    /// has changed, `changed` has the site that it was before, and what takes over from it.
    pub(crate) fn next_by_hosts(
        &self,
        (members, known): (&[Member], &KnownSites),
        changed: &[(Arc<Self>, NextSite)],
    ) -> NextSite {
        let mut site = Self::by_members(members, known);
        let changed = changed.iter();
        let changed = changed.map(|(old, next)| (Arc::as_ptr(&next.site), (old, next)));
        let changed: HashMap<_, _> = changed.collect();
        let olds = self.by_host.iter().flat_map(|one| &one.sites);
        let olds = olds.map(|one| (Arc::as_ptr(&one.site), one.first));
        let mut olds: HashMap<_, _> = olds.collect();
        let was_alone = self.by_host.is_none();
        if was_alone {
            olds.insert(std::ptr::from_ref(self), 0);
        }
        // The replies of no site are copies of those of one member, perhaps of another one than before.
        let mut origins: Vec<u32> = Vec::new();
        for (index, reply) in site.replies[..SHARED_REPLIES].iter_mut().enumerate() {
            let known = &self.replies[index];
            let is_equal = reply.bytes() == known.bytes();
            origins.push(if is_equal { index as u32 } else { NEW });
            if is_equal {
                reply.clone_from(known);
            }
        }
        for member in members {
            let changed = changed.get(&Arc::as_ptr(&member.site));
            let before = changed.map_or(&member.site, |(old, _)| old);
            let first = olds.get(&Arc::as_ptr(before));
            // Those that were shared so far stay shared.
            let is_taken = |origin: u32| was_alone && (origin as usize) < SHARED_REPLIES;
            let moved = |origin: u32| match first {
                Some(first) if origin != NEW && !is_taken(origin) => *first + origin,
                _ => NEW,
            };
            match changed {
                Some((_, next)) => origins.extend(next.origins.iter().copied().map(moved)),
                None => origins.extend((0..member.site.replies.len() as u32).map(moved)),
            }
        }
        NextSite::new(Arc::new(site), origins.into(), self.replies.len())
    }
}

/// Returns the number of the site for all other hosts, or else of the first one.
fn usual_member(members: &[Member]) -> usize {
    let mut members = members.iter();
    members
        .position(|member| member.hosts.is_empty())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::limits::Limits;
    use crate::session::{Session, Step};
    use crate::settings::Settings;
    use crate::status::Status;

    /// Makes a site that takes over from `old`.
    fn take_over(
        old: &Site,
        members: &[HostedSite],
        changed: &[(Arc<Site>, NextSite)],
    ) -> NextSite {
        let known = KnownSites::unnamed(members.len());
        old.next_by_hosts((&Member::all(members), &known), changed)
    }

    #[test]
    fn requests_of_no_site_get_the_error_pages_of_the_site_for_all_other_hosts() {
        let site = |text: &str| {
            let mut settings = Settings::default();
            settings.add_error_page(Status::MisdirectedRequest, b"/page");
            let builder = Builder::with_settings(UNIX_EPOCH, &Arc::new(settings));
            builder.file(b"/page", UNIX_EPOCH, text.as_bytes())
        };
        let member = |name: Option<&str>, site: &Arc<Site>| HostedSite {
            hosts: name.map(|name| name.parse().unwrap()).into_iter().collect(),
            site: Arc::clone(site),
        };
        let shown = |site: &Site| {
            let reply = Site::shared(Status::MisdirectedRequest, false);
            String::from_utf8_lossy(site.reply(reply).body()).into_owned()
        };
        let [first, other] = ["first", "other"].map(|text| Arc::new(site(text).build()));
        let old = Site::by_hosts(&[member(Some("a"), &first), member(None, &other)]);
        assert_eq!(shown(&old), "other");
        let old = Site::by_hosts(&[member(Some("a"), &first), member(Some("b"), &other)]);
        assert_eq!(shown(&old), "first");
        let next = site("new").build_next(&first);
        let members = [member(Some("a"), &next.site), member(Some("b"), &other)];
        let all = take_over(&old, &members, &[(first, next)]);
        assert_eq!(shown(&all.site), "new");
        let at = Site::shared(Status::MisdirectedRequest, false).0;
        assert_eq!(all.origins[at as usize], NEW);
        assert!(all.leaving.contains(&at));
    }

    #[test]
    fn the_only_site_of_a_port_keeps_its_replies_when_it_gets_a_host() {
        let builder = Builder::with_settings(UNIX_EPOCH, &Settings::default());
        let builder = builder.file(b"/a", UNIX_EPOCH, b"one");
        let old = Arc::new(builder.file(b"/b", UNIX_EPOCH, b"two").build());
        let member = HostedSite {
            hosts: vec!["a".parse().unwrap()],
            site: Arc::clone(&old),
        };
        let next = take_over(&old, &[member], &[]);
        let is_own = |origin: &&u32| **origin == NEW;
        // The site for different hosts has the shared replies twice.
        assert_eq!(next.origins.iter().filter(is_own).count(), SHARED_REPLIES);
        assert!(next.leaving.is_empty());
        let kept = next.origins.iter().filter(|origin| **origin != NEW);
        let mut kept: Vec<_> = kept.copied().collect();
        kept.sort_unstable();
        let all: Vec<_> = (0..old.replies.len() as u32).collect();
        assert_eq!(kept, all);
    }

    #[test]
    fn an_invalid_request_is_answered_by_the_site_of_its_host() {
        let site = || {
            let builder = Builder::with_settings(UNIX_EPOCH, &Settings::default());
            Arc::new(builder.file(b"/page", UNIX_EPOCH, b"page").build())
        };
        let member = |(id, host): (u16, &str)| Member {
            hosts: vec![host.parse().unwrap()],
            site: site(),
            id: HostedId(id),
            has_folder: true,
        };
        let members = [(1, "a"), (2, "b")].map(member);
        let site = Site::by_members(&members, &KnownSites::unnamed(2));
        let answered = |request: &str| {
            let request = request.replace('|', "\r\n");
            let step = Session::default().next(&site, request.as_bytes());
            let Step::Answer(answer) = step else {
                panic!("{request}");
            };
            (
                answer.of(&site).status().code(),
                site.hosted(answer.reply).0,
            )
        };
        for (request, expected) in [
            ("GET / HTTP/1.1|Host: b|Expect: x||", (417, 2)),
            ("||GET / HTTP/1.1|Expect: x|Host: B:80||", (417, 2)),
            ("HEAD / HTTP/1.2|Expect: x|Host: b||", (417, 2)),
            ("GET / HTTP/1.1|Host: b|Content-Length: x||", (400, 2)),
            ("GET / HTTP/1.1|Host: b|X: 1\nY: 2||", (400, 2)),
            ("GET http://b/ HTTP/1.1|Host: a|Expect: x||", (417, 2)),
            ("GET x HTTP/1.1|Host: b||", (400, 2)),
            ("OPTIONS * HTTP/1.1|Host: b||", (204, 2)),
            ("OPTIONS * HTTP/1.1|Host: c||", (204, 0)),
            ("GET / HTTP/1.1|Host: c|Expect: x||", (417, 0)),
            ("GET x HTTP/1.1|Host: c||", (400, 0)),
            ("GET / HTTP/1.1|Host: b|Host: b||", (400, 0)),
            ("GET / HTTP/1.1|Host: b/||", (400, 0)),
            ("GET / HTTP/1.1|X||", (400, 0)),
            ("GET / HTTP/1.1||", (400, 0)),
            ("GET / HTTP/1.0|Expect: x||", (417, 0)),
            ("GET / HTTP/2.0|Host: b||", (505, 0)),
        ] {
            assert_eq!(answered(request), expected, "{request}");
        }
    }

    #[test]
    fn other_hosts_change_only_the_replies_of_no_site() {
        let site = |text: &str| {
            let mut settings = Settings::default();
            settings.add_error_page(Status::MisdirectedRequest, b"/page");
            let builder = Builder::with_settings(UNIX_EPOCH, &Arc::new(settings));
            Arc::new(builder.file(b"/page", UNIX_EPOCH, text.as_bytes()).build())
        };
        let sites = [site("first"), site("other")];
        let members = |hosts: [&[&str]; 2]| -> Vec<HostedSite> {
            let member = |(hosts, site): (&[&str], &Arc<Site>)| HostedSite {
                hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
                site: Arc::clone(site),
            };
            hosts.into_iter().zip(&sites).map(member).collect()
        };
        let old = Site::by_hosts(&members([&["a"], &["b"]]));
        let next = take_over(&old, &members([&["b"], &["a", "c"]]), &[]);
        assert_eq!((next.added(), next.leaving.len()), (0, 0));
        let found = |host: &[u8]| next.site.by_host().unwrap().find(host).unwrap().1;
        assert!(found(b"a") == found(b"c") && found(b"b") < found(b"a"));
        // The pages for requests of no site are now those of the second site.
        let next = take_over(&old, &members([&["a"], &[]]), &[]);
        let at = Site::shared(Status::MisdirectedRequest, false).0;
        assert_eq!(next.origins[at as usize], NEW);
        assert!(next.site.replies()[at as usize].bytes().ends_with(b"other"));
        assert_eq!(next.added(), next.leaving.len() as u64);
    }

    #[test]
    fn only_the_replies_of_a_site_that_is_gone_leave() {
        let site = |text: &str| {
            let builder = Builder::with_settings(UNIX_EPOCH, &Settings::default());
            Arc::new(builder.file(b"/page", UNIX_EPOCH, text.as_bytes()).build())
        };
        let member = |(id, host, site): (u16, &str, &Arc<Site>)| Member {
            hosts: vec![host.parse().unwrap()],
            site: Arc::clone(site),
            id: HostedId(id),
            has_folder: true,
        };
        let [a, b, c] = ["a", "b", "c"].map(site);
        let known = KnownSites::unnamed(3);
        let old = [(1, "a", &a), (2, "b", &b)].map(member);
        let old = Site::by_members(&old, &known);
        // A new site takes the host of the one that is gone.
        let members = [(3, "b", &c), (1, "a", &a)].map(member);
        let next = old.next_by_hosts((&members, &known), &[]);
        let of = |site: &Site, host: &[u8]| {
            let (found, first) = site.by_host().unwrap().find(host).unwrap();
            let replies = first..first + found.replies().len() as u32;
            (replies.clone(), site.hosted(ReplyId(replies.end - 1)))
        };
        let (kept, gone) = (of(&old, b"a"), of(&old, b"b"));
        assert_eq!((kept.1, gone.1), (HostedId(1), HostedId(2)));
        assert!(next.leaving.iter().copied().eq(gone.0));
        let (stays, new) = (of(&next.site, b"a"), of(&next.site, b"b"));
        assert_eq!((stays.1, new.1), (HostedId(1), HostedId(3)));
        let origins = |range: std::ops::Range<u32>| {
            let range = range.start as usize..range.end as usize;
            next.origins[range].iter().copied()
        };
        assert!(origins(stays.0).eq(kept.0));
        assert!(origins(new.0).all(|origin| origin == NEW));
        assert_eq!(
            next.site.with_id(HostedId(3)).replies().len(),
            c.replies().len()
        );
        assert!(std::ptr::eq(
            next.site.with_id(HostedId(2)),
            &raw const *next.site
        ));
    }

    #[test]
    fn a_site_that_was_loaded_again_has_the_same_users_unless_their_file_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let [file, users] = ["site/a", "users"].map(|name| folder.path().join(name));
        std::fs::create_dir(folder.path().join("site")).unwrap();
        std::fs::write(file, "a").unwrap();
        let hash = "$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au";
        // Checks of all these hashes take equally long.
        let line = |n| format!("ali{n}:{}\n", hash.replace("Soo4", &format!("Soo{n}")));
        let eight: String = (0..8).map(line).collect();
        std::fs::write(&users, &eight).unwrap();
        let mut settings = Settings::default();
        settings
            .add_basic_auth(&format!("/={}", users.display()))
            .unwrap();
        let (folder, limits) = (folder.path().join("site"), Limits::default());
        let old = Arc::new(Site::load_with(&folder, &limits, &settings, |_| {}).unwrap());
        let improved = old.with_digests(&HashMap::new()).site;
        let load = |text: String| {
            std::fs::write(&users, text).unwrap();
            old.load_next(&folder, &limits, |_| {}).unwrap().site
        };
        let same = [(); 5].map(|()| load(format!("# The same users\n{eight}")));
        let other = load(format!("{eight}bob:{hash}"));
        let hosted = |site: &Arc<Site>| {
            Site::by_hosts(&[HostedSite {
                hosts: Vec::new(),
                site: Arc::clone(site),
            }])
        };
        let places = |site: &Site| site.users().map(Arc::as_ptr).collect::<Vec<_>>();
        for site in same.iter().chain([&improved]) {
            assert_eq!(places(site), places(&old));
            assert_eq!(places(&hosted(site)), places(&old));
        }
        assert_ne!(places(&other), places(&old));
    }

    #[test]
    fn when_a_site_changes_the_replies_of_the_others_stay() {
        expect_replies_to_stay(&Settings::default());
    }

    #[test]
    fn replies_stay_also_if_sites_have_replies_of_their_own_for_rules() {
        let mut settings = Settings {
            clean_urls: true,
            listings: true,
            ..Settings::default()
        };
        settings.add_redirect("/x /y 301").unwrap();
        settings.add_redirect("/x/* /y/:splat 301").unwrap();
        expect_replies_to_stay(&settings);
    }

    fn expect_replies_to_stay(settings: &Settings) {
        let site = |texts: &[&str]| {
            let file = |builder: Builder, text: &&str| {
                builder.file(format!("/{text}").as_bytes(), UNIX_EPOCH, text.as_bytes())
            };
            texts
                .iter()
                .fold(Builder::with_settings(UNIX_EPOCH, settings), file)
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
        let all = take_over(&old, &members, &[(b, next)]);
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
