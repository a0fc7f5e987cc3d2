//! The command line that all servers have in common.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use nmio::device::{AddressPrefix, Device, InterfaceConfig, Transport};
use nmio::{FaultConfig, LoopConfig, MAX_BATCH, Wait};

use crate::rights::{Sandbox, UserSpec};

/// Most workers of one process: one for each queue that can be served.
pub const MAX_WORKERS: u32 = nmio::device::MAX_QUEUES;

/// δt of the paper, in microseconds.
const FLUSH_INTERVAL_US: u32 = 80;
/// Frames between two looks at the clock.
const BATCH: u16 = 64;

/// The options of `serve`, for `#[command(flatten)]`, or made by
/// [`on`](Self::on) and changed field by field.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Network")]
pub struct ServeArgs {
    /// Where packets come from: `auto`, `tap:NAME`, or
    /// `xdp:IFACE[,queues=N[,partial]][,vlan=ID[,ID]][,generic][,partial-checksums][,offload=auto|on|off]`.
    ///
    /// `auto` makes a veth pair on this host, serves on one end and leaves
    /// the other to the kernel. Of an interface all queues are served; with
    /// `queues=N` so many, if packets arrive on no others, and with
    /// `queues=N,partial` even if they do. `vlan=10,20` serves frames with a
    /// tag of these VLANs beside untagged ones. `partial-checksums` accepts what a peer with
    /// TX checksum offload sends over veth; one corrupted packet in 65,536
    /// then passes. With `offload` runs of segments leave as super-segments,
    /// which the device cuts: `auto` where it does so and the rings copy
    /// anyway, `on` even where the kernel must cut, `off` never.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: Device,

    /// An address of the server's own, as IP/PREFIX; may repeat, IPv4 and
    /// IPv6. Without it the interface's own addresses are shared with the
    /// kernel.
    #[arg(long = "address", value_name = "IP/PREFIX")]
    pub addresses: Vec<AddressPrefix>,

    /// The port to serve; the program's own without it, such as 80 for HTTP and 53 for
    /// DNS. Of several programs in one it is the first one's.
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=u16::MAX))]
    pub port: Option<u16>,

    /// Workers, one queue and one thread each. Without it as many as the
    /// interface has queues, or as `queues=N` says; 1 on `auto` and `tap`.
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=MAX_WORKERS))]
    pub workers: Option<u32>,

    /// What a worker does when there is nothing to do.
    #[arg(long, value_enum, default_value_t = WaitArg::Block)]
    pub wait: WaitArg,

    /// Most time between two flushes of the TX ring while packets keep
    /// coming (δt of the paper), in microseconds.
    #[arg(long = "flush-interval-us", value_name = "MICROSECONDS", default_value_t = FLUSH_INTERVAL_US,
          value_parser = number::<u32>(0..=5_000))]
    pub flush_interval_us: u32,

    /// Frames handled before the clock is read again.
    #[arg(long, value_name = "FRAMES", default_value_t = BATCH,
          value_parser = number::<u16>(1..=MAX_BATCH as u16))]
    pub batch: u16,

    /// The user, and the group, that the server's threads become once devices
    /// are open and content is read. Without it root becomes the user with the
    /// program's name, or else nobody; any other user stays who they are.
    #[arg(long, value_name = "NAME[:GROUP]", help_heading = "Rights")]
    pub user: Option<UserSpec>,

    /// Limits on files (Landlock) and system calls (seccomp), which each
    /// thread takes before it handles a packet.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Sandbox::Auto,
          help_heading = "Rights")]
    sandbox: Sandbox,

    /// The same as `--sandbox off`.
    #[arg(long, conflicts_with = "sandbox", help_heading = "Rights")]
    no_sandbox: bool,

    /// Write every frame that passes to FILE, for Wireshark; with several
    /// workers to FILE.0, FILE.1 and so on. FILE is a regular file or a new
    /// one. Slow.
    #[arg(long, value_name = "FILE", value_parser = parse_capture, help_heading = "Diagnosis")]
    pub pcap: Option<PathBuf>,

    /// What is logged to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn,
          help_heading = "Diagnosis")]
    pub log: LogLevel,

    /// For tests only: lose, double, reorder or corrupt frames at random, as
    /// `WORD=VALUE,…` with `drop`, `duplicate`, `reorder`, `corrupt` (rates
    /// from 0 to 1; for one direction with `rx-` or `tx-` in front), `hold`
    /// and `seed`. Each worker adds its number to the seed.
    #[arg(long, value_name = "drop=RATE,seed=N", help_heading = "Diagnosis")]
    pub fault: Option<FaultConfig>,
}

/// A parser of whole numbers in `range`, whose errors tell the range.
pub(crate) fn number<T: FromStr + PartialOrd + Display>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone
where
    RangeInclusive<T>: Clone,
{
    move |text| {
        let parsed = text.parse().ok().filter(|number| range.contains(number));
        let (least, most) = (range.start(), range.end());
        parsed.ok_or_else(|| format!("give a whole number from {least} to {most}"))
    }
}

/// A path for `--pcap`.
fn parse_capture(text: &str) -> Result<PathBuf, &'static str> {
    if text == "-" {
        return Err("a capture goes to a file, never to standard output; give a path");
    }
    Ok(text.into())
}

