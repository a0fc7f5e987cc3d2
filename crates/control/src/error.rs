use std::ops::RangeInclusive;
use std::{fmt, io};

use nmio::PcapError;
use nmio::device::{DeviceError, Transport};

use crate::config::place_of;
use crate::port_owner::PORT_KEY;

/// Why content could not be loaded or a worker could not be prepared: a message for the operator.
pub type StartError = Box<dyn std::error::Error + Send + Sync>;

/// Why a server did not start, or why it ended without a request to stop. Each message says what is
/// wrong, and most say how to fix it. `Debug` prints the message as well, because a `main` that
/// returns an error prints it in this way.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation of the operating system failed, for example starting a thread.
    #[error("{what}: {source}{}", remedy(source))]
    System {
        /// The failed operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// [`serve`](crate::serve) was called inside a tokio runtime, whose thread it would block.
    #[error(
        "a server that takes over its process cannot run inside a tokio runtime; call control::serve \
         from a main function without a runtime, or await control::embed"
    )]
    InsideRuntime,
    /// Two programs of one process serve the same port.
    #[error("{}", port_twice(programs, options, *transport, *port))]
    PortTwice {
        /// The names of the programs.
        programs: [&'static str; 2],
        /// The options that set their ports.
        options: [String; 2],
        /// TCP or UDP.
        transport: Transport,
        /// The port.
        port: u16,
    },
    /// Port 0 was given. No client can reach this port.
    #[error("port 0 cannot be served; give {option} a number from 1 to 65535")]
    PortZero {
        /// The option that sets the port.
        option: String,
    },
    /// A number of [`ServeArgs`](crate::ServeArgs) is outside the range of its option.
    #[error(
        "{option} {value} is out of range; give a number from {} to {}",
        range.start(),
        range.end()
    )]
    OutOfRange {
        /// The option.
        option: &'static str,
        /// The number.
        value: u32,
        /// The range.
        range: RangeInclusive<u32>,
    },
    /// The user or group that `--user` names does not exist.
    #[error(
        "there is no {kind} {name:?} on this system; name one that exists; --user takes names, not numbers"
    )]
    UnknownUser {
        /// What was not found: `user` or `group`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The server cannot become the user named by `--user`.
    #[error(
        "cannot become user {user}: {source}; start as root, or with CAP_SETUID and CAP_SETGID, or \
         omit --user"
    )]
    User {
        /// The user.
        user: String,
        /// The system's error.
        source: io::Error,
    },
    /// `--sandbox required` was given, and parts of the sandbox are missing.
    #[error(
        "--sandbox required: parts of the sandbox are missing: {0}; --sandbox auto starts without \
         them and names them in the start block"
    )]
    Sandbox(String),
    /// The rules of the sandbox could not be created.
    #[error("the sandbox cannot be set up: {0}; --sandbox off starts without it")]
    Limits(String),
    /// The helper process cannot open the device or drop its privileges. The text is its error
    /// message.
    #[error("{0}")]
    Refused(String),
    /// The helper process, which keeps the interface ready, has ended.
    #[error(
        "the helper process is gone ({0}), so packets no longer reach the server; unless it was \
         killed, its own message is above; start the server again"
    )]
    HelperGone(String),
    /// The device, or one of its queues, cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The file for `--pcap` cannot be written.
    #[error(transparent)]
    Pcap(#[from] PcapError),
    /// An embedded server was asked for something that only [`serve`](crate::serve) offers.
    #[error(
        "an embedded server has no {0}; leave out the option, or run the program with control::serve"
    )]
    NotEmbedded(&'static str),
    /// The program could not load its content or prepare a worker.
    #[error("{0}")]
    Start(StartError),
    /// A worker's port failed while the worker served.
    #[error(
        "worker {worker}: the port on interface {interface} is gone: {source}{question}",
        // An error with a text of its own says what has happened.
        question = source.raw_os_error().map_or("", |_| " (was it removed?)")
    )]
    PortGone {
        /// The interface.
        interface: String,
        /// Number of the worker.
        worker: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The interface was removed and has returned, and this server cannot go on with it. A server that
    /// is started now can serve it.
    #[error(
        "interface {interface} was removed, and has returned; the server must start again to serve it, \
         because {why}; a service manager does so after exit status {status}",
        status = BACK
    )]
    InterfaceBack {
        /// The interface.
        interface: String,
        /// Why the server cannot go on.
        why: String,
    },
    /// A worker panicked, possibly in the program's own code. The panic message has already been
    /// printed.
    #[error(
        "worker {worker} has panicked, which is a bug in this program: report the message above to \
         its developers"
    )]
    Panicked {
        /// Number of the worker.
        worker: u32,
    },
}

