//! Which keys a command's configuration file has.

use std::any::TypeId;

use clap::{Arg, ArgAction, Command};

/// A section of the file, and the heading of its options in the command's help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: &'static str,
    heading: Option<&'static str>,
    /// Whether the section is an array of tables, such as `[[web]]`.
    pub(super) is_list: bool,
    /// Whether each of these tables is a site.
    pub(super) is_site: bool,
}

/// All sections, in the order in which files are printed.
pub(super) const SECTIONS: [Section; 10] = [
    section("network", Some("Network")),
    section("connections", Some("Connections")),
    section("privileges", Some("Privileges")),
    section("logs", Some("Logs")),
    section("metrics", Some("Metrics")),
    section("control", Some("Control")),
    section("diagnosis", Some("Diagnosis")),
    Section {
        is_site: true,
        ..list("web", "Web site")
    },
    list("dns", "Zones"),
    section("program", None),
];

const fn section(name: &'static str, heading: Option<&'static str>) -> Section {
    Section {
        name,
        heading,
        is_list: false,
        is_site: false,
    }
}

const fn list(name: &'static str, heading: &'static str) -> Section {
    Section {
        name,
        heading: Some(heading),
        is_list: true,
        is_site: false,
    }
}

impl Section {
    /// Returns the section with this name, if there is one.
    pub(super) fn named(name: &str) -> Option<Self> {
        SECTIONS.into_iter().find(|section| section.name == name)
    }

    /// Says how the section is written in a file.
    pub(super) fn right_form(&self) -> String {
        let brackets = if self.is_list { "double" } else { "single" };
        let header = self.header();
        format!(
            "write {header}, in {brackets} brackets, on a line of its own, and its keys below it"
        )
    }

    /// The section's header as it is written in a file.
    pub(super) fn header(&self) -> String {
        if self.is_list {
            format!("[[{}]]", self.name)
        } else {
            format!("[{}]", self.name)
        }
    }
}

/// Options without a key: those that make sense only on a command line.
const WITHOUT_KEY: [&str; 4] = ["help", "version", "config", "files"];

/// The section whose keys a site may have for itself.
const OF_SITES: &str = "connections";
/// Keys of other sections that a site may have for itself.
const MORE_OF_SITES: [&str; 2] = ["access_log", "access_log_format"];

/// Keys of the section `logs` that only one server has. All servers share the section.
const OF_ONE_SERVER: [&str; 6] = [
    "access-log",
    "access-log-format",
    "query-log",
    "query-log-format",
    "query-log-sample",
    "dnstap",
];

/// Whether a key that this server does not have is one of another server, for a file that both share.
pub(super) fn is_of_another(section: Section, name: &str) -> bool {
    section.name == "logs" && OF_ONE_SERVER.contains(&name)
}

/// An option of a command, as a key of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'c> {
    pub(super) section: Section,
    pub(super) arg: &'c Arg,
}

impl Key<'_> {
    /// The key's name in its section. It is the option's name in the program, without the section's
    /// name in front: the port of the section `dns` is the option `dns-port`.
    pub(super) fn name(&self) -> String {
        let id = self.arg.get_id().as_str().replace('_', "-");
        let prefix = format!("{}-", self.section.name);
        id.strip_prefix(&prefix).unwrap_or(&id).to_owned()
    }

    /// Whether the key may stand in a section: in its own, or also in that of a site.
    pub(super) fn is_in(&self, section: Section) -> bool {
        self.section == section || section.is_site && self.is_for_each_site()
    }

    /// Whether the key of another section may stand in that of a site too. There it holds only for
    /// this site.
    pub(super) fn is_for_each_site(&self) -> bool {
        self.section.name == OF_SITES || MORE_OF_SITES.contains(&self.arg.get_id().as_str())
    }

    /// Whether the key's value is a list.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.arg.get_action(), ArgAction::Append)
            || self
                .arg
                .get_num_args()
                .is_some_and(|range| range.max_values() > 1)
    }

    /// Whether the key's value is `true` or `false`.
    pub(super) fn is_flag(&self) -> bool {
        self.arg.get_value_parser().type_id() == TypeId::of::<bool>()
    }

    /// The option as words of a command line, with one value.
    pub(super) fn words(&self, value: &str) -> String {
        match self.arg.get_long() {
            Some(long) => format!("--{long}={value}"),
            // A path that begins like an option.
            None if value.starts_with('-') => format!("./{value}"),
            None => value.to_owned(),
        }
    }
}

/// Returns the keys of a command, in the order of its options.
pub(super) fn keys(command: &Command) -> Vec<Key<'_>> {
    let key = |arg| {
        Some(Key {
            section: section_of(arg),
            arg,
        })
    };
    let args = command.get_arguments();
    args.filter(|arg| !WITHOUT_KEY.contains(&arg.get_id().as_str()) && !arg.is_hide_set())
        .filter_map(key)
        .collect()
}

/// The section of an option. An option under a heading of the program's own belongs to `program`.
fn section_of(arg: &Arg) -> Section {
    let heading = arg.get_help_heading();
    let found = SECTIONS
        .into_iter()
        .find(|section| section.heading == heading);
    found.unwrap_or(SECTIONS[SECTIONS.len() - 1])
}
