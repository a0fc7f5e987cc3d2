//! Where the lines of a log go.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _, stdout};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::fchown;
use rustix::process::{Gid, Uid};

/// Where the lines of a log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    /// A file, to whose end the lines are appended. SIGUSR1 makes the server open it again.
    File(PathBuf),
    /// Standard output.
    Stdout,
    /// The system's log, at `/dev/log` (RFC 3164).
    Syslog,
    /// The journal of systemd.
    Journald,
}

/// Parses `stdout`, `syslog`, `journald` or the path of a file.
impl FromStr for LogDestination {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "" | "-" => return Err("give the path of a file, or stdout, syslog or journald"),
            "stdout" => Self::Stdout,
            "syslog" => Self::Syslog,
            "journald" => Self::Journald,
            path => Self::File(path.into()),
        })
    }
}

/// The socket of the system's log.
const SYSLOG: &str = "/dev/log";
/// The journal's own socket.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// Facility `local0`, severity informational (RFC 3164, section 4.1.1).
const PRIORITY: u8 = 16 * 8 + 6;

/// An open destination.
#[derive(Debug)]
pub(super) enum Sink {
    File {
        path: PathBuf,
        file: File,
        /// Whether this process has made the file.
        is_new: bool,
    },
    Stdout,
    /// A datagram for each line: the socket, its peer, and the text in front of the line.
    Datagrams {
        socket: UnixDatagram,
        peer: &'static str,
        prefix: String,
    },
}

impl Sink {
    /// Opens a destination. `program` is the name that the system's log shows.
    ///
    /// # Errors
    /// If the file cannot be opened or made, or there is no such log on this host.
    pub(super) fn open(destination: &LogDestination, program: &str) -> io::Result<Self> {
        let datagrams = |peer, prefix| {
            let socket = UnixDatagram::unbound()?;
            // Tests that something listens. Each datagram names the peer, so it may restart.
            UnixDatagram::unbound()?.connect(peer)?;
            Ok(Self::Datagrams {
                socket,
                peer,
                prefix,
            })
        };
        match destination {
            LogDestination::File(path) => Ok(Self::File {
                path: path.clone(),
                is_new: !path.exists(),
                file: open_file(path)?,
            }),
            LogDestination::Stdout => Ok(Self::Stdout),
            LogDestination::Syslog => datagrams(SYSLOG, format!("<{PRIORITY}>{program}: ")),
            LogDestination::Journald => datagrams(
                JOURNAL,
                format!("PRIORITY=6\nSYSLOG_IDENTIFIER={program}\nMESSAGE="),
            ),
        }
    }

    /// Gives the file to the server's user, who may have to open it again, if this process has made
    /// it.
    pub(super) fn give_to(&self, user: (Uid, Gid)) -> io::Result<()> {
        match self {
            Self::File {
                file, is_new: true, ..
            } => Ok(fchown(file, Some(user.0), Some(user.1))?),
            _ => Ok(()),
        }
    }

    /// Opens the file again, which may have been renamed. Does nothing for other destinations. On an
    /// error, lines still go to the old file.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Self::File { path, file, .. } = self {
            *file = open_file(path)?;
        }
        Ok(())
    }

    /// Writes complete lines.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::File { file, .. } => file.write_all(lines),
            Self::Stdout => {
                let mut out = stdout().lock();
                out.write_all(lines)?;
                out.flush()
            }
            Self::Datagrams {
                socket,
                peer,
                prefix,
            } => {
                for line in lines.split_inclusive(|byte| *byte == b'\n') {
                    let datagram = [prefix.as_bytes(), line].concat();
                    socket.send_to(&datagram, *peer)?;
                }
                Ok(())
            }
        }
    }
}

/// Opens a file for appending, and makes it if it does not exist. Others may not read it, because it
/// has the addresses of clients.
fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640).open(path)
}
