//! Logs in the format of Frame Streams, to a file or to a program that listens on a Unix socket.
//!
//! Frame Streams is the transport of dnstap. Each frame has its length in front of it. A length of 0
//! introduces a control frame, such as START. A writer and a reader on a socket first agree on the
//! type of the content (READY, ACCEPT). At the end, the reader confirms that it has everything (STOP,
//! FINISH). A file has START and STOP only.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::fchown;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};
use rustix::process::{Gid, Uid};

use super::frame::{
    ACCEPT, CONTENT_TYPE, FINISH, READY, START, STOP, control, from_next_frame, unwritten_frames,
};
use super::frame_file::FrameFile;
use super::log_file::open_or_make;
use super::unwritten::{RETRY, Unwritten, is_full, write_all};

/// Where the frames of a log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameDestination {
    /// The Unix socket of a program that reads frames. The server connects again if the program is
    /// restarted.
    Unix(PathBuf),
    /// A file. SIGUSR1 makes the server begin a new one.
    File(PathBuf),
}

/// Parses `unix:PATH`, or the path of a file.
impl FromStr for FrameDestination {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:").unwrap_or(text) {
            "" | "-" => Err("give unix:PATH for a socket, or the path of a file"),
            path if path.len() < text.len() => Ok(Self::Unix(path.into())),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl fmt::Display for FrameDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl FrameDestination {
    /// Returns the folder in which the file is made again, if this is a file.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::Unix(_) => None,
            Self::File(path) => Some(std::path::absolute(path).ok()?.parent()?.to_owned()),
        }
    }
}

/// Maximum length of a control frame.
const MAX_CONTROL: usize = 512;
/// Maximum time until a reader takes bytes or answers.
const PATIENCE: Duration = Duration::from_secs(1);
/// Number of attempts to complete a file that was ended on a full disk.
const ATTEMPTS: u32 = 60;

/// An open stream of frames.
#[derive(Debug)]
pub(super) struct FrameStream {
    /// The log's name in messages.
    name: &'static str,
    content_type: &'static str,
    output: Output,
}

#[derive(Debug)]
enum Output {
    File {
        path: PathBuf,
        file: FrameFile<File>,
        /// Whether this process has made the file.
        is_new: bool,
        /// The first file that was renamed and ended, but is not complete because the disk is full. The
        /// number of attempts that are left is beside it. If somebody has removed the file, the disk has
        /// its room only when the server gives it up.
        ended: Option<(FrameFile<File>, u32)>,
        /// When to try again to complete files.
        retry: Instant,
    },
    Socket {
        path: PathBuf,
        /// The connection after the handshake.
        stream: Option<UnixStream>,
        /// When to try to connect again.
        retry: Instant,
        /// Whether the log names the reason why there is no connection.
        has_warned: bool,
    },
}

/// Returns true if there is a file of an earlier run at this path.
pub(super) fn has_frames(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0)
}

