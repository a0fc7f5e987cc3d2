//! Combines a command line with the file that it names.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, Command, CommandFactory, FromArgMatches};

use super::command::prepared;
use super::file::{self, File};
use super::keys::{Key, keys};
use super::origin::{self, Origins};
use crate::log::tell;

/// Maximum number of errors in a file that a server names before it ends, or that a reload names. A command
/// `check` names all.
const MAX_PROBLEMS: usize = 100;

/// A parsed command line, with the origin of each value.
#[derive(Debug)]
pub struct Parsed<T> {
    /// The command line, as `T` defines it.
    pub cli: T,
    /// The same for each further `[[web]]` of the file: with its keys in the place of the first one's.
    /// Only [`parse_sites`] reads several.
    pub more: Vec<Self>,
    /// The same without what the first `[[web]]` has for itself, such as its limits, if there is
    /// something.
    shared: Option<(T, Arc<Origins>)>,
    pub(super) origins: Arc<Origins>,
    pub(super) line: Arc<Line>,
}

impl<T> Parsed<T> {
    /// Returns what the command line and the file say without the keys that a `[[web]]` has for itself,
    /// although they belong to another section. They do not concern other servers of the process.
    pub fn shared(&self) -> &T {
        self.shared.as_ref().map_or(&self.cli, |(shared, _)| shared)
    }

    /// Returns the origins of what [`shared`](Self::shared) returns.
    pub(super) fn shared_origins(&self) -> &Arc<Origins> {
        let shared = self.shared.as_ref();
        shared.map_or(&self.origins, |(_, origins)| origins)
    }

    /// Returns the first site, or what there is without sites, and all further sites.
    pub(super) fn sites(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.more)
    }

    /// Returns what `of` takes from the command line for each further `[[web]]`.
    pub fn further<'a, A>(&'a self, of: impl Fn(&'a T) -> Option<&'a A>) -> Vec<&'a A> {
        let more = self.more.iter();
        more.filter_map(|site| of(&site.cli)).collect()
    }
}

/// Why there is no [`Parsed`].
#[derive(Debug)]
pub(super) enum Wrong {
    CommandLine(clap::Error),
    /// One line for each error in the file.
    File(String),
    Both(String, clap::Error),
}

impl Wrong {
    /// Adds the errors in the file, of which this error may be a consequence. They come first.
    fn after(self, mistakes: String) -> Self {
        match self {
            // A request for help.
            Self::CommandLine(error) if !error.use_stderr() => Self::CommandLine(error),
            Self::CommandLine(error) if error.kind() != ErrorKind::MissingRequiredArgument => {
                Self::Both(mistakes, error)
            }
            Self::CommandLine(_) => Self::File(mistakes),
            Self::File(message) => Self::File(format!("{mistakes}\n{message}")),
            Self::Both(message, error) => Self::Both(format!("{mistakes}\n{message}"), error),
        }
    }
}

/// Parses the command line of this process for the `command` of `T`. If it contains
/// [`--config`](super::ConfigArgs), the file's keys count as options, unless the command line has
/// them too.
///
/// Ends the process if the command line or the file is wrong, or if the command line asks for help.
/// The status is 2 for an error, or 1 if the command is `check` and the file is wrong.
pub fn parse<T: CommandFactory + FromArgMatches>(command: Command) -> Parsed<T> {
    parse_process(command, false, false)
}

/// Same as [`parse`], for a program whose command `check` goes on with what is right in a wrong file. It
/// must fail if [`file_is_wrong`](super::file_is_wrong), as [`print_check`](super::print_check) does.
pub fn parse_to_check<T: CommandFactory + FromArgMatches>(command: Command) -> Parsed<T> {
    parse_process(command, false, true)
}

/// Same as [`parse_to_check`], for a program that can serve several sites: `[[web]]` may stand several
/// times in the file.
pub fn parse_sites<T: CommandFactory + FromArgMatches>(command: Command) -> Parsed<T> {
    parse_process(command, true, true)
}

