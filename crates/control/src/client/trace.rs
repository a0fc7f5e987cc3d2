//! The command `trace`.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::future::pending;
use std::io::{self, IsTerminal as _, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use hyper::{HeaderMap, Method, StatusCode};
use tokio::signal::ctrl_c;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::socket::{SocketArgs, Wait, cut, read, runtime};
use crate::args::host_address;
use crate::log::tell;
use crate::report;
use crate::trace::session::{DROPPED, MAX_SECONDS, MAX_SNAP, MIN_SNAP, NUMBER, PACKETS, STALLED};
use crate::units::{self, seconds, size};

/// The options of `trace`.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// Address of the client.
    #[arg(value_parser = host_address)]
    address: IpAddr,

    /// Where the capture goes: a file, or `-` for standard output. Without this option, it goes to
    /// standard output, unless that is a terminal.
    #[arg(long, value_name = "FILE|-")]
    out: Option<PathBuf>,

    /// End the trace after this number of packets.
    #[arg(long, value_name = "N", value_parser = units::number::<u64>(1..=u64::MAX))]
    count: Option<u64>,

    /// End the trace after this time, in seconds or with a unit, such as `2min`.
    #[arg(long, value_name = "TIME", value_parser = seconds(1..=MAX_SECONDS))]
    seconds: Option<u32>,

    /// Maximum number of bytes of each packet in the capture.
    #[arg(long, value_name = "SIZE", default_value_t = MAX_SNAP,
          value_parser = size(MIN_SNAP..=MAX_SNAP))]
    snap: u32,

    /// Print the numbers of packets at the end as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: SocketArgs,
}

/// The error of a closed standard output.
const CLOSED: &str = "standard output is closed";

impl TraceArgs {
    pub(super) fn run(&self, program: &str) -> Result<ExitCode, String> {
        let socket = self.at.socket(program);
        let mut output = Output::open(self.out.as_deref())?;
        let mut target = format!("/trace?peer={}&snap={}", self.address, self.snap);
        for (name, value) in [
            ("count", self.count),
            ("seconds", self.seconds.map(u64::from)),
        ] {
            if let Some(value) = value {
                // Writing to a string cannot fail.
                let _ = write!(target, "&{name}={value}");
            }
        }
        let (sender, receiver) = oneshot::channel();
        obey_signals(program, &socket, receiver)?;
        let begin = |fields: &HeaderMap| {
            if let Some(number) = number(fields, NUMBER) {
                let _ = sender.send(number);
            }
        };
        let take = |bytes: &[u8]| output.take(bytes);
        let trace = read(&socket, Method::GET, &target, Wait::ForPauses, begin, take);
        match runtime()?.block_on(trace) {
            Ok(ending) if !ending.is_whole && output.open.is_none() => Err(cut(&socket)),
            Ok(ending) if ending.code == StatusCode::OK => {
                let summary = Summary::of(&ending.trailers).ok_or_else(|| output.cut())?;
                if self.json {
                    tell(summary.to_json());
                } else {
                    tell(format_args!("{program}: {summary}"));
                }
                Ok(match summary.stalled {
                    None => ExitCode::SUCCESS,
                    Some(_) => ExitCode::FAILURE,
                })
            }
            Ok(_) => Err(output.refusal()),
            // The reader of the capture has seen enough.
            Err(error) if error == CLOSED => Ok(ExitCode::SUCCESS),
            Err(error) => Err(error),
        }
    }
}

/// Ends the trace at Ctrl-C, so that the capture gets its end. A second Ctrl-C ends the command at once.
/// So does a server that does not answer, because the capture gets no end then.
///
/// Whatever reads the capture may take nothing for a while, and the command's thread then waits in a
/// write. Therefore another thread obeys the signals.
fn obey_signals(
    program: &str,
    socket: &Path,
    number: oneshot::Receiver<u64>,
) -> Result<(), String> {
    let (program, socket) = (program.to_owned(), socket.to_owned());
    let runtime = runtime()?;
    let obey = move || {
        runtime.block_on(async move {
            let why = match ctrl_c().await {
                Ok(()) => tokio::select! {
                    error = stop(&socket, number) => error,
                    _ = ctrl_c() => INTERRUPTED.to_owned(),
                },
                Err(error) => format!("cannot wait for Ctrl-C: {error}"),
            };
            // Standard error may be the same pipe as the capture's.
            let told = spawn_blocking(move || tell(format_args!("{program}: {why}")));
            let _ = timeout(LAST_WORDS, told).await;
            // The other thread may never come back from its write.
            std::process::exit(1)
        })
    };
    let spawned = thread::Builder::new().name("signals".into()).spawn(obey);
    spawned.map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(())
}

