//! The folders that a program serves. A reload replaces the list as a whole.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use control::report;

use crate::fields::Fields;
use crate::hosts::HostName;
use crate::known_sites::HostedId;
use crate::known_sites::KnownSites;
use crate::part::{ProgramPart, locked};
use crate::redirect_host::RedirectHost;
use crate::site::{Member, Site};

/// A part, and what leads to it.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) part: Arc<ProgramPart>,
    /// The hosts, or none for all hosts that no other part has.
    pub(crate) hosts: Vec<HostName>,
    /// The hosts whose requests are sent elsewhere.
    pub(crate) redirecting: Vec<Redirecting>,
    /// The number in counts and logs. It is 0 before the part is served.
    pub(crate) id: HostedId,
}

/// A host whose requests are sent elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Redirecting {
    pub(crate) host: RedirectHost,
    site: Arc<Site>,
}

impl Redirecting {
    /// Makes the sites of such hosts. All their responses have these fields.
    pub(crate) fn all(hosts: &[RedirectHost], fields: &Fields) -> Vec<Self> {
        Self::all_after(&[], hosts, fields)
    }

    /// Same as [`all`](Self::all), but keeps the sites of hosts that `before` sends to the same place.
    pub(crate) fn all_after(before: &[Self], hosts: &[RedirectHost], fields: &Fields) -> Vec<Self> {
        let known = before.iter().map(|one| (one.host.host_and_place(), one));
        let known: HashMap<_, _> = known.collect();
        let one = |host: &RedirectHost| match known.get(&host.host_and_place()) {
            Some(&kept) => kept.clone(),
            None => Self {
                host: host.clone(),
                site: host.site(fields),
            },
        };
        hosts.iter().map(one).collect()
    }
}

impl Served {
    /// Whether all requests go to where they go with `other`. The order of hosts does not matter.
    pub(crate) fn has_hosts_of(&self, other: &Self) -> bool {
        self.host_set() == other.host_set() && self.redirecting_set() == other.redirecting_set()
    }

    fn host_set(&self) -> HashSet<&HostName> {
        self.hosts.iter().collect()
    }

    fn redirecting_set(&self) -> HashSet<(&HostName, &str)> {
        let all = self.redirecting.iter();
        all.map(|one| one.host.host_and_place()).collect()
    }

    /// Describes the files and the hosts for the operator.
    pub(crate) fn describe(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(HostName::to_string).collect();
        let hosts = match &*hosts {
            [] => String::new(),
            hosts => format!(", for {}", hosts.join(", ")),
        };
        self.part.describe(&hosts)
    }

    /// Returns true if this is the same part.
    pub(crate) fn is(&self, part: &Arc<ProgramPart>) -> bool {
        Arc::ptr_eq(&self.part, part)
    }
}

/// The parts of a program.
#[derive(Debug)]
pub(crate) struct ProgramParts {
    lists: Mutex<Lists>,
    /// All sites that were served since the start. The logs know them too.
    known: Arc<Mutex<KnownSites>>,
    /// The names of sites that a file has added. They live as long as the process.
    added_names: Mutex<BTreeSet<&'static str>>,
}

#[derive(Debug)]
struct Lists {
    now: Arc<[Served]>,
    /// Parts that replace these as soon as all of them can be loaded. They differ in their hosts, or are
    /// others.
    next: Option<Arc<[Served]>>,
}

/// How the list has changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    new: Vec<String>,
    gone: Vec<String>,
    /// Whether a part that stays has other hosts, or hosts that are sent elsewhere.
    other_hosts: bool,
}

impl Changes {
    /// Describes the changes for the operator.
    pub(crate) fn describe(&self) -> String {
        let of = |names: &[String], what: &str| {
            let is = if names.len() == 1 { "is" } else { "are" };
            let count = report::counted(names.len() as u64, "site");
            (!names.is_empty()).then(|| format!("{count} {is} {what}: {}", names.join(", ")))
        };
        let hosts = self.other_hosts.then(|| "hosts have changed".to_owned());
        let all = [of(&self.new, "new"), of(&self.gone, "gone"), hosts];
        let all: Vec<_> = all.into_iter().flatten().collect();
        all.join("; ")
    }
}

impl ProgramParts {
    /// Starts with one part.
    pub(crate) fn new(part: ProgramPart) -> Self {
        let mut known = KnownSites::default();
        let first = Served {
            id: known.add(part.name(), None),
            part: Arc::new(part),
            hosts: Vec::new(),
            redirecting: Vec::new(),
        };
        Self {
            lists: Mutex::new(Lists {
                now: [first].into(),
                next: None,
            }),
            known: Arc::new(Mutex::new(known)),
            added_names: Mutex::default(),
        }
    }