fn parse_process<T: FromArgMatches>(
    command: Command,
    has_sites: bool,
    checks_rest: bool,
) -> Parsed<T> {
    let name = command.get_name().to_owned();
    let say = |message| {
        tell(format_args!(
            "{name}: the configuration is wrong\n{message}"
        ));
    };
    let line = Arc::new(Line::new(command, std::env::args_os(), has_sites));
    let is_check = line.is_check();
    let parsed = line.parse().and_then(|(parsed, mistakes)| match mistakes {
        Some(message) if !(is_check && checks_rest) => Err(Wrong::File(message)),
        mistakes => Ok((parsed, mistakes)),
    });
    let (parsed, mistakes) = parsed.unwrap_or_else(|wrong| match wrong {
        Wrong::CommandLine(error) => line.exit(error),
        Wrong::Both(message, error) => {
            say(message);
            line.exit(error)
        }
        Wrong::File(message) => {
            say(message);
            std::process::exit(if is_check { 1 } else { 2 })
        }
    });
    origin::remember(
        parsed.sites().map(|site| &*site.origins),
        mistakes.is_some(),
    );
    // What is right in the file can be checked.
    mistakes.into_iter().for_each(say);
    parsed
}

/// A command line, which can be parsed again when its file has changed.
#[derive(Debug)]
pub(super) struct Line {
    command: Command,
    words: Vec<OsString>,
    has_sites: bool,
}

impl Line {
    fn new(command: Command, words: impl IntoIterator<Item = OsString>, has_sites: bool) -> Self {
        let (command, words) = (prepared(command), words.into_iter().collect());
        Self {
            words: with_joined_numbers(&command, words),
            command,
            has_sites,
        }
    }

    /// Whether the command is `check`.
    fn is_check(&self) -> bool {
        self.words.get(1).is_some_and(|word| word == "check")
    }

    /// Ends the process. Names each wrong value of the line, of which `first` is about the first one.
    fn exit(&self, first: clap::Error) -> ! {
        let (before, last) = self.wrong_values(first);
        before.into_iter().for_each(tell);
        last.exit()
    }

    /// Returns the messages of all errors about values except the last one, and the last error itself.
    /// Because clap stops at an error, the next one is found without the wrong values before it.
    fn wrong_values(&self, first: clap::Error) -> (Vec<String>, clap::Error) {
        let (mut words, mut before, mut last) = (self.words.clone(), Vec::new(), first);
        while let Some(place) = place_of_value(&words, &last) {
            words.drain(place);
            let rest = self.command.clone().try_get_matches_from(&words);
            let Some(next) = rest.err().filter(is_about_value) else {
                break;
            };
            let message = last.render().to_string();
            // The hint at the help follows the last empty line.
            let what = message
                .rsplit_once("\n\n")
                .map_or(&*message, |(what, _)| what);
            before.push(what.to_owned());
            last = next;
        }
        (before, last)
    }

    /// Same as [`parse`] or [`parse_sites`], for this line. Also returns what is wrong with the file, a line
    /// for each error. Required options that are wrong then have the header of their section as value.
    pub(super) fn parse<T: FromArgMatches>(
        self: &Arc<Self>,
    ) -> Result<(Parsed<T>, Option<String>), Wrong> {
        let mut command = self.command.clone();
        command.build();
        let first = FirstLook::new(&command, &self.words);
        let Some(path) = &first.config else {
            let parsed = self.parse_all(&command, &first, File::default());
            return Ok((parsed?, None));
        };
        let purpose = file::Purpose {
            command: &first.command,
            given: &first.perhaps_given,
            has_sites: self.has_sites,
            max_problems: if self.is_check() {
                usize::MAX
            } else {
                MAX_PROBLEMS
            },
        };
        let (file, mistakes) = match file::read(path, purpose) {
            Ok((file, mistakes)) => (Some(file), mistakes),
            Err(mistakes) => (None, Some(mistakes)),
        };
        let is_read = file.is_some();
        let parsed = self.parse_all(&command, &first, file.unwrap_or_default());
        match (parsed, mistakes) {
            (Ok(_), Some(mistakes)) if !is_read => Err(Wrong::File(mistakes)),
            (Ok(parsed), mistakes) => Ok((parsed, mistakes)),
            (Err(wrong), None) => Err(wrong),
            (Err(wrong), Some(mistakes)) => Err(wrong.after(mistakes)),
        }
    }

