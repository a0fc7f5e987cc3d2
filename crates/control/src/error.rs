use std::io;

use nmio::PcapError;
use nmio::device::{DeviceError, Transport};

use crate::program::StartError;

/// Why a server did not start, or ended by itself. Each message says what is
/// wrong, where, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something that every process may do.
    #[error("{what}: {source}")]
    System {
        /// What was refused.
        what: &'static str,
        /// The system's word on it.
        source: io::Error,
    },
    /// Two programs of one process serve the same port.
    #[error(
        "two servers of this process have {transport} port {port}; give one of them another port, \
         with --port or with the option that ends in -port"
    )]
    PortTwice {
        /// TCP or UDP.
        transport: Transport,
        /// The port.
        port: u16,
    },
    /// There is no user or group of that name.
    #[error(
        "there is no {kind} {name:?} on this system; name one that exists, as --user NAME[:GROUP] takes no numbers"
    )]
    UnknownUser {
        /// `user` or `group`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The user of `--user` cannot be assumed.
    #[error(
        "cannot become {user}: {source}; start as root, or with CAP_SETUID and CAP_SETGID, or \
         leave --user away"
    )]
    User {
        /// The user.
        user: String,
        /// The system's word on it.
        source: io::Error,
    },
    /// `--sandbox required` asks for more than could be had.
    #[error("--sandbox required: not to be had: {0}; --sandbox auto starts without and says so")]
    Sandbox(String),
    /// The rules of the sandbox could not be made.
    #[error("the sandbox cannot be set up: {0}; --no-sandbox serves without it")]
    Walls(String),
    /// The helper process cannot open the device.
    #[error("{0}")]
    Refused(String),
    /// The helper process, which keeps the interface ready, has ended.
    #[error(
        "the helper process is gone ({0}), and with it what keeps packets coming; its own message \
         stands above, unless it was killed; start again"
    )]
    HelperGone(String),
    /// A queue of the device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The file for `--pcap` cannot be written.
    #[error(transparent)]
    Pcap(#[from] PcapError),
    /// The program could not prepare a worker.
    #[error("{0}")]
    Start(StartError),
    /// A port went away while it was served.
    #[error(
        "worker {worker}: the port on interface {interface} is gone: {source} (was it removed?)"
    )]
    PortGone {
        /// The interface.
        interface: String,
        /// Which worker served it.
        worker: u32,
        /// The system's word on it.
        source: io::Error,
    },
    /// A worker panicked, maybe in the program's own code; its message was
    /// printed before.
    #[error(
        "worker {worker} has panicked, which is a bug in this program: the message above tells its \
         developers where"
    )]
    Panicked {
        /// Which worker.
        worker: u32,
    },
}

impl Error {
    /// The system has refused this.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_gone_has_the_name_of_its_interface() {
        let error = Error::PortGone {
            interface: "srv0".into(),
            worker: 0,
            source: io::Error::from_raw_os_error(100),
        };
        let message = error.to_string();
        assert!(message.contains("on interface srv0 is gone"), "{message}");
    }

    #[test]
    fn a_user_who_is_not_found_is_to_be_named() {
        let error = Error::UnknownUser {
            kind: "user",
            name: "1000".into(),
        };
        let message = error.to_string();
        assert!(message.ends_with("takes no numbers"), "{message}");
    }
}
