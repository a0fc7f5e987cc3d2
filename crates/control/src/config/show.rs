//! Prints the options that hold.

use std::fmt::Write as _;

use super::keys::{Key, SECTIONS, keys};
use super::merge::{Origins, Parsed};

/// Width of a key with its value, so that the origins stand in a column.
const WIDTH: usize = 40;

/// Returns the options of a parsed command as a configuration file. The comment behind each value
/// says where it comes from: the default, a line of the file, or the command line.
pub fn show<T>(parsed: &Parsed<T>) -> String {
    let origins = &parsed.origins;
    let keys = keys(&origins.command);
    let mut text = String::new();
    for section in SECTIONS {
        let keys: Vec<_> = keys.iter().filter(|key| key.section == section).collect();
        if keys.is_empty() {
            continue;
        }
        let gap = if text.is_empty() { "" } else { "\n" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{gap}{}", section.header());
        for key in keys {
            let setting = match origins.value(key) {
                Some(value) => format!("{} = {value}", key.name()),
                None => format!("#{} =", key.name()),
            };
            let _ = writeln!(text, "{setting:WIDTH$} # {}", origins.origin(key));
        }
    }
    text
}

impl Origins {
    /// The key's value in TOML, or `None` if it has none.
    fn value(&self, key: &Key<'_>) -> Option<String> {
        let id = key.arg.get_id().as_str();
        if id == "sandbox" && self.is_given("no_sandbox") {
            return Some("\"off\"".to_owned());
        }
        if key.is_flag() {
            return Some(self.matches.get_flag(id).to_string());
        }
        let values = self.matches.get_raw(id)?;
        let texts: Vec<_> = values
            .map(|value| toml_value(&value.to_string_lossy()))
            .collect();
        Some(match &texts[..] {
            [one] if !key.is_list() => one.clone(),
            _ => format!("[{}]", texts.join(", ")),
        })
    }

    fn origin(&self, key: &Key<'_>) -> String {
        let id = key.arg.get_id().as_str();
        if self.is_given(id) || id == "sandbox" && self.is_given("no_sandbox") {
            return "command line".to_owned();
        }
        let settings = self.file.settings.iter();
        if let Some(setting) = settings.rev().find(|setting| setting.id == id) {
            // A line break in the name must not end the comment.
            let file = self.file.path.display().to_string();
            return format!("{}:{}", file.escape_debug(), setting.line);
        }
        match self.matches.value_source(id) {
            Some(_) => "default".to_owned(),
            None => "not set: the program's default".to_owned(),
        }
    }

    fn is_given(&self, id: &str) -> bool {
        self.given.iter().any(|given| given == id)
    }
}

/// Returns a value in TOML: a number as it is, and any other text in quotes.
pub(super) fn toml_value(text: &str) -> String {
    let is_number = text == "0" || !text.starts_with(['0', '+']) && text.parse::<u64>().is_ok();
    if is_number {
        text.to_owned()
    } else {
        toml::Value::String(text.to_owned()).to_string()
    }
}
