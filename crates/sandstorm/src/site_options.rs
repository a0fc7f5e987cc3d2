//! The options of one site.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use control::args::host_address;
use control::config;
use control::units::{by_word, number, size};
use control::{
    CONFINES_EACH_THREAD, ConnectionArgs, ContentFiles, Named, NewWorker, NotOfServer, StartError,
};
use tcpip::Config;

use crate::access_log::AccessLogArgs;
use crate::app::{App, SiteOnly};
use crate::coder::Coder;
use crate::fields::Fields;
use crate::hosts::HostName;
use crate::limits::Limits;
use crate::load::LoadError;
use crate::loading::{GivenOption, Loading, NotLoaded, load};
use crate::memory_budget::MemoryBudget;
use crate::port_options::{ModeArg, PortOptions};
use crate::prepared::Replies;
use crate::program::{MakeSiteOnly, Sandstorm};
use crate::redirect_host::RedirectHost;
use crate::rule_args::{RuleArgs, SITE};
use crate::settings::Settings;
use crate::web::REQUEST_TIMEOUT;

/// Minimum memory of a site in bytes.
const MIN_MEMORY: u64 = 16 << 20;
/// Default memory in bytes, if the system does not say how much is free.
const DEFAULT_MEMORY: u64 = 1 << 30;

/// Identifiers of the options of a site that a running server takes over from a changed configuration file.
/// `root` is the folder.
pub const APPLIED: [&str; 18] = [
    "root",
    "hosts",
    "redirect_hosts",
    "strict",
    "max_files",
    "memory",
    "redirects",
    "headers",
    "media_types",
    "error_pages",
    "basic_auth",
    "basic_auth_realm",
    "etag_key",
    "clean_urls",
    "listings",
    "immutable",
    "security_headers",
    "hidden_files",
];

/// Identifiers of the options by which a site is the same in two versions of a configuration file: in each
/// list all of them.
pub const SAME_SITE: [&[&str]; 3] = [
    &["port", "web_addresses", "root", "hosts"],
    &["port", "web_addresses", "hosts"],
    &["port", "web_addresses", "root"],
];

/// The values that hold for a site without an option, if the command line does not define them.
pub const SITE_DEFAULTS: [(&str, &str); 1] = [("port", "80")];

/// The options for loading a folder and sending its files, for use with `#[command(flatten)]`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = SITE)]
pub struct SiteOptions {
    /// How packets are sent.
    #[arg(long, value_enum, default_value_t = ModeArg::Auto)]
    mode: ModeArg,

    /// Refuse to start if an entry of the folder cannot be served, or if something else is probably a
    /// mistake. The first 100 mistakes are named. Without this option such entries are left out, with a
    /// warning for each of the first 100.
    #[arg(long)]
    strict: bool,

    /// Maximum number of files to load. Further files are left out.
    #[arg(long, value_name = "N", default_value_t = Limits::default().files,
          value_parser = number(0..=u64::MAX))]
    max_files: u64,

    /// Memory for the files, in bytes or with a unit, such as `2GB`. Files that do not fit, the longest
    /// ones first, are read when clients ask for them. The default is half of the memory that is free,
    /// shared by all sites.
    #[arg(long, value_name = "SIZE", value_parser = size(MIN_MEMORY..=1_u64 << 50))]
    memory: Option<u64>,

    /// Memory that packets may take for good if `--mode auto` keeps them in the port's memory, in bytes or
    /// with a unit, such as `1GB`. With 0, packets are always copied. The default is an eighth of
    /// `--memory`, and at most 256 MB. The system cannot swap this memory out.
    #[arg(long, value_name = "SIZE", value_parser = size(0..=1_u64 << 50))]
    pinned: Option<u64>,

    /// Host for which the site is served, such as `example.org` or `*.example.org`. Repeat it for each.
    /// Sites for different hosts can share a port and addresses. Without this option, the site is
    /// served for all hosts that no other site has.
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<HostName>,

    /// Redirect all requests for another host to this site: `HOST=URL`, such as
    /// `www.example.org=https://example.org`. `https://*` leads to HTTPS on the same host, as in
    /// `*.example.org=https://*`. Path and query stay. Repeat it for each.
    #[arg(long = "redirect-host", value_name = "HOST=URL", value_parser = by_word::<RedirectHost, _>)]
    redirect_hosts: Vec<RedirectHost>,

    /// Address of the server on which the site is served. Repeat it for each. Without this option, the
    /// site is served on all addresses.
    #[arg(long = "web-address", value_name = "IP", value_parser = host_address)]
    web_addresses: Vec<IpAddr>,

    #[command(flatten)]
    rules: RuleArgs,

    #[command(flatten)]
    log: AccessLogArgs,
}

