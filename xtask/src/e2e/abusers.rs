//! Clients that hold what they do not use, each thousand of them in a process of
//! its own: one process may not have as many files open.

use std::fmt::{self, Display};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use socket2::{SockFilter, SockRef};

use super::{dns, readers};
use crate::shell::{Context as _, Failure, Result};

/// Files that a process has open beside its connections.
const FILES: usize = 100;
/// The time between two bytes of a request, and between two looks at whether a
/// connection is still there.
const ROUND: Duration = Duration::from_secs(3);
/// Connections that are gone on with at a time: what counts is what they hold, and
/// not how many packets come at once.
const AT_ONCE: usize = 32;
/// Rounds between two reads of a reader that hardly reads, and what it reads.
const SIP_ROUNDS: u32 = 3;
const SIP: usize = 500;
/// What a client with holes has place for: all of [`holes`].
const LARGE_BUFFER: usize = 256 << 10;
/// Queries of one connection that reads no answer.
const QUERIES: usize = 250;
/// What a client with a shut window has place for.
const SMALL_BUFFER: usize = 2_048;
/// What an abuser says once all its connections have been opened.
const OPEN: &str = "all open";

/// What an abuser does with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Abuse {
    /// Half a request, and then a byte a round.
    HalfHead,
    /// Asks for a large file and reads nothing.
    ShutWindow,
    /// Asks for a large file and reads [`SIP`] bytes now and then.
    Sip,
    /// Asks for a large file and acknowledges it with holes.
    Holes,
    /// Asks [`QUERIES`] questions and reads no answer.
    Queries,
    /// Half a question, and then a byte a round.
    HalfQuestion,
}

/// A process of abusers; dropped, it ends.
pub(super) struct Abusers {
    child: Child,
}

impl Abusers {
    /// Starts a process that opens so many connections `from` an address to the
    /// server. Returns when all are open.
    pub(super) fn start(
        from: SocketAddr,
        to: SocketAddr,
        abuses: &[(Abuse, usize)],
    ) -> Result<Self> {
        let exe = std::env::current_exe().context("finding this program's own file")?;
        let mut command = Command::new(exe);
        command.args(["abuse", &from.to_string(), &to.to_string()]);
        command.args(
            abuses
                .iter()
                .map(|(abuse, count)| format!("{abuse}={count}")),
        );
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().context("starting abusers")?;
        Ok(Self { child })
    }

    /// Waits until all connections are open.
    pub(super) fn wait(&mut self) -> Result<()> {
        let mut said = vec![0; OPEN.len()];
        let mut pipe = self.child.stdout.take();
        let read = pipe.as_mut().map(|pipe| pipe.read_exact(&mut said));
        match read {
            Some(Ok(())) if said == OPEN.as_bytes() => Ok(()),
            _ => Err(Failure::new("abusers could not open their connections")),
        }
    }
}

impl Drop for Abusers {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("abusers: {error}");
        }
    }
}

/// The command line of the process itself.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The local address.
    from: SocketAddr,
    /// The server.
    to: SocketAddr,
    /// Kinds of abuse and how many connections each gets: KIND=COUNT.
    abuses: Vec<String>,
}

/// Holds the connections until standard input ends.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut wanted = Vec::new();
    for argument in &options.abuses {
        let (kind, count) = argument.split_once('=').unwrap_or((argument, ""));
        let (kind, count) = (
            kind.parse::<Abuse>()?,
            count.parse::<usize>().context(count)?,
        );
        wanted.extend(std::iter::repeat_n(kind, count));
    }
    readers::allow_files((FILES + wanted.len()) as u64)?;
    std::thread::spawn(|| {
        // Nothing comes but the end, and after it nobody waits for this program.
        let _ = std::io::stdin().read(&mut [0]);
        OVER.store(true, Ordering::Relaxed);
    });
    abuse(options.from, options.to, &wanted)
}

/// Whether the input has ended.
static OVER: AtomicBool = AtomicBool::new(false);

