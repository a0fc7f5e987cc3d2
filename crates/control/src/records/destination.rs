//! Where the lines of a log go.

use std::fs::{File, OpenOptions};
use std::io::{self, Write, stdout};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{OFlags, fchown};
use rustix::process::{Gid, Uid};

use super::frames::FrameStream;
use super::log_file::{open_at_once, open_or_make};
use super::unwritten::{Unwritten, write_all};

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
pub(super) const SYSLOG: &str = "/dev/log";
/// The journal's own socket.
pub(super) const JOURNAL: &str = "/run/systemd/journal/socket";
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
        /// Whether the file ends with a part of a line.
        is_cut: bool,
    },
    /// Standard output, without the buffer of the standard library.
    Stdout {
        out: File,
        /// Whether the output ends with a part of a line.
        is_cut: bool,
    },
    /// A datagram for each line: the socket, its peer, the text in front of the line, and whether the
    /// line ends with a line feed.
    Datagrams {
        socket: UnixDatagram,
        peer: PathBuf,
        prefix: String,
        has_end: bool,
    },
    /// Frames instead of lines.
    Frames(FrameStream),
}

impl Sink {
    /// Opens a destination. `program` is the name that the system's log shows.
    ///
    /// # Errors
    /// If the file cannot be opened or made, or there is no such log on this host.
    pub(super) fn open(destination: &LogDestination, program: &str) -> io::Result<Self> {
        match destination {
            LogDestination::File(path) => {
                let (file, is_new) = open_or_make(path, OpenOptions::new().append(true))?;
                Ok(Self::File {
                    path: path.clone(),
                    is_new,
                    file,
                    is_cut: false,
                })
            }
            LogDestination::Stdout => Ok(Self::Stdout {
                out: stdout().as_fd().try_clone_to_owned()?.into(),
                is_cut: false,
            }),
            LogDestination::Syslog => Self::syslog(SYSLOG.as_ref(), program),
            LogDestination::Journald => Self::journal(JOURNAL.as_ref(), program),
        }
    }

    /// Opens the system's log at this socket.
    fn syslog(peer: &Path, program: &str) -> io::Result<Self> {
        let prefix = format!("<{PRIORITY}>{program}[{}]: ", std::process::id());
        Self::datagrams(peer, prefix, false)
    }

    /// Opens the journal at this socket. Each of its fields ends with a line feed.
    fn journal(peer: &Path, program: &str) -> io::Result<Self> {
        let prefix = format!("PRIORITY=6\nSYSLOG_IDENTIFIER={program}\nMESSAGE=");
        Self::datagrams(peer, prefix, true)
    }

    fn datagrams(peer: &Path, prefix: String, has_end: bool) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // Tests that something listens. Each datagram names the peer, so it may restart.
        UnixDatagram::unbound()?.connect(peer)?;
        Ok(Self::Datagrams {
            socket,
            peer: peer.to_owned(),
            prefix,
            has_end,
        })
    }

    /// Gives the file to the server's user, who may have to open it again, if this process has made
    /// it.
    pub(super) fn give_to(&self, user: (Uid, Gid)) -> io::Result<()> {
        match self {
            Self::File {
                file, is_new: true, ..
            } => Ok(fchown(file, Some(user.0), Some(user.1))?),
            Self::Frames(frames) => frames.give_to(user),
            _ => Ok(()),
        }
    }

    /// Opens the file again, which may have been renamed. Does nothing for other destinations. On an
    /// error, lines still go to the old file.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        match self {
            Self::File {
                path, file, is_cut, ..
            } => {
                *file = open_file(path)?;
                *is_cut = false;
                Ok(())
            }
            Self::Frames(frames) => frames.reopen(),
            Self::Stdout { .. } | Self::Datagrams { .. } => Ok(()),
        }
    }

    /// Returns true if records can be written now. If not, they should wait.
    pub(super) fn is_ready(&mut self) -> bool {
        match self {
            Self::Frames(frames) => frames.is_ready(),
            _ => true,
        }
    }

    /// Writes the end mark, if the format has one.
    pub(super) fn finish(&mut self) {
        if let Self::Frames(frames) = self {
            frames.finish();
        }
    }

    /// Writes complete lines or frames.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), Unwritten> {
        match self {
            Self::Frames(frames) => frames.write(lines),
            Self::File { file, is_cut, .. } | Self::Stdout { out: file, is_cut } => {
                append(file, is_cut, lines)
            }
            Self::Datagrams {
                socket,
                peer,
                prefix,
                has_end,
            } => {
                let mut rest = lines;
                for line in lines.split_inclusive(|byte| *byte == b'\n') {
                    let text = line.strip_suffix(b"\n").filter(|_| !*has_end);
                    let datagram = [prefix.as_bytes(), text.unwrap_or(line)].concat();
                    let sent = socket.send_to(&datagram, &*peer);
                    sent.map_err(|error| unwritten_lines(error, rest))?;
                    rest = &rest[line.len()..];
                }
                Ok(())
            }
        }
    }
}

