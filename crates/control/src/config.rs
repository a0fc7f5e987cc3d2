//! Configuration files, as a second source of the command line's options.
//!
//! A file is written in TOML. Each option of a command is a key of the file, so an option has one
//! definition, with one default, one check and one explanation:
//!
//! ```toml
//! [network]                      # the options under the heading "Network"
//! device = "xdp:eth0"            # --device
//! addresses = ["192.0.2.80/24"]  # --address
//!
//! [connections]
//! idle-timeout = "30 s"          # --idle-timeout
//! ```
//!
//! An option on the command line overrides the key in the file. There is no third source: the
//! environment does not matter.
//!
//! [`parse`] replaces [`clap::Parser::parse`]. If the command line contains `--config FILE`, it
//! inserts the file's keys before the other options. The errors in a file are reported at once, each with line,
//! column and the nearest known key. A server names at most 100, and a command `check` names all. [`show`] and
//! [`example`] print files. A running server reads a changed file again with [`Rereading`].

mod command;
mod example;
mod file;
mod keys;
mod manual;
mod merge;
mod origin;
mod position;
mod problem;
mod reread;
mod show;
mod value;

pub use example::example;
pub use merge::{Parsed, parse, parse_sites, parse_to_check};
pub(crate) use origin::{FileNow, file, file_now};
pub use origin::{
    before, before_nth, before_section, file_is_wrong, is_wrong, place_from, place_of,
    place_of_nth, with_places, with_places_of,
};
pub use reread::{Applied, Reread, Rereading, TakenOver, check_allowed};
pub(crate) use reread::{FileRead, Unread, folders};
pub use show::{OwnDefaults, show};

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, Subcommand};

use self::command::prepared;
use crate::endpoint::default_sockets;
use crate::log;

/// The option `--config`, for use with `#[command(flatten)]`. [`parse`] handles it.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// Read options from a TOML file. `config example` prints a file with all keys. Options on the
    /// command line override those of the file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The subcommands of `config`, in a program whose command `serve` takes the options `S`.
#[derive(Subcommand, Debug)]
pub enum ConfigCommand<S: Args> {
    /// Print the options that hold with this command line, and where each value comes from.
    Show(Box<S>),
    /// Print a commented configuration file with every key.
    Example,
    /// Write manual pages and shell completions to FOLDER, for a package.
    #[command(hide = true)]
    Manual {
        /// The folder, which is created if it does not exist.
        folder: PathBuf,
    },
}

impl<S: Args> ConfigCommand<S> {
    /// Runs the subcommand. `command` is the program's whole command, and `own` has the defaults of
    /// each server in it.
    pub fn run<T>(&self, parsed: &Parsed<T>, command: &Command, own: &[OwnDefaults]) -> ExitCode {
        let text = match self {
            Self::Show(_) => {
                let program = program_defaults(command);
                show(parsed, &[own, &[program]].concat())
            }
            Self::Example => example(command),
            Self::Manual { folder } => match manual::write(&prepared(command.clone()), folder) {
                Ok(()) => String::new(),
                Err(error) => {
                    let (program, folder) = (command.get_name(), folder.display());
                    log::tell(format_args!("{program}: cannot write to {folder}: {error}"));
                    return ExitCode::FAILURE;
                }
            },
        };
        print(command.get_name(), &text)
    }
}

/// Returns the defaults that depend on the program's name.
fn program_defaults(command: &Command) -> OwnDefaults {
    let own = OwnDefaults::of("");
    match default_sockets(command.get_name()).first() {
        Some(socket) => own.with("control_socket", &socket.display()),
        None => own,
    }
}

/// Prints what a command `check` has found in each part of the content: lines about it, each a label
/// and a value, or an error. Returns the exit status.
pub fn print_check<L: fmt::Display, E: fmt::Display>(
    program: &str,
    found: impl IntoIterator<Item = Result<Vec<(L, String)>, E>>,
) -> ExitCode {
    let mut text = String::new();
    let mut failed = file_is_wrong();
    for part in found {
        match part {
            Ok(lines) => {
                for (label, value) in lines {
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "{label}: {value}");
                }
            }
            Err(error) => {
                log::error(program, with_places(&error.to_string()));
                failed = true;
            }
        }
    }
    let printed = print(program, &text);
    if failed { ExitCode::FAILURE } else { printed }
}

/// Writes a text to standard output. A reader that stops early, such as `head`, does not cause an
/// error.
pub(crate) fn print(program: &str, text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let message = format!("cannot write to standard output: {error}");
            log::error(program, message);
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Moves an option of all subcommands under another heading, and so into another section of the
/// file.
#[must_use]
pub fn under(heading: &'static str, option: &'static str, command: Command) -> Command {
    let has_it = command.get_arguments().any(|arg| arg.get_id() == option);
    let command = command.mut_subcommands(|inner| under(heading, option, inner));
    if has_it {
        command.mut_arg(option, |arg| arg.help_heading(heading))
    } else {
        command
    }
}