impl FrameStream {
    /// Opens a stream. A file of an earlier run is renamed to `FILE.1`. A socket need not exist yet.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub(super) fn open(
        name: &'static str,
        destination: &FrameDestination,
        content_type: &'static str,
    ) -> io::Result<Self> {
        let output = match destination {
            FrameDestination::File(path) => {
                if has_frames(path) {
                    let mut old = path.clone().into_os_string();
                    old.push(".1");
                    fs::rename(path, old)?;
                }
                // A file that is still there is empty, or a device.
                let (file, is_new) = open_or_make(path, OpenOptions::new().write(true))?;
                let (file, begun) = FrameFile::begin(file, content_type);
                match begun {
                    Err(error) if is_full(&error) => warn_of_late_begin(name, path, &error),
                    begun => begun?,
                }
                Output::File {
                    path: path.clone(),
                    file,
                    is_new,
                    ended: None,
                    retry: Instant::now(),
                }
            }
            FrameDestination::Unix(path) => Output::Socket {
                path: path.clone(),
                stream: None,
                retry: Instant::now(),
                has_warned: false,
            },
        };
        let mut this = Self {
            name,
            content_type,
            output,
        };
        this.is_ready();
        Ok(this)
    }

    /// Gives a file to the server's user, if this process has made it.
    pub(super) fn give_to(&self, user: (Uid, Gid)) -> io::Result<()> {
        match &self.output {
            Output::File {
                file, is_new: true, ..
            } => Ok(fchown(file.file(), Some(user.0), Some(user.1))?),
            _ => Ok(()),
        }
    }

    /// Ends a file that was renamed, and begins a new one. Does nothing for a socket. On an error, frames
    /// still go to the old file. If the new file exists, it is no error that nothing can be written: both
    /// files are then completed later.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let Output::File {
            path, file, ended, ..
        } = &mut self.output
        else {
            return Ok(());
        };
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o640);
        let next = options.open(&*path)?;
        // The file exists now, so it is the only one that a later rotation can rename.
        let (next, begun) = FrameFile::begin(next, self.content_type);
        if let Err(error) = begun {
            warn_of_late_begin(self.name, path, &error);
        }
        let mut old = mem::replace(file, next);
        old.end();
        // On a disk that is still full, a later file has no frames.
        if !old.is_complete() && ended.is_none() {
            *ended = Some((old, ATTEMPTS));
        }
        Ok(())
    }

    /// Writes what a full disk has cut off, at most once a second.
    fn complete(&mut self) {
        let Output::File {
            path,
            file,
            ended,
            retry,
            ..
        } = &mut self.output
        else {
            return;
        };
        if (ended.is_none() && file.is_complete()) || Instant::now() < *retry {
            return;
        }
        if let Some((old, attempts)) = ended {
            *attempts -= 1;
            let completed = old.complete();
            if let Err(error) = &completed
                && *attempts == 0
            {
                tracing::warn!(
                    "{}: {}: {error}; the file that was renamed stays without its last bytes",
                    self.name,
                    path.display()
                );
            }
            if completed.is_ok() || *attempts == 0 {
                *ended = None;
            }
        }
        // The next frames name the reason if the disk is still full.
        let _ = file.complete();
        *retry = Instant::now() + RETRY;
    }

    /// Returns true if frames can be written now. Connects to the socket if there is no connection, or
    /// if the reader has closed it.
    pub(super) fn is_ready(&mut self) -> bool {
        self.complete();
        let Output::Socket {
            path,
            stream,
            retry,
            has_warned,
        } = &mut self.output
        else {
            return true;
        };
        if stream.as_ref().is_some_and(is_open) {
            return true;
        }
        *stream = None;
        if Instant::now() < *retry {
            return false;
        }
        match connected(path, self.content_type) {
            Ok(new) => {
                tracing::info!("{}: connected to unix:{}", self.name, path.display());
                (*stream, *has_warned) = (Some(new), false);
                true
            }
            Err(error) => {
                if !*has_warned {
                    tracing::warn!(
                        "{}: unix:{}: {error}; the server tries again each second, and drops \
                         messages when its ring is full; start the program that reads them, and let \
                         the server's user write to its socket",
                        self.name,
                        path.display()
                    );
                }
                (*retry, *has_warned) = (Instant::now() + RETRY, true);
                false
            }
        }
    }

    /// Writes complete frames.
    pub(super) fn write(&mut self, frames: &[u8]) -> Result<(), Unwritten> {
        match &mut self.output {
            Output::File { file, .. } => file.write(frames),
            Output::Socket { stream, .. } => {
                let Some(open) = stream else {
                    return Err(unwritten_frames(ErrorKind::NotConnected.into(), frames));
                };
                write_all(open, frames).map_err(|(error, written)| {
                    // A part of a frame may be on its way, so this connection is of no use any more.
                    *stream = None;
                    let rest = from_next_frame(frames, written);
                    let is_cut = frames.len() - rest.len() > written;
                    let mut unwritten = unwritten_frames(error, rest);
                    unwritten.lines += u64::from(is_cut);
                    unwritten
                })
            }
        }
    }

    /// Tells the reader that there are no more frames, and waits until it has read all of them.
    pub(super) fn finish(&mut self) {
        match &mut self.output {
            Output::File { file, ended, .. } => {
                // Nobody is left to be told.
                let _ = ended.take().map(|(mut old, _)| old.complete());
                file.end();
            }
            Output::Socket { stream, .. } => {
                let _ = stream.take().map_or(Ok(()), |mut stream| {
                    stream.write_all(&control(STOP, ""))?;
                    read_control(&mut stream, FINISH).map(drop)
                });
            }
        }
    }
}

/// Says that a file of frames has no beginning yet.
fn warn_of_late_begin(name: &str, path: &Path, error: &io::Error) {
    tracing::warn!(
        "{name}: {}: {error}; the server tries each second to begin the file, and loses messages until \
         then",
        path.display()
    );
}

/// Returns true if the reader has not closed the connection.
fn is_open(stream: &UnixStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(stream, &mut [0; 1], flags) {
        Ok((_, received)) => received > 0,
        Err(error) => error == Errno::AGAIN || error == Errno::INTR,
    }
}

/// Connects to a reader, and agrees with it on the type of the content.
fn connected(path: &Path, content_type: &str) -> io::Result<UnixStream> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket: OwnedFd = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // They also limit the attempt to connect, if the reader accepts nobody.
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, direction, Some(PATIENCE))?;
    }
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let mut stream = UnixStream::from(socket);
    stream.write_all(&control(READY, content_type))?;
    let accepted = read_control(&mut stream, ACCEPT)?;
    if !fields(&accepted).any(|field| field == content_type.as_bytes()) {
        let why = format!("the program that listens there does not read {content_type}");
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    stream.write_all(&control(START, content_type))?;
    Ok(stream)
}

/// Reads a control frame of this kind, and returns what follows the kind.
fn read_control(stream: &mut impl Read, kind: u32) -> io::Result<Vec<u8>> {
    let wrong = |why| Err(io::Error::new(ErrorKind::InvalidData, why));
    let mut word = [0; 4];
    let mut next = |stream: &mut dyn Read| -> io::Result<u32> {
        stream
            .read_exact(&mut word)
            .map_err(|error| match error.kind() {
                ErrorKind::WouldBlock => {
                    io::Error::new(ErrorKind::TimedOut, "no answer within 1 s")
                }
                _ => error,
            })?;
        Ok(u32::from_be_bytes(word))
    };
    if next(stream)? != 0 {
        return wrong("the program that listens there does not speak Frame Streams");
    }
    let len = next(stream)? as usize;
    if !(4..=MAX_CONTROL).contains(&len) {
        return wrong("a control frame has 4 to 512 bytes");
    }
    let found = next(stream)?;
    let mut rest = vec![0; len - 4];
    stream.read_exact(&mut rest)?;
    if found != kind {
        return wrong("the program that listens there answers with another control frame");
    }
    Ok(rest)
}

/// Returns the content types in a control frame.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (kind, after) = rest.split_first_chunk()?;
        let (len, after) = after.split_first_chunk()?;
        let (value, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        rest = after;
        (u32::from_be_bytes(*kind) == CONTENT_TYPE).then_some(value)
    })
}

#[cfg(test)]
mod tests;