    /// Parses the line for each site of `file`.
    fn parse_all<T: FromArgMatches>(
        self: &Arc<Self>,
        command: &Command,
        first: &FirstLook,
        mut file: File,
    ) -> Result<Parsed<T>, Wrong> {
        let shared = file.for_all_sites();
        let more = file.with_further_tables();
        let mistake = first.of_all_sites(&file).filter(|_| !more.is_empty());
        let with = |file| self.parse_with(command, first, file);
        let parsed = shared.map(with).transpose().and_then(|shared| {
            Ok(Parsed {
                more: more.into_iter().map(with).collect::<Result<_, _>>()?,
                shared: shared.map(|parsed| (parsed.cli, parsed.origins)),
                ..with(file)?
            })
        });
        match (parsed, mistake) {
            (parsed, None) => parsed,
            (Ok(_), Some(message)) => Err(Wrong::File(message)),
            (Err(wrong), Some(message)) => Err(wrong.after(message)),
        }
    }

    /// Parses the line, with the settings of `file` before the options.
    fn parse_with<T: FromArgMatches>(
        self: &Arc<Self>,
        command: &Command,
        first: &FirstLook,
        file: File,
    ) -> Result<Parsed<T>, Wrong> {
        let overridden = first.overridden();
        let settings = file
            .settings
            .iter()
            .filter(|one| !overridden.contains(&one.id));
        let mut all = self.words.clone();
        let inserted: Vec<_> = settings
            .flat_map(|one| &one.words)
            .map(|word| OsString::from(&word.text))
            .collect();
        all.splice(first.depth..first.depth, inserted);
        let matches = command
            .clone()
            .try_get_matches_from(all)
            .map_err(Wrong::CommandLine)?;
        let cli = T::from_arg_matches(&matches).map_err(Wrong::CommandLine)?;
        let mut leaf = matches;
        while let Some((_, inner)) = leaf.remove_subcommand() {
            leaf = inner;
        }
        let origins = Origins {
            command: first.command.clone(),
            matches: leaf,
            file,
            given: first.given.clone(),
        };
        Ok(Parsed {
            cli,
            more: Vec::new(),
            shared: None,
            origins: Arc::new(origins),
            line: Arc::clone(self),
        })
    }
}

fn is_about_value(error: &clap::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue
    )
}

/// Returns the innermost subcommand of these words, and the number of words up to and including its name.
fn innermost<'c>(command: &'c Command, words: &[OsString]) -> (&'c Command, usize) {
    let (mut inner, mut depth) = (command, 1);
    while let Some(found) = words
        .get(depth)
        .and_then(|word| inner.find_subcommand(word))
    {
        (inner, depth) = (found, depth + 1);
    }
    (inner, depth)
}

/// Joins an option and a negative number behind it, such as `-1s`. Its own check can then say what the option takes.
/// Otherwise the number would be an unknown option.
fn with_joined_numbers(command: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let (inner, _) = innermost(command, &words);
    let args = inner.get_arguments();
    let takers = args.filter(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set());
    let takers: Vec<_> = takers.filter_map(Arg::get_long).collect();
    let takes_value = |word: &OsString| {
        let name = word.to_str().and_then(|word| word.strip_prefix("--"));
        name.is_some_and(|name| takers.contains(&name))
    };
    let mut joined: Vec<OsString> = Vec::new();
    for word in words {
        let is_negative = matches!(word.as_bytes(), [b'-', b'0'..=b'9' | b'.', ..]);
        match joined
            .last_mut()
            .filter(|before| is_negative && takes_value(before))
        {
            Some(option) => {
                option.push("=");
                option.push(word);
            }
            None => joined.push(word),
        }
    }
    joined
}