fn abuse(from: SocketAddr, to: SocketAddr, wanted: &[Abuse]) -> Result<()> {
    let mut open = Vec::new();
    for abuse in wanted {
        if OVER.load(Ordering::Relaxed) {
            return Ok(());
        }
        // The server may have taken it away before its first bytes.
        let stream = abuse.open(from, to).or_else(|_| abuse.open(from, to))?;
        open.push((*abuse, stream));
    }
    let mut output = std::io::stdout();
    output
        .write_all(OPEN.as_bytes())
        .and_then(|()| output.flush())
        .context("telling")?;
    let pause = ROUND / open.len().div_ceil(AT_ONCE).max(1) as u32;
    for round in 0.. {
        for some in open.chunks_mut(AT_ONCE) {
            for (abuse, stream) in some {
                if !abuse.goes_on(stream, round) {
                    // A refusal is as good as a place that is taken away.
                    if let Ok(again) = abuse.open(from, to) {
                        *stream = again;
                    }
                }
            }
            std::thread::sleep(pause);
            if OVER.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }
    Ok(())
}

impl Abuse {
    const ALL: [Self; 6] = [
        Self::HalfHead,
        Self::ShutWindow,
        Self::Sip,
        Self::Holes,
        Self::Queries,
        Self::HalfQuestion,
    ];

    /// Opens a connection and begins.
    fn open(self, from: SocketAddr, to: SocketAddr) -> Result<TcpStream> {
        let what = || format!("a connection from {from} to {to}");
        let fd = socket(AddressFamily::INET6, SocketType::STREAM, None).context(what())?;
        // Otherwise the client's kernel buffers all the answers.
        let buffer = match self {
            Self::HalfHead | Self::HalfQuestion => None,
            Self::Holes => Some(LARGE_BUFFER),
            Self::ShutWindow | Self::Sip | Self::Queries => Some(SMALL_BUFFER),
        };
        if let Some(size) = buffer {
            sockopt::set_socket_recv_buffer_size_force(&fd, size).context(what())?;
        }
        bind(&fd, &from).context(what())?;
        connect(&fd, &to).context(what())?;
        let mut stream = TcpStream::from(fd);
        if self == Self::Holes {
            let filter = holes();
            SockRef::from(&stream)
                .attach_filter(&filter)
                .context(what())?;
        }
        stream.write_all(&self.first_bytes()).context(what())?;
        stream.set_nonblocking(true).context(what())?;
        Ok(stream)
    }

    fn first_bytes(self) -> Vec<u8> {
        match self {
            Self::HalfHead => b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec(),
            Self::ShutWindow | Self::Sip | Self::Holes => {
                b"GET /size-30000000.bin HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()
            }
            Self::Queries => (0..QUERIES as u16)
                .flat_map(|id| dns::framed(&dns::question(id)))
                .collect(),
            // Its length, of 65,535 bytes, and none of them.
            Self::HalfQuestion => vec![0xff, 0xff],
        }
    }

    /// Goes on with a connection; `false` when the server has taken it away.
    fn goes_on(self, stream: &mut TcpStream, round: u32) -> bool {
        let done = match self {
            Self::HalfHead | Self::HalfQuestion => stream.write(b"x"),
            Self::Sip if round.is_multiple_of(SIP_ROUNDS) => stream.read(&mut [0; SIP]),
            _ => return matches!(stream.take_error(), Ok(None)),
        };
        match done {
            Ok(count) => count > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// A filter in front of a socket that drops nearly every second segment in one
/// stretch of 64 KB of four, however often it comes.
fn holes() -> [SockFilter; 5] {
    /// Where the sequence number is in the TCP header.
    const SEQ: u32 = 4;
    /// All zero in such a stretch.
    const STRETCH: u32 = 0x3_0000;
    /// Another value in nearly every segment.
    const CHANGING: u32 = 0x400;
    let code = |code: u32| code as u16;
    let jump_if_set = code(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K);
    let end = code(libc::BPF_RET | libc::BPF_K);
    [
        SockFilter::new(code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), 0, 0, SEQ),
        SockFilter::new(jump_if_set, 2, 0, STRETCH),
        SockFilter::new(jump_if_set, 0, 1, CHANGING),
        SockFilter::new(end, 0, 0, 0),
        SockFilter::new(end, 0, 0, u32::MAX),
    ]
}

impl Display for Abuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl FromStr for Abuse {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self> {
        let abuse = Self::ALL
            .into_iter()
            .find(|abuse| abuse.to_string() == name);
        abuse.ok_or_else(|| Failure::new(format!("no such abuse: {name}")))
    }
}
