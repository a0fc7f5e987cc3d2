//! Programs that serve several sites without an application.

use std::collections::HashSet;
use std::mem;
use std::path::PathBuf;

use control::config::{self, TakenOver};
use control::report::Lines;
use control::{ContentFiles, Many, Named as _, Program as _, StartError};
use nmio::device::AddressPrefix;
use tcpip::{CongestionControl, Cubic};

use crate::access_log::AccessLogArgs;
use crate::app::SiteOnly;
use crate::hosts::HostName;
use crate::loading::NotLoaded;
use crate::next_sites::NextSites;
use crate::program::{MakeSiteOnly, Sandstorm};
use crate::site_options::SiteSource;

/// The program that serves sites without an application.
pub type Sites<C = Cubic> = Many<Sandstorm<SiteOnly, MakeSiteOnly, C>>;

/// The program of a site, or of sites for different hosts on one port.
type Program<C> = Sandstorm<SiteOnly, MakeSiteOnly, C>;

/// A loaded site.
type Loaded<'o, C> = (SiteSource<'o>, Program<C>);

/// Sites for different hosts on one port and the same addresses, or a single site.
struct Group<'o, C> {
    sources: Vec<SiteSource<'o>>,
    program: Program<C>,
}

/// Loads sites to check them. Returns the lines about the content of each in the start block, or messages
/// for the operator. Messages about wrong options follow. `own` has the server's own addresses, if it has
/// any. Adds the files of the sites to `files`.
pub fn check_sites(
    sources: &[SiteSource<'_>],
    own: &[AddressPrefix],
    files: &mut ContentFiles,
) -> Vec<Result<Lines, StartError>> {
    let mut found = Vec::new();
    for source in sources {
        let (program, errors) = source.check(sources.len());
        files.add(source.files());
        if let Some(program) = &program {
            files.add(program.files());
        }
        if let Some(program) = &program
            && errors.is_empty()
        {
            let mut lines = program.loaded();
            lines.retain(|(label, _)| !["congestion", "mode"].contains(label));
            found.push(Ok(lines));
        }
        found.extend(errors.into_iter().map(|error| Err(error.into())));
    }
    // Sites may share a log.
    let mut known = Vec::new();
    for destination in sources.iter().filter_map(|one| one.log().destination()) {
        if !known.contains(&destination) {
            known.push(destination);
            let checked = AccessLogArgs::check_file(destination, SiteOnly::NAME);
            found.extend(checked.err().map(|error| Err(error.into())));
        }
    }
    let own: Vec<_> = own.iter().map(|one| one.address).collect();
    let is_known = !own.is_empty() && !config::is_wrong(0, "addresses");
    let missing = sources.iter().filter(|_| is_known);
    let missing = missing.flat_map(|source| source.missing_addresses(&own));
    let wrong = pair_conflicts(sources).chain(missing);
    let wrong = wrong.chain(check_logs(sources).err());
    found.extend(wrong.map(|error| Err(error.into())));
    found
}

/// Returns why two of these sites cannot be served together. Many sites may have a wrong port in common. So
/// each is told only of one other site for each kind of error and each common host.
fn pair_conflicts<'s>(sources: &'s [SiteSource<'_>]) -> impl Iterator<Item = NotLoaded> + 's {
    let pairs = sources.iter().enumerate();
    pairs.flat_map(|(number, source)| {
        let others = sources[..number].iter();
        let errors = others.flat_map(move |other| {
            conflicts(other, source)
                .into_iter()
                .chain(same_port(other, source))
        });
        let mut told = HashSet::new();
        errors.filter(move |error| {
            let host = match error {
                NotLoaded::SameHost { host, .. } => Some(host.clone()),
                _ => None,
            };
            told.insert((mem::discriminant(error), host))
        })
    })
}

/// Checks the options for access logs of all sites.
fn check_logs(sources: &[SiteSource<'_>]) -> Result<(), NotLoaded> {
    if sources.iter().any(|one| one.is_wrong("access_log")) {
        return Ok(());
    }
    Ok(AccessLogArgs::check(sources.iter().map(SiteSource::log))?)
}

/// Loads sites for a program that serves all of them. Each is named after its folder, and also after
/// its port if an earlier one has the same folder.
///
/// # Errors
/// [`NotLoaded`], a message for the operator, if a folder cannot be served. It is in an
/// [`OptionError`](control::OptionError) if the options are wrong.
pub fn load_sites<'o, C: CongestionControl>(
    first: SiteSource<'o>,
    more: impl IntoIterator<Item = SiteSource<'o>>,
) -> Result<Sites<C>, StartError> {
    let sources: Vec<_> = std::iter::once(first).chain(more).collect();
    let load = |source: &SiteSource<'o>| {
        let program = source.load(sources.len())?;
        Ok::<_, NotLoaded>((*source, program.with_congestion::<C>()))
    };
    check_logs(&sources)
        .and_then(|()| sources.iter().map(load).collect())
        .and_then(|loaded| together(loaded, Group::with_logs))
        .map_err(NotLoaded::into_start_error)
}

/// A configuration file that was read again.
pub(crate) struct RereadConfig<'s> {
    /// All sites, each with its number.
    pub(crate) sources: &'s [(usize, SiteSource<'s>)],
    /// The folders in which the server may write.
    pub(crate) stores: Vec<PathBuf>,
    /// The names of the served sites and of the new ones.
    names: HashSet<String>,
    /// The names of all sites that were served since the start.
    known: HashSet<String>,
    /// What was checked so far.
    pub(crate) taken: TakenOver,
}