/// Returns which of these words are the value that an error is about, and its option.
fn place_of_value(words: &[OsString], error: &clap::Error) -> Option<Range<usize>> {
    if !is_about_value(error) {
        return None;
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    // The argument is written as in the help: `--port <N>`, or `<FOLDER>` without an option.
    let option = text(ContextKind::InvalidArg)?.split([' ', '[']).next()?;
    let value = text(ContextKind::InvalidValue)?;
    let in_one = format!("{option}={value}");
    let is_in_one = |word: &OsString| *word == *in_one;
    let is_in_two = |pair: &[OsString]| pair[0] == *option && pair[1] == *value;
    if let Some(at) = words.iter().position(is_in_one) {
        Some(at..at + 1)
    } else if let Some(at) = words.windows(2).position(is_in_two) {
        Some(at..at + 2)
    } else if option.starts_with('-') {
        None
    } else {
        // The same word elsewhere may be the value of an option.
        let mut equal = (0..words.len()).filter(|at| words[*at] == *value);
        let (first, other) = (equal.next()?, equal.next());
        other.is_none().then_some(first..first + 1)
    }
}

/// What a command line says before the file is read. Errors in it are reported later.
struct FirstLook {
    /// The innermost subcommand.
    command: Command,
    /// Number of words up to and including the subcommand's name.
    depth: usize,
    config: Option<PathBuf>,
    /// Identifiers of the options that the line has.
    given: Vec<String>,
    /// The same, with those that the line may have behind an error.
    perhaps_given: Vec<String>,
}

impl FirstLook {
    fn new(command: &Command, words: &[OsString]) -> Self {
        let (inner, depth) = innermost(command, words);
        let command = inner.clone();
        let lenient = command.clone().no_binary_name(true).ignore_errors(true);
        let options = words.get(depth..).unwrap_or_default();
        let matches = lenient.try_get_matches_from(options).unwrap_or_default();
        // Parsing ends at the first error. What follows may be a value without an option's name.
        let strict = command.clone().no_binary_name(true);
        let strict = strict.try_get_matches_from(options);
        let is_cut = strict.is_err_and(|error| error.kind() != ErrorKind::MissingRequiredArgument);
        let is_of_line = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let found = matches.ids().filter(|id| is_of_line(id.as_str()));
        let found: Vec<_> = found.collect();
        let is_given =
            |arg: &&Arg| found.contains(&arg.get_id()) || value_behind(options, arg).is_some();
        let is_perhaps_given = |arg: &&Arg| is_given(arg) || is_cut && arg.is_positional();
        let id = |arg: &Arg| arg.get_id().to_string();
        let args = || command.get_arguments();
        let given = args().filter(is_given).map(id).collect();
        let perhaps_given = args().filter(is_perhaps_given).map(id).collect();
        let config = matches.try_get_one::<PathBuf>("config").ok().flatten();
        let config = config.cloned().or_else(|| {
            let mut args = command.get_arguments();
            let config = args.find(|arg| arg.get_id() == "config")?;
            let path = value_behind(options, config)?;
            (!path.is_empty()).then(|| PathBuf::from(path))
        });
        Self {
            command,
            depth,
            config,
            given,
            perhaps_given,
        }
    }

    /// Returns the options that the command line overrides: those that it contains, and those that
    /// exclude them.
    fn overridden(&self) -> Vec<String> {
        let args = self.command.get_arguments();
        let given: Vec<_> = args
            .filter(|arg| self.given.iter().any(|id| arg.get_id() == id))
            .collect();
        let conflicts = given
            .iter()
            .flat_map(|arg| self.command.get_arg_conflicts_with(arg));
        let ids = given
            .iter()
            .copied()
            .chain(conflicts)
            .map(clap::Arg::get_id);
        ids.map(ToString::to_string).collect()
    }

    /// Returns a message if the command line has a required option, such as the folder, of a section
    /// that the file has several times. The sections would no longer differ.
    fn of_all_sites(&self, file: &File) -> Option<String> {
        let is_given = |key: &Key<'_>| self.given.iter().any(|id| key.arg.get_id() == id);
        let keys = keys(&self.command);
        let key = keys
            .iter()
            .find(|key| key.arg.is_required_set() && is_given(key))?;
        let (name, section) = (key.name(), key.section.header());
        let headers = file.headers.iter();
        let second = headers.filter(|(name, _)| *name == key.section.name).nth(1);
        let place = second.map_or(file.end, |(_, position)| *position);
        let file = file.path.display().to_string();
        Some(format!(
            "{}:{place}: there are several {section}, so {name} cannot be on the command line; leave it out there",
            file.escape_debug()
        ))
    }
}

/// Returns the value of the first option `--OPTION VALUE` or `--OPTION=VALUE` of this kind. It is empty if there
/// is only the option, or another one behind it.
fn value_behind(words: &[OsString], arg: &Arg) -> Option<OsString> {
    let long = format!("--{}", arg.get_long()?);
    words.iter().enumerate().find_map(|(at, word)| {
        let rest = word.as_bytes().strip_prefix(long.as_bytes())?;
        match rest {
            [] => {
                let value = words.get(at + 1);
                let value = value.filter(|word| !word.as_bytes().starts_with(b"-"));
                Some(value.cloned().unwrap_or_default())
            }
            [b'=', value @ ..] => Some(OsStr::from_bytes(value).to_owned()),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::units::number;

    #[derive(Parser, Debug)]
    #[command(name = "web")]
    struct Cli {
        #[arg(value_name = "PORTS", value_parser = number::<u16>(1..=9))]
        ports: Vec<u16>,
        #[arg(long, value_parser = number::<u16>(1..=9))]
        workers: Option<u16>,
        #[arg(long, value_parser = ["block", "spin"])]
        wait: Option<String>,
        #[arg(long)]
        strict: bool,
    }

    fn line(words: &str) -> Line {
        Line::new(Cli::command(), words.split(' ').map(OsString::from), false)
    }

    /// The first words of the errors about a line.
    fn wrong_values(words: &str) -> Vec<String> {
        let line = line(words);
        let first = line.command.clone().try_get_matches_from(&line.words);
        let (before, last) = line.wrong_values(first.unwrap_err());
        let last = last.render().to_string();
        let all = before.iter().chain(std::iter::once(&last));
        let start = |message: &String| message.lines().next().unwrap_or_default().to_owned();
        all.map(start).collect()
    }

    #[test]
    fn each_wrong_value_of_a_command_line_is_named() {
        let wrong = |value: &str, argument: &str| {
            format!(
                "error: invalid value '{value}' for '{argument}': give a whole number from 1 to 9"
            )
        };
        let expected = [wrong("a", "[PORTS]..."), wrong("0", "--workers <WORKERS>")];
        assert_eq!(wrong_values("web a 1 --workers 0 2 --strict"), expected);
        assert_eq!(wrong_values("web a 1 --workers=0"), expected);
        let both = ["a", "b"].map(|value| wrong(value, "[PORTS]..."));
        assert_eq!(wrong_values("web --strict a b 3"), both);
        // The first of two equal words may be the value of an option.
        assert_eq!(wrong_values("web 1 a a --workers 0"), expected[..1]);
        // What follows an unknown option may be its value.
        let unknown = "error: unexpected argument '--none' found";
        assert_eq!(wrong_values("web --none a"), [unknown]);
    }

    #[test]
    fn a_negative_number_gets_the_message_of_its_option() {
        for number in ["-1", "-1s", "-.5", "-1=2"] {
            let expected = format!(
                "error: invalid value '{number}' for '--workers <WORKERS>': give a whole number from 1 to 9"
            );
            let line = format!("web --workers {number} 2");
            assert_eq!(wrong_values(&line), [expected], "{line}");
        }
        // Other places have no number.
        for line in ["web -1s", "web --strict -1s", "web --wait=spin -1s"] {
            let unexpected = "error: unexpected argument '-1' found";
            assert_eq!(wrong_values(line), [unexpected], "{line}");
        }
        // What is no number is an option.
        let unexpected = "error: unexpected argument '-s' found";
        assert_eq!(wrong_values("web --workers -s"), [unexpected]);
    }

    #[test]
    fn each_wrong_value_has_its_tip() {
        let line = line("web --wait spinn --workers 0");
        let first = line.command.clone().try_get_matches_from(&line.words);
        let (before, _) = line.wrong_values(first.unwrap_err());
        assert!(
            before[0].ends_with("tip: a similar value exists: 'spin'"),
            "{before:?}"
        );
    }
}