/// As on the command line without an option: device `auto`.
impl Default for ServeArgs {
    fn default() -> Self {
        Self {
            device: Device::Auto,
            addresses: Vec::new(),
            port: None,
            workers: None,
            wait: WaitArg::Block,
            flush_interval_us: FLUSH_INTERVAL_US,
            batch: BATCH,
            user: None,
            sandbox: Sandbox::Auto,
            no_sandbox: false,
            pcap: None,
            log: LogLevel::Warn,
            fault: None,
        }
    }
}

impl ServeArgs {
    /// Serves on `device`, with the defaults of the command line.
    pub fn on(device: Device) -> Self {
        Self {
            device,
            ..Self::default()
        }
    }

    /// The same with this sandbox.
    #[must_use]
    pub fn with_sandbox(self, sandbox: Sandbox) -> Self {
        Self {
            sandbox,
            no_sandbox: false,
            ..self
        }
    }

    /// The interface that `program` wants for these `services`.
    pub(crate) fn interface(
        &self,
        program: &'static str,
        services: Vec<(Transport, u16)>,
    ) -> InterfaceConfig {
        InterfaceConfig {
            device: self.device.clone(),
            own_addresses: self.addresses.clone(),
            services,
            workers: self.workers,
            wait: self.wait.into(),
            program,
        }
    }

    /// The sandbox as asked for.
    pub fn sandbox(&self) -> Sandbox {
        if self.no_sandbox {
            Sandbox::Off
        } else {
            self.sandbox
        }
    }

    /// The loop's constants as asked for.
    pub fn loop_config(&self) -> LoopConfig {
        LoopConfig {
            flush_interval: Duration::from_micros(u64::from(self.flush_interval_us)),
            batch: usize::from(self.batch),
            wait: self.wait.into(),
            ..LoopConfig::default()
        }
    }
}

/// `--wait`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitArg {
    /// Sleep in the kernel until a packet comes; not while SYNs flood.
    Block,
    /// Look at the ring again at once: one whole core, the least delay.
    Spin,
    /// Let the kernel poll the device where its driver supports that.
    BusyPoll,
}

impl From<WaitArg> for Wait {
    fn from(arg: WaitArg) -> Self {
        match arg {
            WaitArg::Block => Self::Block,
            WaitArg::Spin => Self::Spin,
            WaitArg::BusyPoll => Self::BusyPoll,
        }
    }
}

/// `--log`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What ends the program.
    Error,
    /// What should be looked at.
    Warn,
    /// What happens off the data path.
    Info,
    /// For whoever works on the program.
    Debug,
    /// Everything.
    Trace,
}

/// Serves on its own network stack until Ctrl-C.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    network: ServeArgs,
}

/// Reads the command line of the program with this name, which takes only the options of
/// [`ServeArgs`]. Ends the process when the command line is wrong or asks for help.
pub fn network_args(name: &'static str) -> ServeArgs {
    let matches = Cli::command().name(name).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    cli.network
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn parse(line: &str) -> Result<ServeArgs, clap::Error> {
        Cli::try_parse_from(std::iter::once("server").chain(line.split_whitespace()))
            .map(|cli| cli.serve)
    }

    #[test]
    fn the_defaults_are_the_papers() {
        let args = parse("").unwrap();
        let config = args.loop_config();
        assert_eq!(config.flush_interval, Duration::from_micros(80));
        assert_eq!(config.straggler, Duration::from_millis(5));
        assert_eq!(config.wait, Wait::Block);
        assert_eq!(args.workers, None);
        assert_eq!(args.port, None);
    }

    #[test]
    fn who_has_no_command_line_gets_its_defaults() {
        let parsed = format!("{:?}", parse("").unwrap());
        assert_eq!(format!("{:?}", ServeArgs::default()), parsed);
        let args = ServeArgs::on("tap:t0".parse().unwrap());
        let parsed = parse("--device tap:t0 --sandbox off").unwrap();
        let args = args.with_sandbox(Sandbox::Off);
        assert_eq!(format!("{args:?}"), format!("{parsed:?}"));
    }

    #[test]
    fn the_loop_is_as_asked_for() {
        for (word, wait) in [
            ("block", Wait::Block),
            ("spin", Wait::Spin),
            ("busy-poll", Wait::BusyPoll),
        ] {
            let line = format!("--wait {word} --flush-interval-us 7 --batch 9");
            let config = parse(&line).unwrap().loop_config();
            assert_eq!(config.wait, wait);
            assert_eq!(config.flush_interval, Duration::from_micros(7));
            assert_eq!(config.batch, 9);
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        for line in [
            "--port 0",
            "--port 65536",
            "--workers 0",
            "--workers 257",
            "--batch 0",
            "--batch 257",
            "--wait never",
            "--address 10.0.0.1/33",
            "--device xdp",
            "--fault drop=2",
            "--fault drop",
            "--fault lose=0.1",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_word_that_is_no_number_is_told_the_range() {
        for line in ["--port http", "--port 0", "--port 65536"] {
            let message = parse(line).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains("from 1 to 65535"), "{message}");
        }
    }

    #[test]
    fn a_capture_does_not_go_to_standard_output() {
        let message = parse("--pcap -").map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("never to standard output"), "{message}");
        let path = parse("--pcap ./-").unwrap().pcap;
        assert_eq!(path, Some("./-".into()));
    }

    #[test]
    fn faults_are_a_rate_and_a_seed() {
        let fault = parse("--fault drop=0.01,seed=7").unwrap().fault;
        let fault = fault.unwrap();
        assert_eq!(fault.seed, 7);
        for rate in [fault.received.drop, fault.sent.drop] {
            assert!((rate - 0.01).abs() < f64::EPSILON);
        }
    }
}