impl RereadConfig<'_> {
    /// Returns the name of a new site. `own` has the names of the sites that the program has served. It may use
    /// them again.
    pub(crate) fn new_name(&mut self, source: &SiteSource<'_>, own: &[String]) -> String {
        let is_known = |name: &str| self.known.contains(name) && !own.iter().any(|one| one == name);
        let name = name(source, |name| self.names.contains(name) || is_known(name));
        self.names.insert(name.clone());
        name
    }
}

/// Checks other sites, and other options for the sites of a running server. `numbers` has the number of each
/// site.
///
/// # Errors
/// If an option is wrong or needs another start.
pub fn check_next_sites<'p, C: CongestionControl>(
    sites: &'p Sites<C>,
    sources: &[SiteSource<'_>],
    numbers: &[usize],
) -> Result<NextSites<'p>, StartError> {
    let alone = sources.iter().flat_map(SiteSource::contradictions);
    let pairs = pair_conflicts(sources);
    let wrong = alone.chain(pairs).chain(check_logs(sources).err());
    let wrong: Vec<_> = wrong.map(|error| error.to_string()).collect();
    if !wrong.is_empty() {
        return Err(wrong.join("; ").into());
    }
    let numbered: Vec<_> = numbers
        .iter()
        .copied()
        .zip(sources.iter().copied())
        .collect();
    let stores = sites.stored_paths();
    let mut new = 0;
    let mut is_served = |(number, source): &&(usize, SiteSource<'_>)| {
        if sites.programs().any(|one| one.has_number(*number)) {
            return true;
        }
        new += 1;
        let mut programs = sites.programs();
        programs.any(|one| one.may_add(source, &stores) && one.has_room_for(new))
    };
    let waiting = numbered.iter().filter(|one| !is_served(one));
    let taken = TakenOver {
        waiting: waiting.map(|(number, _)| *number).collect(),
        ..TakenOver::default()
    };
    let names = sites.programs().flat_map(Program::<C>::names);
    let known = sites.programs().flat_map(Program::<C>::known_names);
    let mut reading = RereadConfig {
        sources: &numbered,
        stores,
        names: names.collect(),
        known: known.collect(),
        taken,
    };
    let programs = sites.programs().map(|one| one.check_next(&mut reading));
    let programs = programs.collect::<Result<_, _>>()?;
    Ok(NextSites {
        programs,
        taken: reading.taken,
    })
}

