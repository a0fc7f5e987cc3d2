//! Changes to the commands that read a configuration file.

use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Command};

use super::keys::keys;

/// Name of the value of an option that is on or off.
const SWITCH: &str = "true|false";

/// Prepares all commands that have the option `--config`. An option without a value takes `=false`,
/// which unsets a key of the file. The usage says that a file may contain what is required.
pub(super) fn prepared(command: Command) -> Command {
    let name = command.get_name().to_owned();
    prepare(command, &name)
}

/// Prepares `command`, which is called `path` with the names of the commands around it.
fn prepare(command: Command, path: &str) -> Command {
    let command = command.mut_subcommands(|inner| {
        let path = format!("{path} {}", inner.get_name());
        prepare(inner, &path)
    });
    let has_file = command.get_arguments().any(|arg| arg.get_id() == "config");
    if !has_file {
        return command;
    }
    let flags: Vec<_> = keys(&command)
        .iter()
        .filter(|key| matches!(key.arg.get_action(), ArgAction::SetTrue))
        .map(|key| key.arg.get_id().clone())
        .collect();
    let command = flags
        .into_iter()
        .fold(command, |command, id| command.mut_arg(id, with_value));
    match usage(&command, path) {
        Some(usage) => command.override_usage(usage),
        None => command,
    }
}

/// Lets a flag take a value, after an equals sign.
fn with_value(flag: Arg) -> Arg {
    flag.action(ArgAction::Set)
        .value_parser(BoolishValueParser::new())
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .default_value("false")
        .value_name(SWITCH)
        .hide_possible_values(true)
        .hide_default_value(true)
}

/// Returns the usage of a command, if it requires something that a file may contain.
fn usage(command: &Command, path: &str) -> Option<String> {
    let keys = keys(command);
    let required: Vec<_> = keys
        .iter()
        .filter(|key| key.arg.is_required_set())
        .map(|key| {
            let values = key.arg.get_value_names().unwrap_or_default();
            let value = values.first().map_or("VALUE", |name| name.as_str());
            match key.arg.get_long() {
                Some(long) => format!("--{long} <{value}>"),
                None => format!("<{value}>"),
            }
        })
        .collect();
    if required.is_empty() {
        return None;
    }
    let indent = " ".repeat("Usage: ".len());
    Some(format!(
        "{path} [OPTIONS] {}\n{indent}{path} [OPTIONS] --config <FILE>",
        required.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::ConfigArgs;
    use super::*;

    #[derive(Parser, Debug)]
    #[command(name = "web")]
    struct Cli {
        #[command(flatten)]
        config: ConfigArgs,
        #[arg(value_name = "DIR")]
        root: String,
        #[arg(long)]
        strict: bool,
    }

    fn strict(line: &str) -> bool {
        use clap::{CommandFactory as _, FromArgMatches as _};
        let words = line.split(' ');
        let matches = prepared(Cli::command()).get_matches_from(words);
        Cli::from_arg_matches(&matches).unwrap().strict
    }

    #[test]
    fn a_flag_takes_a_value_after_an_equals_sign() {
        for (line, expected) in [
            ("web d", false),
            ("web --strict d", true),
            ("web --strict=true d", true),
            ("web --strict=false d", false),
        ] {
            assert_eq!(strict(line), expected, "{line}");
        }
    }

    #[test]
    fn the_usage_says_that_a_file_may_contain_what_is_required() {
        use clap::CommandFactory as _;
        let mut command = prepared(Cli::command());
        let usage = command.render_usage().to_string();
        let expected = "Usage: web [OPTIONS] <DIR>\n       web [OPTIONS] --config <FILE>";
        assert_eq!(usage, expected);
        let help = command.render_help().to_string();
        assert!(help.contains("--strict[=<true|false>]"), "{help}");
    }
}