/// The options of a site.
#[derive(Clone, Copy, Debug)]
pub struct SiteSource<'o> {
    /// The number of the site among those of the configuration file, from 0. It is for messages.
    pub number: usize,
    /// The folder with the site's files.
    pub folder: &'o Path,
    /// The site's port, or `None` for the default one.
    pub port: Option<u16>,
    /// The options for loading the folder and sending its files.
    pub options: &'o SiteOptions,
    /// The options for connections.
    pub connections: &'o ConnectionArgs,
}

impl SiteSource<'_> {
    /// Loads the folder for a program that serves it with these options. `sites` is the number of all
    /// sites, which share the memory.
    ///
    /// # Errors
    /// [`NotLoaded`], a message for the operator, if the folder cannot be served, or if the options
    /// contradict each other.
    pub(crate) fn load(&self, sites: usize) -> Result<Sandstorm, NotLoaded> {
        match self.contradictions().next() {
            Some(error) => Err(error),
            None => self.load_anyway(sites),
        }
    }

    /// Same as [`load`](Self::load), with the first of the options that contradict each other.
    fn load_anyway(&self, sites: usize) -> Result<Sandstorm, NotLoaded> {
        self.load_here(sites, &[])
            .map_err(|error| self.at_place(error))
    }

    /// Returns which options contradict each other.
    pub(crate) fn contradictions(&self) -> impl Iterator<Item = NotLoaded> {
        let all = self.options.contradictions().into_iter();
        all.map(|error| self.at_place(error))
    }

    /// Adds the place in the configuration file that an error is about, or else the site's place.
    fn at_place(&self, error: NotLoaded) -> NotLoaded {
        let of_option = self.options.rules.option_of(&error);
        let of_option = of_option.and_then(|(option, index)| self.place_of_nth(option, index));
        match of_option.or_else(|| self.place()) {
            Some(place) => error.at(self.number, place),
            None => error,
        }
    }

    /// The place of a value of an option in the configuration file.
    fn place_of_nth(&self, option: &str, index: usize) -> Option<String> {
        config::place_of_nth(self.number, option, index)
    }

    /// Same as [`load`](Self::load), without the place in messages, and without these files with rules.
    fn load_here(&self, sites: usize, without: &[PathBuf]) -> Result<Sandstorm, NotLoaded> {
        let make: MakeSiteOnly = |_, _| Ok(SiteOnly);
        let Self { options, .. } = self;
        let memory = options.memory(sites);
        let coder = options.rules.coder(memory.kept())?;
        let source = (self.folder, memory, without);
        let sandstorm = options.load_with(source, self.connections, &[], coder, make)?;
        let sandstorm = sandstorm.with_reloads(options.limits(memory), options.strict);
        let port = self.port_options();
        Ok(sandstorm.with_source(self.number, options.memory, port))
    }

    /// What the sites of a port must have in common.
    pub(crate) fn port_options(&self) -> PortOptions {
        PortOptions {
            port: self.port(),
            addresses: self.addresses(),
            mode: self.options.mode,
            connections: self.connections.clone(),
        }
    }

    /// Returns an error for each address of the site that is not one of the server's `own`.
    pub(crate) fn missing_addresses(&self, own: &[IpAddr]) -> impl Iterator<Item = NotLoaded> {
        let name = self.name();
        let missing: Vec<_> = NotOfServer::among(&name, &self.addresses(), own).collect();
        missing.into_iter().map(|error| {
            let mut addresses = self.options.web_addresses.iter();
            let index = addresses.position(|one| *one == error.address);
            let place = index.and_then(|index| self.place_of_nth("web_addresses", index));
            let error = NotLoaded::Address(error);
            match place.or_else(|| self.place()) {
                Some(place) => error.at(self.number, place),
                None => error,
            }
        })
    }

    /// The port on which the site is served.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(SiteOnly::PORT)
    }

    /// Returns how the folder of a new site is loaded with these options.
    ///
    /// # Errors
    /// If the options are wrong, or name what this thread may not read.
    pub(crate) fn first(&self, sites: usize) -> Result<Loading, StartError> {
        let Self {
            folder, options, ..
        } = *self;
        let memory = options.memory(sites);
        let coder = options.rules.coder(memory.kept());
        let coder = coder.map_err(|error| self.at_place(error))?;
        let settings = Settings {
            memory: Some(memory),
            coder: coder.map(Arc::new),
            follow_links: options.rules.follow_links(),
            ..Settings::default()
        };
        let before = Loading {
            folder: folder.to_owned(),
            limits: options.limits(memory),
            strict: options.strict,
            memory: options.memory,
            settings,
        };
        self.next(&before, sites)
    }

    /// Returns how the folder is loaded with these options, after it was loaded like `before`. What needs
    /// another start stays.
    ///
    /// # Errors
    /// If the options are wrong, or name what this thread may not read.
    pub(crate) fn next(&self, before: &Loading, sites: usize) -> Result<Loading, StartError> {
        let Self {
            folder, options, ..
        } = *self;
        config::check_allowed(folder, ("root", &self.name()))?;
        if !folder.is_dir() {
            let path = folder.to_owned();
            return Err(self.at_place(LoadError::Missing { path }.into()).into());
        }
        let known = before.settings.memory;
        let known = known.filter(|_| options.memory == before.memory);
        let memory = known.unwrap_or_else(|| {
            let pinned = before.settings.memory.map(MemoryBudget::pinned);
            let memory = options.memory(sites);
            memory.with_pinned(pinned.unwrap_or(memory.pinned()))
        });
        let settings = options.rules.settings(Fields::new(), None);
        let settings = Settings {
            memory: Some(memory),
            coder: before.settings.coder.clone(),
            follow_links: before.settings.follow_links,
            ..settings.map_err(NotLoaded::from)?
        };
        for realm in &settings.realms {
            let value = format!("{}={}", realm.path, realm.file.display());
            config::check_allowed(&realm.file, ("basic_auth", &value))?;
        }
        if let Some(file) = &settings.tag_key {
            config::check_allowed(file, ("etag_key", &file.display().to_string()))?;
        }
        Ok(Loading {
            folder: folder.to_owned(),
            limits: options.limits(memory),
            strict: options.strict,
            memory: options.memory,
            settings,
        })
    }

    /// Returns the files that the options name, also if they are wrong. The server's user should be able to read
    /// them.
    pub(crate) fn files(&self) -> ContentFiles {
        ContentFiles {
            served: Vec::new(),
            to_reload: self.options.rules.secret_files().collect(),
        }
    }

    /// Loads the folder, if that is possible without what is wrong with the files that its options name.
    /// Also returns all that is wrong.
    pub(crate) fn check(&self, sites: usize) -> (Option<Sandstorm>, Vec<NotLoaded>) {
        let mut options = self.options.clone();
        let mut wrong: Vec<_> = self.contradictions().collect();
        if self.is_wrong("basic_auth") {
            options.rules.leave_out_realm_texts();
        }
        // These are checked also if there is no folder.
        for error in options.rules.check_files() {
            if options.rules.leave_out(&error) {
                wrong.push(self.at_place(error));
            }
        }
        if self.is_wrong("root") {
            return (None, wrong);
        }
        let mut without = Vec::new();
        loop {
            let rest = SiteSource {
                number: self.number,
                folder: self.folder,
                port: self.port,
                options: &options,
                connections: self.connections,
            };
            let error = match rest.load_here(sites, &without) {
                Ok(sandstorm) => return (Some(sandstorm), wrong),
                Err(error) => error,
            };
            let is_left_out = if let NotLoaded::Load(LoadError::Rules { path, .. }) = &error {
                without.push(path.clone());
                true
            } else {
                options.rules.leave_out(&error)
            };
            // Places are those of all options.
            wrong.push(self.at_place(error));
            if !is_left_out {
                return (None, wrong);
            }
        }
    }

    /// Whether the configuration file has a wrong value of this option, so that the value is not known.
    pub(crate) fn is_wrong(&self, option: &str) -> bool {
        config::is_wrong(self.number, option)
    }

    /// Whether the port and the addresses are known.
    pub(crate) fn has_known_place(&self) -> bool {
        !self.is_wrong("port") && !self.is_wrong("web_addresses")
    }

    /// Whether the site is only for certain hosts. They may be wrong.
    pub(crate) fn is_for_hosts(&self) -> bool {
        !self.hosts().is_empty() || self.is_wrong("hosts")
    }

    /// Names what sets the site's port: the key with its place, `option`, or the site if it has the default
    /// port.
    pub(crate) fn option_of_port(&self, option: &str) -> String {
        match (self.port, self.place()) {
            (None, Some(_)) => self.with_place(),
            _ => config::with_places_of(self.number, option),
        }
    }

    /// The name of the site: its folder.
    pub(crate) fn name(&self) -> String {
        self.folder.display().to_string()
    }

    /// The options of the site's access log.
    pub(crate) fn log(&self) -> &AccessLogArgs {
        self.options.log()
    }

    /// The folder in which compressed forms are kept, if they are.
    pub(crate) fn store(&self) -> Option<&Path> {
        self.options.rules.store()
    }

    /// The name of the site, and the line of the configuration file that has it.
    pub(crate) fn with_place(&self) -> String {
        let name = self.name();
        match self.place() {
            Some(place) => format!("{name} ({place})"),
            None => name,
        }
    }

    /// The name of the site, and the line of the configuration file that has one of its hosts.
    pub(crate) fn with_place_of(&self, host: &HostName) -> String {
        let index = self.hosts().iter().position(|one| one == host);
        let place = index.and_then(|index| self.place_of_nth("hosts", index));
        let place = place.or_else(|| {
            let mut redirects = self.redirect_hosts().iter();
            let index = redirects.position(|one| one.host() == host)?;
            self.place_of_nth("redirect_hosts", index)
        });
        match place {
            Some(place) => format!("{} ({place})", self.name()),
            None => self.with_place(),
        }
    }

    /// The line of the configuration file that has the folder.
    fn place(&self) -> Option<String> {
        config::place_from(self.number, "root", self.folder.to_str()?)
    }

    /// The hosts for which the site is served.
    pub(crate) fn hosts(&self) -> &[HostName] {
        &self.options.hosts
    }

    /// The hosts whose requests are sent elsewhere.
    pub(crate) fn redirect_hosts(&self) -> &[RedirectHost] {
        &self.options.redirect_hosts
    }

    /// All hosts that the options name.
    pub(crate) fn all_hosts(&self) -> impl Iterator<Item = &HostName> {
        let redirected = self.redirect_hosts().iter().map(RedirectHost::host);
        self.hosts().iter().chain(redirected)
    }

    /// The addresses on which the site is served, or none for all.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.options.addresses()
    }

    /// Whether the connections of both sites have the same limits, as far as they are known.
    pub(crate) fn has_limits_of(&self, other: &Self) -> bool {
        let are_wrong = |site: &Self| ConnectionArgs::are_wrong(site.number);
        self.connections == other.connections || are_wrong(self) || are_wrong(other)
    }

    /// Whether the packets of both sites are sent in the same way, as far as it is known.
    pub(crate) fn has_mode_of(&self, other: &Self) -> bool {
        let is_wrong = |site: &Self| site.is_wrong("mode");
        self.options.mode == other.options.mode || is_wrong(self) || is_wrong(other)
    }
}