/// Appends lines to a file that ends with a part of a line if `is_cut`, as after a full disk.
fn append(file: &mut impl Write, is_cut: &mut bool, lines: &[u8]) -> Result<(), Unwritten> {
    if *is_cut {
        file.write_all(b"\n")
            .map_err(|error| unwritten_lines(error, lines))?;
        *is_cut = false;
    }
    write_all(file, lines).map_err(|(error, written)| {
        *is_cut = lines[..written].last().is_some_and(|last| *last != b'\n');
        unwritten_lines(error, &lines[written..])
    })
}

/// Names the error, and counts the ends of lines in `rest`, which was not written.
fn unwritten_lines(error: io::Error, rest: &[u8]) -> Unwritten {
    let ends = rest.iter().filter(|byte| **byte == b'\n');
    Unwritten {
        error,
        lines: ends.count() as u64,
    }
}

/// Opens a file for appending, and makes it if it does not exist. Others may not read it, because it
/// has the addresses of clients.
fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640);
    open_at_once(path, &options, OFlags::empty())
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use std::fs;
    use std::io::ErrorKind;

    use super::super::full_disk::Disk;
    #[cfg(target_os = "linux")]
    use super::super::full_disk::SmallDisk;
    use super::*;

    #[test]
    fn a_line_after_a_full_disk_begins_on_a_line_of_its_own() {
        let mut disk = Disk {
            bytes: Vec::new(),
            room: 6,
        };
        let mut is_cut = false;
        let error = append(&mut disk, &mut is_cut, b"one\ntwo\nthree\n").unwrap_err();
        assert_eq!(error.error.kind(), ErrorKind::StorageFull);
        assert_eq!((error.lines, is_cut), (2, true));
        let error = append(&mut disk, &mut is_cut, b"four\n").unwrap_err();
        assert_eq!((error.lines, is_cut), (1, true));
        disk.room = 100;
        append(&mut disk, &mut is_cut, b"five\n").unwrap();
        append(&mut disk, &mut is_cut, b"six\n").unwrap();
        assert_eq!(disk.bytes, b"one\ntw\nfive\nsix\n");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn standard_output_on_a_full_disk_is_cut_as_a_file_is() {
        let folder = tempfile::tempdir().unwrap();
        let Some(_disk) = SmallDisk::mount(folder.path(), c"size=8k") else {
            return;
        };
        let [path, other] = ["log", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "text").unwrap();
        let out = File::create(&path).unwrap();
        let mut sink = Sink::Stdout { out, is_cut: false };
        // The disk has room for one line and for a part of another one.
        let line = [&[b'x'; 2_999][..], b"\n"].concat();
        assert_eq!(sink.write(&line.repeat(3)).unwrap_err().lines, 2);
        fs::remove_file(&other).unwrap();
        sink.write(b"next\n").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("x\nnext\n"), "{text}");
    }

    #[test]
    fn logs_of_the_system_get_a_datagram_for_each_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(Sink::syslog(&path, "web").is_err(), "nothing listens");
        let system = UnixDatagram::bind(&path).unwrap();
        let received = |mut sink: Sink| {
            sink.write(b"one\ntwo\n").unwrap();
            [0; 2].map(|_| {
                let mut datagram = [0; 100];
                let len = system.recv(&mut datagram).unwrap();
                String::from_utf8(datagram[..len].to_vec()).unwrap()
            })
        };
        let start = format!("<134>web[{}]: ", std::process::id());
        let syslog = received(Sink::syslog(&path, "web").unwrap());
        assert_eq!(syslog, ["one", "two"].map(|line| format!("{start}{line}")));
        let start = "PRIORITY=6\nSYSLOG_IDENTIFIER=web\nMESSAGE=";
        let journal = received(Sink::journal(&path, "web").unwrap());
        assert_eq!(
            journal,
            ["one\n", "two\n"].map(|line| format!("{start}{line}"))
        );
    }

    #[test]
    fn a_disk_that_is_full_after_a_whole_line_cuts_nothing() {
        let mut disk = Disk {
            bytes: Vec::new(),
            room: 4,
        };
        let mut is_cut = false;
        let error = append(&mut disk, &mut is_cut, b"one\ntwo\n").unwrap_err();
        assert_eq!((error.lines, is_cut), (1, false));
    }
}