/// The error after a second Ctrl-C.
const INTERRUPTED: &str = "ended before the capture was complete; its last packets are missing";
/// Maximum time in which the command writes its last message.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Ends the trace with this number, as soon as it is known. Returns an error if the server does not answer,
/// and otherwise waits for ever.
async fn stop(socket: &Path, number: oneshot::Receiver<u64>) -> String {
    let Ok(number) = number.await else {
        return pending().await;
    };
    let target = format!("/trace?number={number}");
    let (begin, take) = (|_: &HeaderMap| {}, |_: &[u8]| Ok(()));
    match read(socket, Method::DELETE, &target, Wait::Briefly, begin, take).await {
        Ok(_) => pending().await,
        Err(error) => error,
    }
}

/// Returns the number in a field of an answer.
fn number(fields: &HeaderMap, name: &str) -> Option<u64> {
    fields.get(name)?.to_str().ok()?.parse().ok()
}

/// How many packets a trace has.
struct Summary {
    packets: u64,
    dropped: u64,
    /// The time in seconds for which the server has waited, if it cut the trace short for this reason.
    stalled: Option<u64>,
}

impl Summary {
    /// Reads the fields behind a trace. Returns `None` if the server ended before it had sent them.
    fn of(trailers: &HeaderMap) -> Option<Self> {
        Some(Self {
            packets: number(trailers, PACKETS)?,
            dropped: number(trailers, DROPPED)?,
            stalled: number(trailers, STALLED),
        })
    }

    fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "packets": self.packets,
            "missing": self.dropped,
            "stalled": self.stalled.is_some(),
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packets = report::counted(self.packets, "packet");
        match self.dropped {
            0 => write!(f, "{packets}, none missing")?,
            dropped => {
                let dropped = report::count(dropped);
                write!(
                    f,
                    "{packets}; {dropped} more are missing, because they came faster than they were read"
                )?;
            }
        }
        match self.stalled {
            None => Ok(()),
            Some(seconds) => write!(
                f,
                "; the server cut the trace short, because it had to wait {seconds} s for a reader of the capture"
            ),
        }
    }
}

/// Where the capture goes. The file is made when the first bytes of a capture arrive.
struct Output {
    file: Option<PathBuf>,
    open: Option<Box<dyn Write>>,
    blocks: Blocks,
    /// The bytes of an answer that is no capture.
    message: Vec<u8>,
}

/// The first bytes of a capture.
const SECTION_HEADER: &[u8] = b"\n\r\r\n";