    /// Keeps the name of a new site, once for all files that are read.
    pub(crate) fn keep_name(&self, name: String) -> &'static str {
        let mut kept = locked(&self.added_names);
        let known = kept.get(&*name).copied();
        known.unwrap_or_else(|| {
            let name = &*name.leak();
            kept.insert(name);
            name
        })
    }

    /// Adds the parts of `other`, before any are served.
    pub(crate) fn extend(&mut self, other: &Self) {
        let mut known = self.known();
        let mut all = self.now().to_vec();
        all.extend(other.now().iter().map(|one| Served {
            id: known.add(one.part.name(), one.part.log()),
            ..one.clone()
        }));
        self.set_now(all.into(), known);
    }

    /// Changes what leads to the parts, before any are served.
    pub(crate) fn change(&mut self, change: impl FnMut(&mut Served)) {
        let mut all = self.now().to_vec();
        all.iter_mut().for_each(change);
        let known = self.known();
        self.set_now(all.into(), known);
    }

    /// Changes the parts themselves, before any are served.
    pub(crate) fn change_each(&mut self, mut change: impl FnMut(usize, &mut ProgramPart)) {
        let lists = self.lists.get_mut();
        let lists = lists.unwrap_or_else(PoisonError::into_inner);
        let mut known = KnownSites::default();
        let all = Arc::get_mut(&mut lists.now).into_iter().flatten();
        for (index, one) in all.enumerate() {
            if let Some(part) = Arc::get_mut(&mut one.part) {
                change(index, part);
            }
            one.id = known.add(one.part.name(), one.part.log());
        }
        *locked(&self.known) = known;
    }

    fn set_now(&mut self, now: Arc<[Served]>, known: KnownSites) {
        *locked(&self.known) = known;
        locked(&self.lists).now = now;
    }

    /// The parts that are served.
    pub(crate) fn now(&self) -> Arc<[Served]> {
        Arc::clone(&locked(&self.lists).now)
    }

    /// The next parts, if there are any.
    pub(crate) fn next(&self) -> Option<Arc<[Served]>> {
        locked(&self.lists).next.clone()
    }

    /// Gives to the hosts whose requests are sent elsewhere the fields that redirects of their part have now.
    pub(crate) fn renew_redirecting(&self) {
        let mut lists = locked(&self.lists);
        let has_other_fields = |one: &Served| {
            if one.redirecting.is_empty() {
                return false;
            }
            let fields = one.part.site().fields_everywhere();
            let mut redirecting = one.redirecting.iter();
            redirecting.any(|one| *one.site.fields() != fields)
        };
        if !lists.now.iter().any(has_other_fields) {
            return;
        }
        let mut all = lists.now.to_vec();
        for one in all.iter_mut().filter(|one| has_other_fields(one)) {
            let hosts: Vec<_> = one.redirecting.iter().map(|one| one.host.clone()).collect();
            one.redirecting = Redirecting::all(&hosts, &one.part.site().fields_everywhere());
        }
        lists.now = all.into();
    }

    /// The parts that are served, and those that are to be served.
    pub(crate) fn all(&self) -> Vec<Served> {
        let now = self.now();
        let is_new = |one: &&Served| !now.iter().any(|other| other.is(&one.part));
        let next = self.next();
        let next = next.iter().flat_map(|next| &**next).filter(is_new);
        now.iter().chain(next).cloned().collect()
    }

    /// All sites that were served since the start.
    pub(crate) fn known(&self) -> KnownSites {
        locked(&self.known).clone()
    }

    /// The same, also when there are more.
    pub(crate) fn shared_known(&self) -> Arc<Mutex<KnownSites>> {
        Arc::clone(&self.known)
    }

    /// Serves these parts when all of them can be loaded, unless that would change neither parts nor hosts.
    pub(crate) fn set_next(&self, next: Vec<Served>) {
        let mut lists = locked(&self.lists);
        let is_change = changes(&lists.now, &next).is_some();
        lists.next = is_change.then(|| next.into());
    }

    /// Serves the next parts, which are loaded. Returns what has changed.
    pub(crate) fn go_on(&self) -> Option<Changes> {
        let mut lists = locked(&self.lists);
        let mut next = lists.next.take()?.to_vec();
        let changes = changes(&lists.now, &next)?;
        let mut known = locked(&self.known);
        for one in &mut next {
            one.id = known.add(one.part.name(), one.part.log());
        }
        lists.now = next.into();
        Some(changes)
    }
}

/// Returns how parts differ, if they do.
fn changes(before: &[Served], next: &[Served]) -> Option<Changes> {
    let without = |all: &[Served], others: &[Served]| -> Vec<String> {
        let is_without = |one: &&Served| !others.iter().any(|other| other.is(&one.part));
        let names = all.iter().filter(is_without);
        names.map(|one| one.part.name().to_owned()).collect()
    };
    let differ = |one: &Served| {
        let mut before = before.iter();
        before.any(|other| other.is(&one.part) && !other.has_hosts_of(one))
    };
    let changes = Changes {
        new: without(next, before),
        gone: without(before, next),
        other_hosts: next.iter().any(differ),
    };
    let is_change = changes.other_hosts || !changes.new.is_empty() || !changes.gone.is_empty();
    is_change.then_some(changes)
}