/// Exit status after which a new start succeeds (`EX_TEMPFAIL` of sysexits.h).
const BACK: u8 = 75;

/// Returns advice to append to a system error's message. Returns an empty string if there is no
/// advice.
fn remedy(source: &io::Error) -> &'static str {
    if source.raw_os_error() == Some(libc::EMFILE) {
        "; raise the limit on open files with: ulimit -n 1024, or serve fewer queues"
    } else {
        ""
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Says that two programs have the same port. If they are sites of one file, the places of their folders
/// are named, because most sites have no port.
fn port_twice(
    programs: &[&str; 2],
    options: &[String; 2],
    transport: Transport,
    port: u16,
) -> String {
    let ([one, other], [option, other_option]) = (programs, options);
    let (one, other, more) = if other_option == PORT_KEY {
        let more = ", or different addresses or hosts to both";
        (with_place(one), with_place(other), more)
    } else {
        let named = |program: &str, option: &str| format!("{program} ({option})");
        (named(one, option), named(other, other_option), "")
    };
    format!(
        "{one} and {other} both have {transport} port {port}; give one of them another port{more}"
    )
}

/// Returns the name of a site, and the line of the configuration file that has its folder. Sites for
/// different hosts have all their folders in the name, of which the first one counts.
fn with_place(site: &str) -> String {
    let first = site.split(" + ").next().unwrap_or(site);
    match place_of("root", first) {
        Some(place) => format!("{site} ({place})"),
        None => site.to_owned(),
    }
}

/// Marks an error as a mistake in the options that was found after they were parsed. A server that
/// does not start because of it ends with exit status 2, so that a service manager does not start it
/// again.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct OptionError(StartError);

impl OptionError {
    /// Marks `error`, whose message names the options.
    pub fn new(error: impl Into<StartError>) -> Self {
        Self(error.into())
    }
}

impl Error {
    /// Returns the exit status of a server that ends with this error. It is 2 if the command line or
    /// the configuration file is wrong, 75 if a new start succeeds, and 1 otherwise.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::PortTwice { .. }
            | Self::PortZero { .. }
            | Self::OutOfRange { .. }
            | Self::UnknownUser { .. } => 2,
            Self::Start(error) if error.is::<OptionError>() => 2,
            Self::InterfaceBack { .. } => BACK,
            _ => 1,
        }
    }

    /// Returns a function that makes [`Error::System`] for the operation `what`.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_main_that_returns_the_error_prints_its_message() {
        let error = Error::from(DeviceError::DuplicateAddress {
            address: [192, 0, 2, 1].into(),
            index: 1,
        });
        let boxed: Box<dyn std::error::Error> = error.into();
        let expected = "--address 192.0.2.1 is given twice; leave one out";
        assert_eq!(format!("{boxed:?}"), expected);
    }

    #[test]
    fn a_mistake_in_the_options_has_status_2() {
        let unknown = Error::UnknownUser {
            kind: "group",
            name: "web".into(),
        };
        let mistake = Error::Start(OptionError::new("--a twice").into());
        assert_eq!(mistake.to_string(), "--a twice");
        let [other, file] = ["no file", "no zone"].map(|text| Error::Start(text.into()));
        let statuses = [unknown, mistake, other, file].map(|error| error.exit_status());
        assert_eq!(statuses, [2, 2, 1, 1]);
    }

    #[test]
    fn the_error_for_a_lost_port_names_its_interface() {
        let error = Error::PortGone {
            interface: "srv0".into(),
            worker: 0,
            source: io::Error::from_raw_os_error(100),
        };
        let message = error.to_string();
        assert!(message.contains("on interface srv0 is gone"), "{message}");
    }

    #[test]
    fn the_error_for_too_few_descriptors_names_the_remedy() {
        let message = |errno| Error::system("making an eventfd")(errno).to_string();
        let refused = message(io::Error::from_raw_os_error(libc::EMFILE));
        assert!(
            refused.contains("; raise the limit on open files"),
            "{refused}"
        );
        let other = message(io::Error::from_raw_os_error(libc::EPERM));
        assert!(other.ends_with("(os error 1)"), "{other}");
    }

    #[test]
    fn the_error_of_an_unknown_user_says_that_names_are_needed() {
        let error = Error::UnknownUser {
            kind: "user",
            name: "1000".into(),
        };
        let message = error.to_string();
        assert!(message.ends_with("takes names, not numbers"), "{message}");
    }
}
