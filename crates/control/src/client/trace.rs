//! The command `trace`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use hyper::{HeaderMap, Method, StatusCode};

use super::socket::{SocketArgs, read, runtime};
use crate::args::number;
use crate::report;
use crate::trace::session::{DROPPED, MAX_SNAP, PACKETS};
use crate::units::{seconds, size};

/// The options of `trace`.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// Address of the client.
    address: IpAddr,

    /// Where the capture goes: a file, or `-` for standard output. Without this option, it goes to
    /// standard output, unless that is a terminal.
    #[arg(long, value_name = "FILE|-")]
    out: Option<PathBuf>,

    /// End the trace after this number of packets.
    #[arg(long, value_name = "N", value_parser = number::<u64>(1..=u64::MAX))]
    count: Option<u64>,

    /// End the trace after this time, in seconds or with a unit, such as `2min`.
    #[arg(long, value_name = "TIME", value_parser = seconds(1..=MAX_SECONDS))]
    seconds: Option<u32>,

    /// Maximum number of bytes of each packet in the capture.
    #[arg(long, value_name = "SIZE", default_value_t = MAX_SNAP,
          value_parser = size(MIN_SNAP..=MAX_SNAP))]
    snap: u32,

    #[command(flatten)]
    at: SocketArgs,
}

/// Maximum time of a trace, in seconds: a week.
const MAX_SECONDS: u32 = 7 * 24 * 3_600;
/// Minimum value of `--snap`: an Ethernet header.
const MIN_SNAP: u32 = 14;

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
        let taken = runtime()?.block_on(async {
            let trace = read(&socket, Method::GET, &target, |bytes| output.take(bytes));
            tokio::select! {
                taken = trace => taken,
                never = stop_at_signal(&socket) => match never {},
            }
        });
        match taken {
            Ok((StatusCode::OK, trailers)) => {
                eprintln!("{program}: {}", summary(&trailers));
                Ok(ExitCode::SUCCESS)
            }
            Ok(_) => Err(output.refusal()),
            // The reader of the capture has seen enough.
            Err(error) if error == CLOSED => Ok(ExitCode::SUCCESS),
            Err(error) => Err(error),
        }
    }
}

/// Ends the trace at each Ctrl-C, so that the capture gets its end.
async fn stop_at_signal(socket: &Path) -> std::convert::Infallible {
    loop {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        // If the server has ended, the trace has ended, too.
        let _ = read(socket, Method::DELETE, "/trace", |_| Ok(())).await;
    }
}

/// Says how many packets there are, from the fields behind a trace.
fn summary(trailers: &HeaderMap) -> String {
    let number = |name| {
        let value = trailers.get(name)?.to_str().ok()?;
        value.parse::<u64>().ok()
    };
    let (Some(packets), Some(dropped)) = (number(PACKETS), number(DROPPED)) else {
        return "the server has ended, and the capture with it".to_owned();
    };
    let packets = report::count(packets);
    match dropped {
        0 => format!("{packets} packets, none missing"),
        dropped => {
            let dropped = report::count(dropped);
            format!("{packets} packets; {dropped} more are missing, because they came too fast")
        }
    }
}

/// Where the capture goes. The file is made when the first bytes of a capture arrive.
struct Output {
    file: Option<PathBuf>,
    open: Option<Box<dyn Write>>,
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
                Some(path) => Box::new(File::create(path)?),
                None => Box::new(io::stdout()),
            }),
        };
        out.write_all(bytes)?;
        out.flush()
    }

    /// Returns the server's message that there is no capture.
    fn refusal(&self) -> String {
        let message = String::from_utf8_lossy(&self.message);
        format!("no trace: {}", message.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(summary(&trailers).contains("the server has ended"));
        trailers.insert(PACKETS, 1_234.into());
        trailers.insert(DROPPED, 0.into());
        assert_eq!(summary(&trailers), "1,234 packets, none missing");
        trailers.insert(DROPPED, 5.into());
        assert!(summary(&trailers).starts_with("1,234 packets; 5 more are missing"));
    }
}