/// Returns the sites for different hosts. Those with a folder come first.
pub(crate) fn members(parts: &[Served]) -> Vec<Member> {
    let folders = parts.iter().map(|one| Member {
        hosts: one.hosts.clone(),
        site: one.part.site(),
        id: one.id,
        has_folder: true,
    });
    let redirecting = parts.iter().flat_map(|one| {
        let each = one.redirecting.iter();
        each.map(|redirecting| Member {
            hosts: vec![redirecting.host.host().clone()],
            site: Arc::clone(&redirecting.site),
            id: one.id,
            has_folder: false,
        })
    });
    folders.chain(redirecting).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::limits::Limits;
    use crate::loading::Loading;
    use crate::settings::Settings;

    fn loading(folder: &str) -> Loading {
        Loading {
            folder: folder.into(),
            limits: Limits::default(),
            strict: false,
            memory: None,
            settings: Settings::default(),
        }
    }

    /// A part that is not loaded yet.
    fn new_part(number: usize, name: &'static str) -> Served {
        let part = ProgramPart::to_be_loaded(number, name, None, &loading(name));
        Served {
            part: Arc::new(part),
            hosts: vec![format!("{name}.test").parse().unwrap()],
            redirecting: Vec::new(),
            id: HostedId::default(),
        }
    }

    fn names(parts: &[Served]) -> Vec<(&'static str, u16)> {
        let parts = parts.iter();
        parts.map(|one| (one.part.name(), one.id.0)).collect()
    }

    #[test]
    fn the_name_of_a_new_site_is_kept_once() {
        let site = new_part(0, "a").part.site();
        let parts = ProgramParts::new(ProgramPart::new(site, Path::new("a")));
        let [first, again] = [(); 2].map(|()| parts.keep_name("b".to_owned()));
        assert_eq!(first, "b");
        assert!(std::ptr::eq(first, again));
    }

    fn redirecting(before: &[Redirecting], all: &[&str]) -> Vec<Redirecting> {
        let hosts: Vec<_> = all.iter().map(|one| one.parse().unwrap()).collect();
        Redirecting::all_after(before, &hosts, &Fields::new())
    }

    #[test]
    fn the_order_of_hosts_does_not_matter() {
        let part = new_part(0, "a");
        let with = |hosts: &[&str], all: &[&str]| Served {
            hosts: hosts.iter().map(|one| one.parse().unwrap()).collect(),
            redirecting: redirecting(&[], all),
            ..part.clone()
        };
        let all = ["c.test=http://a.test", "d.test=http://a.test"];
        let first = with(&["a.test", "b.test"], &all);
        let turned = with(&["b.test", "a.test"], &[all[1], all[0]]);
        assert!(turned.has_hosts_of(&first));
        for other in [
            with(&["a.test"], &all),
            with(&["a.test", "x.test"], &all),
            with(&["a.test", "b.test"], &all[..1]),
            with(&["a.test", "b.test"], &[all[0], "d.test=http://b.test"]),
        ] {
            assert!(!first.has_hosts_of(&other) && !other.has_hosts_of(&first));
        }
    }

    #[test]
    fn hosts_that_are_sent_to_the_same_place_keep_their_sites() {
        let [c, d] = ["c.test=http://a.test", "d.test=http://a.test"];
        let before = redirecting(&[], &[c, d]);
        let after = redirecting(&before, &[d, "c.test=http://b.test"]);
        assert!(Arc::ptr_eq(&after[0].site, &before[1].site));
        assert!(
            before
                .iter()
                .all(|one| !Arc::ptr_eq(&one.site, &after[1].site))
        );
    }

    #[test]
    fn parts_change_together() {
        let site = new_part(0, "a").part.site();
        let parts = ProgramParts::new(ProgramPart::new(site, Path::new("a")));
        let first = parts.now()[0].clone();
        let [b, c] = [(1, "b"), (2, "c")].map(|(number, name)| new_part(number, name));
        parts.set_next([b.clone(), c.clone()].into());
        assert_eq!(names(&parts.now()), [("a", 1)]);
        assert_eq!(parts.all().len(), 3);
        let changes = parts.go_on().unwrap().describe();
        assert_eq!(changes, "2 sites are new: b, c; 1 site is gone: a");
        assert_eq!(names(&parts.now()), [("b", 2), ("c", 3)]);
        // A site that comes back has its number.
        let b = Served {
            hosts: Vec::new(),
            ..b
        };
        parts.set_next([b, first].into());
        let changes = parts.go_on().unwrap().describe();
        let expected = "1 site is new: a; 1 site is gone: c; hosts have changed";
        assert_eq!(changes, expected);
        assert_eq!(names(&parts.now()), [("b", 2), ("a", 1)]);
        parts.set_next(parts.now().to_vec());
        assert!(parts.next().is_none(), "nothing has changed");
    }
}
