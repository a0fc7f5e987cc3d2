//! Prints the options that hold.

use std::fmt::Write as _;

use super::example::is_text;
use super::file::Setting;
use super::keys::{Key, SECTIONS, keys};
use super::merge::Parsed;
use super::origin::Origins;
use super::value::{toml_text, toml_value};

/// Width of a key with its value, so that the origins stand in a column.
const WIDTH: usize = 40;

/// The defaults of a server that its command line does not define, because each server has others.
#[derive(Clone, Debug)]
pub struct OwnDefaults {
    server: &'static str,
    /// Identifiers of options, each with its default as a value in a file, or with a description of
    /// what holds without a value.
    values: Vec<(&'static str, Own)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Own {
    Value(String),
    Without(&'static str),
}

impl OwnDefaults {
    /// Starts a list for the server with this name.
    #[must_use]
    pub fn of(server: &'static str) -> Self {
        let values = Vec::new();
        Self { server, values }
    }

    /// Adds the default of the option with this identifier.
    #[must_use]
    pub fn with(mut self, id: &'static str, value: &impl ToString) -> Self {
        self.values.push((id, Own::Value(value.to_string())));
        self
    }

    /// Adds a description of what holds if the option with this identifier has no value.
    #[must_use]
    pub fn without(mut self, id: &'static str, what: &'static str) -> Self {
        self.values.push((id, Own::Without(what)));
        self
    }
}

/// What holds without the options that belong to all servers.
const WITHOUT: [(&str, &str); 10] = [
    ("addresses", "the addresses of the interface"),
    ("workers", "one for each queue"),
    (
        "user",
        "the program's user or nobody, if root starts the server",
    ),
    ("web_addresses", "all addresses of the server"),
    ("access_log", "no log"),
    ("query_log", "no log"),
    ("dnstap", "no dnstap"),
    ("metrics_listen", "no metrics"),
    ("pcap", "no capture"),
    ("fault", "no faults"),
];

/// Returns the options of a parsed command as a configuration file. The comment behind each value
/// says where it comes from: the default, a line of the file, or the command line. `own` has the
/// defaults of each server in the program.
pub fn show<T>(parsed: &Parsed<T>, own: &[OwnDefaults]) -> String {
    let keys = keys(&parsed.origins.command);
    let mut text = String::new();
    for section in SECTIONS {
        let in_section = |key: &&Key<'_>| key.is_in(section);
        let keys: Vec<_> = keys.iter().filter(in_section).collect();
        if keys.is_empty() {
            continue;
        }
        let more = parsed.more.iter().filter(|_| section.is_site);
        for site in std::iter::once(parsed).chain(more) {
            let gap = if text.is_empty() { "" } else { "\n" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{gap}{}", section.header());
            for key in &keys {
                let shown = if section.is_site {
                    let is_here = key.section == section || site.origins.is_of_site(key);
                    is_here.then(|| site.origins.shown(key, own))
                } else {
                    parsed.shown_for_all(key, own)
                };
                if let Some((setting, origin)) = shown {
                    let _ = writeln!(text, "{setting:WIDTH$} # {origin}");
                }
            }
        }
    }
    text
}

/// Returns the value of a key that is not set, and where it comes from. There is no value if there
/// is no default, or if two servers have different ones.
fn own_default(key: &Key<'_>, own: &[OwnDefaults]) -> (Option<String>, String) {
    let id = key.arg.get_id().as_str();
    let found: Vec<_> = own
        .iter()
        .flat_map(|one| {
            one.values
                .iter()
                .map(|(of, value)| (one.server, *of, value))
        })
        .filter(|(_, of, _)| *of == id)
        .collect();
    match &found[..] {
        [(_, _, first), rest @ ..] if rest.iter().all(|(_, _, other)| other == first) => {
            match first {
                Own::Value(value) => (Some(toml_value(value)), "default".to_owned()),
                Own::Without(what) => (None, format!("not set: {what}")),
            }
        }
        [] => {
            let known = WITHOUT.iter().find(|(of, _)| *of == id);
            let what = known.map_or("the program's default", |(_, what)| what);
            (None, format!("not set: {what}"))
        }
        several => {
            let each = several.iter().map(|(server, _, value)| match value {
                Own::Value(value) => format!("{} in {server}", toml_value(value)),
                Own::Without(what) => format!("{what} in {server}"),
            });
            let each: Vec<_> = each.collect();
            (None, format!("defaults: {}", each.join(", ")))
        }
    }
}

impl<T> Parsed<T> {
    /// A key as in [`Origins::shown`], for the sites that do not have it for themselves. Returns `None`
    /// if all of them have.
    fn shown_for_all(&self, key: &Key<'_>, own: &[OwnDefaults]) -> Option<(String, String)> {
        let site = self.sites().find(|site| !site.origins.is_of_site(key))?;
        Some(site.origins.shown(key, own))
    }
}

impl Origins {
    /// Whether a site has the key of another section for itself.
    pub(super) fn is_of_site(&self, key: &Key<'_>) -> bool {
        let id = key.arg.get_id();
        let is_it = |one: &Setting| one.is_own && one.id == id.as_str();
        !self.is_given(id.as_str()) && self.file.settings.iter().any(is_it)
    }

    /// A key as it is written in a file, and where its value comes from.
    fn shown(&self, key: &Key<'_>, own: &[OwnDefaults]) -> (String, String) {
        let name = key.name();
        match (self.value(key), own_default(key, own)) {
            (Some(value), _) => (format!("{name} = {value}"), self.origin(key)),
            (None, (Some(value), origin)) => (format!("{name} = {value}"), origin),
            (None, (None, origin)) => (format!("#{name} ="), origin),
        }
    }

    /// The key's value in TOML, or `None` if it has none.
    fn value(&self, key: &Key<'_>) -> Option<String> {
        let id = key.arg.get_id().as_str();
        if key.is_flag() {
            return Some(self.matches.get_flag(id).to_string());
        }
        let in_toml = if is_text(key) { toml_text } else { toml_value };
        let values = self.matches.get_raw(id)?;
        let texts: Vec<_> = values
            .map(|value| in_toml(&value.to_string_lossy()))
            .collect();
        Some(match &texts[..] {
            [one] if !key.is_list() => one.clone(),
            _ => format!("[{}]", texts.join(", ")),
        })
    }

    fn origin(&self, key: &Key<'_>) -> String {
        let id = key.arg.get_id().as_str();
        if self.is_given(id) {
            return "command line".to_owned();
        }
        let settings = self.file.settings.iter();
        if let Some(setting) = settings.rev().find(|setting| setting.id == id) {
            // A line break in the name must not end the comment.
            let file = self.file.path.display().to_string();
            return format!("{}:{}", file.escape_debug(), setting.position);
        }
        "default".to_owned()
    }
}
