//! Values over UDP, from a file that reloads read again. A client sends a key, and gets its value.
//!
//! ```text
//! # mkdir -m 755 /tmp/values && echo sand=yellow > /tmp/values/list
//! # cargo run --release -p examples --bin values -- serve /tmp/values/list
//! # echo sand | nc -u -w 1 198.18.0.2 7001
//! # cargo run --release -p examples --bin values -- reload     (when the file has changed)
//! ```
//!
//! The other commands for a running server are there, too, such as `status`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use control::{
    ContentFiles, ControlCommand, Counted, Handover, Listening, Program, Reloaded, ServeArgs,
    StartError, Tally, Turn, Watched, WorkerContext,
};
use ip::Sum;
use nmio::device::{MemoryPlan, Transport};
use nmio::{Instant, Port};
use udpip::{Answer, AnswerCopies, Datagram, Service, Tail, Udp};

const UNKNOWN: &[u8] = b"nobody knows this key\n";
/// Number of prepared packets for each worker. Further answers are copied.
const PACKETS: u32 = 1_024;

/// The value of each key. All threads share it.
type Values = Arc<HashMap<String, String>>;

/// Reads the lines `KEY=VALUE` of a file.
fn read(file: &Path) -> Result<Values, StartError> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
    let pair = |line: &str| {
        let (key, value) = line
            .split_once('=')
            .ok_or_else(|| format!("{name}: there is no = in the line {line:?}"))?;
        Ok((key.to_owned(), format!("{value}\n")))
    };
    text.lines()
        .map(pair)
        .collect::<Result<_, _>>()
        .map(Arc::new)
}

/// A prepared answer, which a worker makes for itself: the packets of its copies belong to one port.
struct Prepared {
    value: String,
    sum: Sum,
    copies: AnswerCopies,
}

/// The service of one worker.
struct Lookup(HashMap<Vec<u8>, Prepared>);

impl Lookup {
    fn new(values: &Values) -> Self {
        let prepare = |(key, value): (&String, &String)| {
            let prepared = Prepared {
                value: value.clone(),
                sum: Tail::new(value.as_bytes()).sum,
                copies: AnswerCopies::default(),
            };
            (key.clone().into_bytes(), prepared)
        };
        Self(values.iter().map(prepare).collect())
    }
}

impl Service for Lookup {
    type Message = Turn<Values>;

    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
        let key = datagram.payload().trim_ascii_end();
        let Some(prepared) = self.0.get_mut(key) else {
            let unknown = Answer::head(0).with_tail(Tail::new(UNKNOWN));
            return datagram.turn_around(unknown);
        };
        let tail = Tail {
            bytes: prepared.value.as_bytes(),
            sum: prepared.sum,
        };
        datagram.send_resident(Answer::head(0).with_tail(tail), &mut prepared.copies);
    }

    fn on_message(&mut self, turn: Turn<Values>, _now: Instant) {
        *self = Self::new(&turn.content);
        // Here the turn is dropped. So the reload learns that this worker has no old values any more.
    }
}

/// The program, which all threads share.
struct Server {
    file: PathBuf,
    /// The values with which workers begin.
    newest: Mutex<Values>,
    handover: Handover<Values>,
}

impl Server {
    fn load(file: PathBuf) -> Result<Self, StartError> {
        Ok(Self {
            newest: Mutex::new(read(&file)?),
            file,
            handover: Handover::default(),
        })
    }

    fn newest(&self) -> Values {
        Arc::clone(&self.newest.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Program for Server {
    const NAME: &'static str = "values";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const DEFAULT_PORT: u16 = 7_001;

    type Transports<P: Port> = Udp<Lookup>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Udp, port)]
    }

    fn memory(&self, _: &WorkerContext) -> MemoryPlan {
        MemoryPlan {
            resident_frames: PACKETS,
            ..MemoryPlan::default()
        }
    }

    fn transports<P: Port>(
        &self,
        _: &mut P,
        context: &WorkerContext,
    ) -> Result<Udp<Lookup>, StartError> {
        let (values, mailbox) = self.handover.open(&context.bell, || self.newest());
        let mut udp = Udp::new(context.port, Lookup::new(&values));
        udp.set_mailbox(mailbox);
        Ok(udp)
    }

    fn read_paths(&self) -> Vec<PathBuf> {
        vec![self.file.clone()]
    }

    fn files(&self) -> ContentFiles {
        ContentFiles {
            to_reload: vec![self.file.clone()],
            ..ContentFiles::default()
        }
    }

    fn can_reload(&self) -> bool {
        true
    }

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::Entry(self.file.clone())]
    }

    fn reload(&self, _only: Option<&str>) -> Result<Reloaded, StartError> {
        let values = read(&self.file)?;
        let begin_with_new = || {
            let newest = self.newest.lock();
            *newest.unwrap_or_else(PoisonError::into_inner) = Arc::clone(&values);
        };
        self.handover.send(begin_with_new, || Arc::clone(&values));
        Ok(format!("{} values", values.len()).into())
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        at.command(|address, port| format!("echo sand | nc -u -w 1 {address} {port}"))
    }

    fn counted<P: Port>(&self, udp: &Udp<Lookup>) -> Counted {
        Counted {
            partial_checksums: udp.counters().partial_checksum,
            ..Counted::default()
        }
    }

    fn tally<P: Port>(&self, udp: &Udp<Lookup>, tally: &mut Tally) {
        tally.event("answered", udp.counters().answered);
        control::tally_udp(tally, udp.counters());
    }
}

/// Values over UDP.
#[derive(Parser)]
enum Cli {
    /// Serve the values of a file, until Ctrl-C.
    Serve {
        /// File with lines KEY=VALUE.
        file: PathBuf,
        #[command(flatten)]
        network: Box<ServeArgs>,
    },
    #[command(flatten)]
    Control(ControlCommand),
}

fn main() -> ExitCode {
    match Cli::parse() {
        Cli::Serve { file, network } => control::serve(&network, || Server::load(file)),
        Cli::Control(command) => command.run(Server::NAME),
    }
}