impl Output {
    fn open(path: Option<&Path>) -> Result<Self, String> {
        let file = path.filter(|path| *path != Path::new("-"));
        if path.is_none() && io::stdout().is_terminal() {
            return Err(
                "a capture is not text; give --out FILE, or pipe it to tcpdump -n -r -".to_owned(),
            );
        }
        Ok(Self {
            file: file.map(Path::to_owned),
            open: None,
            blocks: Blocks::default(),
            message: Vec::new(),
        })
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.open.is_none() && !bytes.starts_with(SECTION_HEADER) {
            self.message.extend_from_slice(bytes);
            return Ok(());
        }
        let written = self.write(bytes);
        written.map_err(|error| match (&self.file, error.kind()) {
            (None, io::ErrorKind::BrokenPipe) => CLOSED.to_owned(),
            (None, _) => format!("cannot write to standard output: {error}"),
            (Some(path), _) => format!("cannot write {}: {error}", path.display()),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let out = match &mut self.open {
            Some(out) => out,
            None => self.open.insert(match &self.file {
                Some(path) => Box::new(create(path)?),
                None => Box::new(io::stdout()),
            }),
        };
        out.write_all(bytes)?;
        out.flush()?;
        self.blocks.take(bytes);
        Ok(())
    }

    /// Says that the server ended before the trace did, and how many packets there are.
    fn cut(&self) -> String {
        let packets = match self.blocks.packets {
            1 => "1 packet is".to_owned(),
            n => format!("{} packets are", report::count(n)),
        };
        let place = match &self.file {
            Some(path) => path.display().to_string(),
            None => "standard output".to_owned(),
        };
        format!("the server ended, and the trace with it; {packets} in {place}")
    }

    /// Returns the server's message that there is no capture.
    fn refusal(&self) -> String {
        let message = String::from_utf8_lossy(&self.message);
        format!("no trace: {}", message.trim_end())
    }
}

/// Makes the file of a capture. Only its owner may read a new file, which has everything that a client
/// sends.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    options.mode(0o600).open(path)
}

/// Counts the packets of a capture as its bytes pass.
#[derive(Debug, Default)]
struct Blocks {
    /// The beginning of the block that is passing: its type and its length.
    head: Vec<u8>,
    /// Number of bytes of this block that are still to come, behind its beginning.
    left: usize,
    /// Number of packets that have passed completely.
    packets: u64,
}

/// Length of the beginning of a block.
const HEAD: usize = 8;
/// The type of a block with a packet.
const ENHANCED_PACKET: u32 = 6;

impl Blocks {
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.head.len() < HEAD {
                let (head, rest) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
                self.head.extend_from_slice(head);
                bytes = rest;
                self.left = self
                    .word(4)
                    .map_or(0, |length| length as usize)
                    .saturating_sub(HEAD);
            } else {
                let passing = bytes.len().min(self.left);
                bytes = &bytes[passing..];
                self.left -= passing;
            }
            if self.head.len() == HEAD && self.left == 0 {
                self.packets += u64::from(self.word(0) == Some(ENHANCED_PACKET));
                self.head.clear();
            }
        }
    }

    /// Reads a number of the beginning. The server writes little-endian captures.
    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.head.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::trace::capture::{Direction, capture};
    use crate::trace::pcapng::Pcapng;

    #[test]
    fn a_capture_goes_to_its_file_and_a_message_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcapng");
        let mut output = Output::open(Some(&path)).unwrap();
        output.take(b"another trace is running\n").unwrap();
        assert_eq!(output.refusal(), "no trace: another trace is running");
        assert!(!path.exists());
        let mut output = Output::open(Some(&path)).unwrap();
        output.take(b"\n\r\r\nheader").unwrap();
        output.take(b", packets").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"\n\r\r\nheader, packets");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut output = Output::open(Some(Path::new("/nowhere/file"))).unwrap();
        let error = output.take(SECTION_HEADER).unwrap_err();
        assert!(
            error.starts_with("cannot write /nowhere/file: No such"),
            "{error}"
        );
    }

    #[test]
    fn the_summary_says_how_many_packets_are_missing() {
        let mut trailers = HeaderMap::new();
        assert!(Summary::of(&trailers).is_none());
        trailers.insert(PACKETS, 1_234.into());
        trailers.insert(DROPPED, 0.into());
        let whole = Summary::of(&trailers).unwrap();
        assert_eq!(whole.to_string(), "1,234 packets, none missing");
        assert_eq!(
            whole.to_json().to_string(),
            r#"{"missing":0,"packets":1234,"stalled":false}"#
        );
        trailers.insert(DROPPED, 5.into());
        let missing = Summary::of(&trailers).unwrap().to_string();
        assert!(missing.starts_with("1,234 packets; 5 more are missing"));
        trailers.insert(STALLED, 60.into());
        let stalled = Summary::of(&trailers).unwrap();
        let early = "it had to wait 60 s for a reader of the capture";
        assert!(stalled.to_string().ends_with(early), "{stalled}");
        assert_eq!(stalled.to_json()["stalled"], true);
    }

    #[test]
    fn a_capture_whose_server_ended_has_the_packets_that_are_complete() {
        let mut file = Pcapng::new("test", 1, 96).unwrap();
        for sent in [false, true] {
            let direction = if sent {
                Direction::Sent
            } else {
                Direction::Received
            };
            let (mut capture, mut reader) = capture("192.0.2.7".parse().unwrap(), 96);
            let mut packet = [0; 61];
            packet[12] = 8;
            packet[30..34].copy_from_slice(&[192, 0, 2, 7]);
            capture.copy(direction, &[&packet]);
            file.packet(0, &reader.take().unwrap()).unwrap();
        }
        let bytes = file.take();
        for piece in [1, 7, bytes.len()] {
            let mut blocks = Blocks::default();
            bytes.chunks(piece).for_each(|piece| blocks.take(piece));
            assert_eq!(blocks.packets, 2, "in pieces of {piece} bytes");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcapng");
        let mut output = Output::open(Some(&path)).unwrap();
        output.take(&bytes[..bytes.len() - 1]).unwrap();
        let expected = format!(
            "the server ended, and the trace with it; 1 packet is in {}",
            path.display()
        );
        assert_eq!(output.cut(), expected);
    }
}