/// Returns the program that serves these sites. There must be one. `finish` finishes those of each port.
fn together<'o, C: CongestionControl>(
    loaded: Vec<Loaded<'o, C>>,
    finish: impl Fn(Group<'o, C>) -> Result<Program<C>, NotLoaded>,
) -> Result<Sites<C>, NotLoaded> {
    let mut groups: Vec<Group<'o, C>> = Vec::new();
    let mut names = HashSet::<String>::new();
    for (source, program) in loaded {
        let name = name(&source, |name| names.contains(name));
        let program = program.with_name(&name);
        names.insert(name);
        let program = if source.hosts().is_empty() {
            program
        } else {
            program.with_hosts(source.hosts())
        };
        let program = program.with_redirect_hosts(source.redirect_hosts());
        match groups.iter().position(|group| group.takes(&source)) {
            Some(at) => {
                let group = groups.remove(at);
                groups.insert(at, group.with(source, program)?);
            }
            None => groups.push(Group {
                sources: vec![source],
                program,
            }),
        }
    }
    let mut sites: Option<Sites<C>> = None;
    for group in groups {
        let source = group.sources[0];
        let program = finish(group)?;
        let name = program.name();
        sites = Some(match sites {
            None => Many::new(name, program, source.addresses()),
            Some(sites) => sites.with(name, program, source.port(), source.addresses()),
        });
    }
    sites.ok_or(NotLoaded::NoSite)
}

/// Returns the name of a site: its folder. If another site has this name, the name also has the port, or the
/// first host too, or even a number.
fn name(source: &SiteSource<'_>, is_taken: impl Fn(&str) -> bool) -> String {
    let (folder, port) = (source.name(), source.port());
    let host = source.hosts().first();
    let host = host.map_or_else(|| "other hosts".to_owned(), HostName::to_string);
    let longest = format!("{folder}:{port} ({host})");
    let numbered = (2_u64..).map(|number| format!("{longest} {number}"));
    let names = [folder.clone(), format!("{folder}:{port}"), longest.clone()];
    let mut names = names.into_iter().chain(numbered);
    names.find(|one| !is_taken(one)).unwrap_or_default()
}

impl<'o, C: CongestionControl> Group<'o, C> {
    /// Opens the access logs of the sites.
    fn with_logs(self) -> Result<Program<C>, NotLoaded> {
        let logs: Vec<_> = self.sources.iter().map(SiteSource::log).collect();
        Ok(self.program.with_access_logs(SiteOnly::NAME, &logs)?)
    }

    /// Returns true if the host tells whether a request is for this site or for one of the group.
    fn takes(&self, source: &SiteSource<'_>) -> bool {
        let first = &self.sources[0];
        let mut all = self.sources.iter().chain([source]);
        let is_default = |one: &&SiteSource<'_>| one.hosts().is_empty();
        first.port() == source.port()
            && first.addresses() == source.addresses()
            && all.by_ref().filter(is_default).count() <= 1
    }

    /// Adds a site.
    fn with(mut self, source: SiteSource<'o>, program: Program<C>) -> Result<Self, NotLoaded> {
        let mut others = self.sources.iter();
        if let Some(error) = others.find_map(|other| conflicts(other, &source).pop()) {
            return Err(error);
        }
        self.sources.push(source);
        self.program = self.program.with_site(program);
        Ok(self)
    }
}

/// Returns why these sites cannot share their port and their addresses, if they do so. Two sites that are
/// not for certain hosts do not share a port: see [`Group::takes`].
fn conflicts(one: &SiteSource<'_>, other: &SiteSource<'_>) -> Vec<NotLoaded> {
    let have_hosts = one.is_for_hosts() || other.is_for_hosts();
    let are_known = one.has_known_place() && other.has_known_place();
    let share_port = one.port() == other.port() && one.addresses() == other.addresses();
    if !(have_hosts && are_known && share_port) {
        return Vec::new();
    }
    let sites = || [one.with_place(), other.with_place()];
    let mode = (!one.has_mode_of(other)).then(|| NotLoaded::OtherMode { sites: sites() });
    let limits = (!one.has_limits_of(other)).then(|| NotLoaded::OtherLimits { sites: sites() });
    let is_of_one = |host: &&HostName| one.all_hosts().any(|same| same == *host);
    let hosts = other.all_hosts().filter(is_of_one);
    let hosts = hosts.map(|host| NotLoaded::SameHost {
        host: host.clone(),
        sites: [one.with_place_of(host), other.with_place_of(host)],
    });
    mode.into_iter().chain(limits).chain(hosts).collect()
}

