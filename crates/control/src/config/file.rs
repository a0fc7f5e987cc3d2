//! Reads a configuration file into options.

mod known_keys;
mod reader;
mod settings;
mod text;
mod words;

use std::path::{Path, PathBuf};

use toml::de::DeTable;

use self::reader::Reader;
use self::text::text_of;
use super::position::Position;
use super::problem::Problems;
use crate::file_version::FileVersion;

pub(super) use self::reader::Purpose;
pub(super) use self::settings::Setting;

/// The options of a file that concern one command.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) path: PathBuf,
    /// The file's version before it was read, if it could be found out.
    pub(super) version: Option<FileVersion>,
    pub(super) settings: Vec<Setting>,
    /// The settings of each further `[[web]]`.
    pub(super) more: Vec<Vec<Setting>>,
    /// The name of each section in the file, and the place of its header.
    pub(super) headers: Vec<(&'static str, Position)>,
    /// Where the file ends.
    pub(super) end: Position,
}

impl File {
    /// Returns a file without what the first site has for itself, if there is something.
    pub(super) fn for_all_sites(&self) -> Option<Self> {
        let all = self.settings.iter().filter(|one| !one.is_own);
        let settings: Vec<_> = all.cloned().collect();
        (settings.len() < self.settings.len()).then(|| Self {
            path: self.path.clone(),
            version: self.version,
            settings,
            ..Self::default()
        })
    }

    /// Returns a file for each further table: with this table in the place of the first one, and the
    /// same settings in all other sections.
    pub(super) fn with_further_tables(&mut self) -> Vec<Self> {
        let tables = std::mem::take(&mut self.more);
        let file = |table: Vec<Setting>| {
            let others = self.settings.iter().filter(|one| !one.section.is_site);
            Self {
                path: self.path.clone(),
                version: self.version,
                settings: with_own(others.cloned().chain(table).collect()),
                ..Self::default()
            }
        };
        let further = tables.into_iter().map(file).collect();
        self.settings = with_own(std::mem::take(&mut self.settings));
        further
    }
}

/// Leaves out the settings for all sites that the site has for itself.
fn with_own(mut settings: Vec<Setting>) -> Vec<Setting> {
    let own = settings.iter().filter(|one| one.is_own);
    let own: Vec<_> = own.map(|one| one.id.clone()).collect();
    settings.retain(|one| one.is_own || !own.contains(&one.id));
    settings
}

/// Reads a file for a command. What belongs to other programs is skipped, so that programs can share a file.
///
/// Returns what is right in the file, and a message for the operator with a line for each error.
///
/// # Errors
/// A message for the operator, if the file cannot be read or is not valid TOML.
pub(super) fn read(path: &Path, purpose: Purpose<'_>) -> Result<(File, Option<String>), String> {
    let version = FileVersion::at(path).ok();
    let text = text_of(path)?;
    let told = |problems: Problems| problems.told(path, &text);
    let (file, problems) = parse(&text, purpose).map_err(told)?;
    let file = File {
        path: path.to_owned(),
        version,
        ..file
    };
    Ok((file, (!problems.is_empty()).then(|| told(problems))))
}

/// Returns what a file's text says, without its path, and everything that is wrong with it.
///
/// # Errors
/// Everything that is wrong with its form, if it is not valid TOML. A key that stands there twice does not count:
/// the rest of the file is known.
fn parse(text: &str, purpose: Purpose<'_>) -> Result<(File, Problems), Problems> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut problems = Problems::new(purpose.max_problems);
    let mut twice = Vec::new();
    for error in &errors {
        let span = error.span().unwrap_or_default();
        if error.message() == "duplicate key" {
            let name = text.get(span.clone()).unwrap_or_default();
            let name = name.trim_matches(['"', '\'']);
            problems.add(span.clone(), format!("{name} stands here twice"));
            twice.push((span, name));
        } else {
            problems.add(span, error.message());
        }
    }
    if twice.len() < errors.len() {
        return Err(problems);
    }
    let reader = Reader::new(text, purpose, problems);
    let found = reader.read(table.get_ref(), &twice);
    let file = File {
        settings: found.settings,
        more: found.more,
        headers: found.headers,
        end: found.end,
        ..File::default()
    };
    Ok((file, found.problems))
}