impl SiteOptions {
    /// The options of the site's access log.
    pub(crate) fn log(&self) -> &AccessLogArgs {
        &self.log
    }

    /// The addresses on which the site is served, or none for all.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.web_addresses.clone()
    }

    /// Returns which options contradict each other.
    pub(crate) fn contradictions(&self) -> Vec<NotLoaded> {
        let hosts = self.hosts.iter().enumerate().map(|(index, host)| {
            let option = GivenOption {
                name: "host",
                value: host.to_string(),
                id: "hosts",
                index,
            };
            (format!("host {host}"), option)
        });
        let redirects = self.redirect_hosts.iter().enumerate();
        let redirects = redirects.map(|(index, redirect)| {
            let option = GivenOption {
                name: "redirect-host",
                value: redirect.value(),
                id: "redirect_hosts",
                index,
            };
            (format!("host {}", redirect.host()), option)
        });
        let (mut known, mut found) = (HashMap::new(), Vec::new());
        for (key, option) in self.rules.keyed().chain(hosts).chain(redirects) {
            match known.entry(key) {
                Entry::Vacant(entry) => _ = entry.insert(option),
                Entry::Occupied(first) if *first.get() == option => {}
                Entry::Occupied(first) => found.push(NotLoaded::Contradiction {
                    options: Box::new([first.get().clone(), option]),
                }),
            }
        }
        found
    }

    fn limits(&self, memory: MemoryBudget) -> Limits {
        Limits {
            files: self.max_files,
            bytes: if CONFINES_EACH_THREAD {
                u64::MAX
            } else {
                memory.bytes()
            },
            ..Limits::default()
        }
    }

    /// The memory of one of `sites`.
    pub(crate) fn memory(&self, sites: usize) -> MemoryBudget {
        let share = || {
            let free = control::free_memory().unwrap_or(2 * DEFAULT_MEMORY);
            (free / 2 / sites.max(1) as u64).max(MIN_MEMORY)
        };
        let memory = MemoryBudget::new(self.memory.unwrap_or_else(share));
        let pinned = self.pinned.unwrap_or(memory.pinned());
        memory.with_pinned(pinned)
    }

    /// Loads a folder within its memory, without these files with rules, for a program with an application.
    /// All responses contain `fields`. `coder` makes compressed forms.
    pub(crate) fn load_with<A: App + Named, F>(
        &self,
        (folder, memory, without): (&Path, MemoryBudget, &[PathBuf]),
        connections: &ConnectionArgs,
        fields: &[(&str, &str)],
        coder: Option<Coder>,
        make: F,
    ) -> Result<Sandstorm<A, F>, NotLoaded>
    where
        F: Fn(&mut NewWorker<A::Message>, &mut Replies<'_>) -> Result<A, StartError> + Sync,
    {
        let fields = Fields::of_all(fields.iter().copied())?;
        let settings = Settings {
            memory: CONFINES_EACH_THREAD.then_some(memory),
            ..self.rules.settings(fields, coder)?
        };
        let site = load(
            folder,
            &self.limits(memory),
            self.strict,
            &settings,
            without,
        )?;
        let sandstorm = Sandstorm::with_app(site, folder, self.tcp(connections), make)
            .with_chosen_mode(self.mode == ModeArg::Auto);
        Ok(sandstorm.with_request_timeout(connections.request_timeout(REQUEST_TIMEOUT)))
    }

    /// The TCP settings from the command line, apart from the port.
    fn tcp(&self, connections: &ConnectionArgs) -> Config {
        connections.config(Config {
            mode: self.mode.into(),
            ..Config::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::testing::Cli;

    #[test]
    fn modes_have_the_names_that_are_documented() {
        let mode =
            |line: &str| Ok::<_, clap::Error>(Cli::try_parse_from(line.split(' '))?.site.mode);
        assert_eq!(mode("sandstorm").unwrap(), ModeArg::Auto);
        assert_eq!(mode("sandstorm --mode auto").unwrap(), ModeArg::Auto);
        assert_eq!(mode("sandstorm --mode memcopy").unwrap(), ModeArg::MemCopy);
        assert_eq!(mode("sandstorm --mode pre-copy").unwrap(), ModeArg::PreCopy);
        assert!(mode("sandstorm --mode turnaround").is_err());
    }

    #[test]
    fn without_options_the_stack_has_its_defaults() {
        let Cli { site, connections } = Cli::try_parse_from(["sandstorm"]).unwrap();
        assert_eq!(site.tcp(&connections), Config::default());
    }
}