/// Returns an error if a packet could be for both of these sites, and no host tells them apart.
fn same_port(one: &SiteSource<'_>, other: &SiteSource<'_>) -> Option<NotLoaded> {
    let (of_one, of_other) = (one.addresses(), other.addresses());
    let is_for_all = of_one.is_empty() || of_other.is_empty();
    let overlap = is_for_all || of_one.iter().any(|address| of_other.contains(address));
    let are_known = one.has_known_place() && other.has_known_place();
    let have_hosts = one.is_for_hosts() || other.is_for_hosts();
    let is_told_apart = have_hosts && of_one == of_other;
    (one.port() == other.port() && are_known && overlap && !is_told_apart).then(|| {
        NotLoaded::SamePort {
            port: one.port(),
            sites: [one.with_place(), other.with_place()],
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::known_sites::{KnownSites, MAX_SITES};
    use crate::part::locked;
    use crate::testing::Cli;

    fn sources<'o>(folder: &'o Path, all: &'o [Cli]) -> Vec<SiteSource<'o>> {
        let sources = all.iter().enumerate().map(|(number, cli)| SiteSource {
            number,
            folder,
            port: None,
            options: &cli.site,
            connections: &cli.connections,
        });
        sources.collect()
    }

    #[test]
    fn only_a_site_with_other_options_is_loaded_in_another_way() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "a").unwrap();
        let cli = |line: &str| Cli::try_parse_from(line.split(' ')).unwrap();
        let before = ["sandstorm --host a", "sandstorm --host b"].map(cli);
        let after = ["sandstorm --host a", "sandstorm --host b --clean-urls"].map(cli);
        let before = sources(folder.path(), &before);
        let sites: Sites = load_sites(before[0], [before[1]]).unwrap();
        let changed = |sources: &[_]| {
            let next = check_next_sites(&sites, sources, &[0, 1]).unwrap();
            let loadings = next.programs[0].loadings.iter();
            let parts = loadings.map(|(part, _)| part.number());
            parts.collect::<Vec<_>>()
        };
        assert!(changed(&before).is_empty());
        assert_eq!(changed(&sources(folder.path(), &after)), [1]);
    }

    #[test]
    fn each_site_is_told_of_one_other_on_its_port_and_of_all_its_hosts() {
        let cli = |line: &str| Cli::try_parse_from(line.split(' ')).unwrap();
        let errors = |all: &[Cli]| pair_conflicts(&sources(Path::new("/www"), all)).count();
        assert_eq!(errors(&[(); 50].map(|()| cli("sandstorm"))), 49);
        let both = ["sandstorm --host a --host b"; 2].map(cli);
        assert_eq!(errors(&both), 2);
    }

    #[test]
    fn a_new_site_beyond_the_limit_waits_for_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "a").unwrap();
        let cli = |host| Cli::try_parse_from(["sandstorm", "--host", host]).unwrap();
        let all = ["a.test", "b.test", "c.test"].map(cli);
        let sources = sources(folder.path(), &all);
        let sites: Sites = load_sites(sources[0], []).unwrap();
        let check = || check_next_sites(&sites, &sources, &[0, 1, 2]).unwrap();
        for (known, added, waiting) in [
            (MAX_SITES - 2, &[1, 2][..], &[][..]),
            (MAX_SITES - 1, &[1][..], &[2][..]),
            (MAX_SITES, &[][..], &[1, 2][..]),
        ] {
            let parts = check().programs[0].parts;
            *locked(&parts.shared_known()) = KnownSites::unnamed(known);
            let next = check();
            assert_eq!(next.taken.added, added);
            assert_eq!(next.taken.waiting, waiting);
            assert_eq!(next.programs[0].next.len(), 1 + added.len());
        }
    }
}
