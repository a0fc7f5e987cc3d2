//! Which options of this process come from its configuration file, for messages after parsing.

use std::path::PathBuf;
use std::sync::OnceLock;

use super::keys::keys;
use super::merge::Origins;

/// What messages say of the file that this process has read.
static READ: OnceLock<Read> = OnceLock::new();

#[derive(Debug, Default)]
struct Read {
    file: PathBuf,
    places: Places,
    /// The options with values as words of a command line, and their lines.
    words: Vec<(String, usize)>,
}

/// The options that come from a file: `--OPTION`, and the key with its places.
#[derive(Debug, Default)]
struct Places(Vec<(String, String)>);

/// Keeps the origins of this process's options, those of each site. Only the first call has an
/// effect.
pub(super) fn remember<'o>(sites: impl Iterator<Item = &'o Origins>) {
    let sites: Vec<_> = sites.collect();
    let file = &sites[0].file.path;
    if file.as_os_str().is_empty() {
        return;
    }
    // A process parses its command line once.
    let _ = READ.set(Read {
        file: file.clone(),
        places: places(&sites),
        words: words(&sites),
    });
}

/// Returns the words that come from the file, with their lines.
fn words(sites: &[&Origins]) -> Vec<(String, usize)> {
    let mut all = Vec::new();
    for origins in sites {
        let settings = origins.file.settings.iter();
        let settings = settings.filter(|setting| !origins.is_overridden(&setting.id));
        let words = settings.flat_map(|one| one.words.iter().map(|word| (word.clone(), one.line)));
        all.extend(words);
    }
    all
}

/// Returns the options that come from the file. A key that several sites have has several places.
fn places(sites: &[&Origins]) -> Places {
    let mut places: Vec<(String, String, Vec<usize>)> = Vec::new();
    for origins in sites {
        let keys = keys(&origins.command);
        for setting in &origins.file.settings {
            let key = keys.iter().find(|key| key.arg.get_id() == &*setting.id);
            let Some((key, long)) = key.and_then(|key| Some((key, key.arg.get_long()?))) else {
                continue;
            };
            if origins.is_overridden(&setting.id) {
                continue;
            }
            let option = format!("--{long}");
            match places.iter_mut().find(|(known, ..)| *known == option) {
                Some((.., lines)) if lines.contains(&setting.line) => {}
                Some((.., lines)) => lines.push(setting.line),
                None => places.push((option, key.name(), vec![setting.line])),
            }
        }
    }
    let file = sites[0].file.path.display().to_string();
    let file = file.escape_debug();
    let place = |(option, key, lines): (_, String, Vec<usize>)| {
        let lines: Vec<_> = lines.iter().map(|line| format!("{file}:{line}")).collect();
        (option, format!("{key} ({})", lines.join(", ")))
    };
    Places(places.into_iter().map(place).collect())
}

/// Returns the configuration file of this process, if it has one.
pub(crate) fn file() -> Option<&'static PathBuf> {
    READ.get().map(|read| &read.file)
}

/// Returns the place in this process's configuration file where a key has this value, such as
/// `storm.toml:4`. The first such place counts.
pub fn place_of(value: &str) -> Option<String> {
    let read = READ.get()?;
    place_in(&read.words, value).map(|line| format!("{}:{line}", read.file.display()))
}

fn place_in(words: &[(String, usize)], value: &str) -> Option<usize> {
    let is_it = |word: &str| {
        let of_option = word.split_once('=').filter(|_| word.starts_with("--"));
        of_option.map_or(word, |(_, value)| value) == value
    };
    words
        .iter()
        .find(|(word, _)| is_it(word))
        .map(|(_, line)| *line)
}

/// Names the key and its place instead of each option that comes from the file. The message is that
/// of a check that runs after parsing, and knows only options.
pub fn with_places(message: &str) -> String {
    match READ.get() {
        Some(read) => read.places.name_in(message),
        None => message.to_owned(),
    }
}

impl Places {
    /// Replaces the options in a message.
    pub(super) fn name_in(&self, message: &str) -> String {
        let mut text = String::with_capacity(message.len());
        let mut rest = message;
        while let Some(at) = rest.find("--") {
            let (before, option) = rest.split_at(at);
            let is_part = |c: char| c == '-' || c.is_ascii_lowercase() || c.is_ascii_digit();
            let end = option.find(|c| !is_part(c)).unwrap_or(option.len());
            let (option, after) = option.split_at(end);
            let found = self.0.iter().find(|(name, _)| name == option);
            text += before;
            text += found.map_or(option, |(_, place)| place);
            rest = after;
        }
        text + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_with_its_line() {
        let words = [("--zone=a=b", 2), ("www", 4), ("--strict", 5)];
        let words = words.map(|(word, line)| (word.to_owned(), line));
        for (value, line) in [("a=b", Some(2)), ("www", Some(4)), ("b", None), ("w", None)] {
            assert_eq!(place_in(&words, value), line, "{value}");
        }
    }

    #[test]
    fn only_options_of_the_file_are_named_by_their_places() {
        let place = |option: &str, key: &str| (option.to_owned(), key.to_owned());
        let places = Places(vec![
            place("--port", "port (f:2)"),
            place("--dns-port", "port (f:5)"),
        ]);
        assert_eq!(
            places.name_in("web (--port) and dns (--dns-port): give --port, not --ports"),
            "web (port (f:2)) and dns (port (f:5)): give port (f:2), not --ports"
        );
        assert_eq!(places.name_in("a -- b --port"), "a -- b port (f:2)");
    }
}
