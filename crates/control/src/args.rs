//! The command-line options that all servers have in common.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Command, CommandFactory as _, Parser, ValueEnum};
use nmio::device::{AddressPrefix, Device, DeviceError, InterfaceConfig, Transport};
use nmio::{FaultConfig, LoopConfig, MAX_BATCH, PcapError, Wait};

use crate::config::{self, ConfigArgs, before, before_nth, is_wrong, with_places};
use crate::confined::look_at_files;
use crate::content_files::ContentFiles;
use crate::endpoint::EndpointArgs;
use crate::error::Error;
pub use crate::log::{LogFormat, LogLevel};
use crate::port_conflicts::wrong_ports;
use crate::privileges::{Plan, Sandbox, Table, UserSpec};
use crate::program::{PortOwner, StartError};
use crate::report::Lines;
use crate::system::CONFINES_EACH_THREAD;
use crate::units::{by_word, microseconds, number, seconds};
use crate::writable::check_file;

/// Maximum number of workers per server. Each worker serves one queue, so this limit equals the
/// maximum number of queues.
pub const MAX_WORKERS: u32 = nmio::device::MAX_QUEUES;

/// Values of `--workers`.
const WORKERS: RangeInclusive<u32> = 1..=MAX_WORKERS;
/// Values of `--flush-interval-us`.
const FLUSH_INTERVALS_US: RangeInclusive<u32> = 0..=5_000;
/// Values of `--batch`.
const BATCHES: RangeInclusive<u16> = 1..=MAX_BATCH as u16;
/// Values of `--drain`, in seconds: up to a day.
const DRAINS: RangeInclusive<u32> = 0..=86_400;

/// Default of `--flush-interval-us`, in microseconds. *Network Stack Specialization for
/// Performance* (SIGCOMM 2014), which this design follows, calls this interval δt.
const FLUSH_INTERVAL_US: u32 = 80;
/// Default of `--batch`: the number of frames handled between two readings of the clock.
const BATCH: u16 = 64;

/// Default of `--drain`, in seconds.
const DRAIN_SECONDS: u32 = 10;

/// The command-line options of a server, for use with `#[command(flatten)]`. A program without a
/// command line calls [`on`](Self::on) and then changes individual fields. Their ranges are those of
/// the options.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Network")]
pub struct ServeArgs {
    /// Device to serve on: `auto`, `tap:NAME`, `netmap:IFACE[,queues=N[,partial]][,partial-checksums]`,
    /// `netmap:valeX:Y[,mtu=BYTES][,offload=auto|on|off]`,
    /// `netmap:NAME{N[,mtu=BYTES][,offload=auto|on|off]`,
    /// `netmap:NAME}N[,mtu=BYTES][,offload=auto|on|off]`, or
    /// `xdp:IFACE[,queues=N[,partial]][,vlan=ID[,ID]][,generic][,partial-checksums][,zerocopy=auto|required|off][,offload=auto|on|off][,qdisc=pfifo]`.
    ///
    /// `auto` creates a veth pair on this host. The server uses one end, and the kernel keeps the
    /// other. `tap:NAME` is a TAP device. `xdp:IFACE` is an existing interface, through AF_XDP.
    /// `netmap:` is an interface, a port of a VALE switch, or one end of a pipe, through netmap.
    ///
    /// By default the server serves all queues of the interface. `queues=N` serves only the first
    /// N, and refuses to start if packets can arrive on other queues. `queues=N,partial` starts
    /// even then: clients whose packets arrive on other queues get no answer.
    ///
    /// `vlan=10,20` also serves frames tagged with these VLANs, besides untagged frames.
    ///
    /// `generic` uses generic XDP in the kernel, for drivers without native XDP.
    ///
    /// `partial-checksums` accepts packets whose checksum covers only the pseudo-header, such as
    /// those from a veth peer. The price is that about one corrupted packet in 65,536 is accepted
    /// too.
    ///
    /// `zerocopy` says whether the device may read and write frames directly. `auto` uses zero-copy
    /// if the driver supports it. `required` refuses to start without it. `off` always copies.
    ///
    /// `offload` says whether runs of TCP segments are sent as super-segments: large packets that
    /// the device cuts into segments. `auto` uses them if the device can cut them and the rings
    /// copy packets anyway. `on` uses them even if the kernel must cut them. `off` never uses them.
    /// On a port of a VALE switch and on a pipe, only `on` uses them.
    ///
    /// `mtu` is the MTU of a port of a VALE switch or of a pipe. The default is 1500. A larger one
    /// must suit all ports of the switch.
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = by_word::<Device, _>)]
    pub device: Device,

    /// Address that only the server uses, as IP/PREFIX (IPv4 or IPv6). Repeat the option for more
    /// addresses. Without this option the server shares the interface's addresses with the kernel.
    #[arg(long = "address", value_name = "IP/PREFIX")]
    pub addresses: Vec<AddressPrefix>,

    /// Port to serve. Defaults to the program's own port, such as 80 for HTTP and 53 for DNS. If
    /// one process runs several programs, this is the port of the first one.
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=u16::MAX))]
    pub port: Option<u16>,

    /// Number of workers. Each worker is one thread that serves one queue. Defaults to the number
    /// of served queues, or to 1 on `auto` and `tap`.
    #[arg(long, value_name = "N", value_parser = number::<u32>(WORKERS))]
    pub workers: Option<u32>,

    /// What a worker does when it is idle.
    #[arg(long, value_enum, default_value_t = WaitArg::Adaptive)]
    pub wait: WaitArg,

    /// Maximum time between two flushes of the TX ring while packets keep arriving, in
    /// microseconds.
    #[arg(long = "flush-interval-us", value_name = "MICROSECONDS", default_value_t = FLUSH_INTERVAL_US,
          value_parser = microseconds(FLUSH_INTERVALS_US))]
    pub flush_interval_us: u32,

    /// Number of frames handled between two readings of the clock. Above 256, each further frame adds one
    /// frame to the packet memory of each worker.
    #[arg(long, value_name = "FRAMES", default_value_t = BATCH,
          value_parser = number::<u16>(BATCHES))]
    pub batch: u16,

    /// Maximum time for which open connections may finish after a request to stop, in seconds or
    /// with a unit, such as `1min`. Meanwhile, new connections are refused. The server ends as soon
    /// as no connection needs more time. With 0, connections are closed immediately.
    #[arg(long, value_name = "TIME", default_value_t = DRAIN_SECONDS,
          value_parser = seconds(DRAINS), help_heading = "Connections")]
    pub drain: u32,

    /// User, and optionally group, that the server switches to after it has opened the device and
    /// read its content. Without this option a server started by root becomes the user with the
    /// program's name, or `nobody` if there is none. A server started by another user keeps that
    /// user.
    #[arg(long, value_name = "NAME[:GROUP]", help_heading = "Privileges")]
    pub user: Option<UserSpec>,

    /// Sandbox of each thread: limits on files (Landlock) and system calls (seccomp), or Capsicum on
    /// FreeBSD. They are in force before the first packet is handled.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Sandbox::Auto,
          help_heading = "Privileges")]
    pub sandbox: Sandbox,

    /// Metrics, and control of the running server.
    #[command(flatten)]
    pub endpoints: EndpointArgs,

    /// Write every received and sent frame to FILE in pcap format (slow). With several workers the
    /// files are FILE.0, FILE.1 and so on. FILE must be new or a regular file.
    #[arg(long, value_name = "FILE", value_parser = parse_capture, help_heading = "Diagnosis")]
    pub pcap: Option<PathBuf>,

    /// Lowest severity that is logged to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn,
          help_heading = "Diagnosis")]
    pub log: LogLevel,

    /// Form of the log, the start block and the summary.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text,
          help_heading = "Diagnosis")]
    pub log_format: LogFormat,

    /// For tests only: drop, duplicate, reorder or corrupt frames at random.
    ///
    /// The value is a list `WORD=VALUE,...`. The words `drop`, `duplicate`, `reorder` and `corrupt`
    /// take a rate from 0 to 1. With the prefix `rx-` or `tx-` they apply to one direction only.
    /// `hold=N` is the number of frames that overtake a reordered one. `seed=N` makes the faults
    /// repeatable; each worker adds its number to the seed.
    #[arg(long, value_name = "drop=RATE,seed=N", value_parser = by_word::<FaultConfig, _>,
          help_heading = "Diagnosis")]
    pub fault: Option<FaultConfig>,
}

/// Parses the address of a host.
///
/// # Errors
/// A message for the operator.
pub fn host_address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| match text.split_once('/') {
        Some((address, _)) if address.parse::<IpAddr>().is_ok() => {
            format!("write the address without a prefix length: {address}")
        }
        _ => "give an IPv4 or IPv6 address, such as 192.0.2.1 or 2001:db8::1".to_owned(),
    })
}

/// Parses the path of `--pcap`. Refuses `-`, because a capture cannot be written to standard
/// output.
fn parse_capture(text: &str) -> Result<PathBuf, &'static str> {
    if text == "-" {
        return Err("a capture cannot be written to standard output; give the path of a file");
    }
    Ok(text.into())
}

/// The defaults of the command line, with device `auto`.
impl Default for ServeArgs {
    fn default() -> Self {
        Self {
            device: Device::Auto,
            addresses: Vec::new(),
            port: None,
            workers: None,
            wait: WaitArg::Adaptive,
            flush_interval_us: FLUSH_INTERVAL_US,
            batch: BATCH,
            drain: DRAIN_SECONDS,
            user: None,
            sandbox: Sandbox::Auto,
            endpoints: EndpointArgs::default(),
            pcap: None,
            log: LogLevel::Warn,
            log_format: LogFormat::Text,
            fault: None,
        }
    }
}

impl ServeArgs {
    /// Returns the defaults of the command line, with `device` instead of `auto`.
    pub fn on(device: Device) -> Self {
        Self {
            device,
            ..Self::default()
        }
    }

    /// Returns the interface configuration for `program`. Packets for `services` are steered to the
    /// server.
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

    /// Checks the numbers, because a program need not take them from the command line.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for the first number outside the range of its option.
    pub(crate) fn check_numbers(&self) -> Result<(), Error> {
        let (least, most) = BATCHES.into_inner();
        let numbers = [
            // The device has a default for the number of workers.
            ("--workers", self.workers.unwrap_or(1), WORKERS),
            (
                "--flush-interval-us",
                self.flush_interval_us,
                FLUSH_INTERVALS_US,
            ),
            ("--batch", self.batch.into(), least.into()..=most.into()),
            ("--drain", self.drain, DRAINS),
        ];
        let wrong = numbers
            .into_iter()
            .find(|(_, value, range)| !range.contains(value));
        match wrong {
            None => Ok(()),
            Some((option, value, range)) => Err(Error::OutOfRange {
                option,
                value,
                range,
            }),
        }
    }

    /// Checks the options as far as that needs no device. Numbers must be in range, the user must exist,
    /// ports must differ, and addresses and queues must be possible. `owners` has the ports of the
    /// programs. Returns all errors, each a message for the operator, and facts as lines. Warns of sockets
    /// that cannot be made, because a server does without. Also warns of `files` that the server's user
    /// could not read.
    pub fn check(
        &self,
        program: &'static str,
        owners: &[PortOwner],
        files: ContentFiles,
    ) -> Vec<Result<Lines, StartError>> {
        let lines = self.endpoints.check();
        let user = match &self.user {
            Some(user) => user.check(),
            None => self.plan(program).err().into_iter().collect(),
        };
        let services = owners.iter().flat_map(|one| one.services.clone());
        let interface = self.interface(program, services.collect()).check();
        let capture = self.pcap.as_ref().and_then(|path| {
            let (source, path) = (check_file(path).err()?, path.clone());
            Some(PcapError::Create { path, source }.into())
        });
        let interface = interface.into_iter().map(Into::into);
        let refused = self.look_at_files(program, files).err();
        let number = self.check_numbers().err().into_iter();
        let errors = number.chain(user).chain(refused);
        let errors = errors.chain(wrong_ports(owners));
        let errors = errors.chain(interface).chain(capture);
        let errors = errors.map(|error| Err(self.message(&error).into()));
        std::iter::once(Ok(lines)).chain(errors).collect()
    }

    /// Warns of files that the server's user cannot read, in the same words as a server at its start. Nothing is
    /// said if this process may not become the user.
    ///
    /// # Errors
    /// If the system refuses what is necessary to find out.
    fn look_at_files(&self, program: &str, files: ContentFiles) -> Result<(), Error> {
        // Elsewhere a server reads nothing again, and a thread has no user of its own.
        if !CONFINES_EACH_THREAD || is_wrong(0, "user") {
            return Ok(());
        }
        // Another check reports an unknown user. The same user has just read the files, as far as it can.
        let plan = Plan::new(program, self.user.as_ref(), Sandbox::Off);
        let Some(plan) = plan.ok().filter(|plan| !plan.keeps_user()) else {
            return Ok(());
        };
        let privileges = plan.privileges(Table::for_server(Vec::new(), files))?;
        match look_at_files(program, &privileges) {
            Err(Error::User { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Returns the message about an error for the operator. It names the place in the configuration file
    /// that the error is about.
    pub(crate) fn message(&self, error: &Error) -> String {
        let text = error.to_string();
        let message = with_places(&text);
        match error {
            Error::Device(DeviceError::DuplicateAddress { index, .. }) => {
                before_nth("addresses", *index) + &message
            }
            // No option is named in the message.
            Error::Device(_) | Error::Refused(_) if message == text => {
                before("device", &self.device.to_string()) + &message
            }
            Error::Pcap(_) if message == text => {
                let path = self.pcap.as_ref().map(|path| path.display().to_string());
                before("pcap", &path.unwrap_or_default()) + &message
            }
            _ => message,
        }
    }

    /// Returns the settings for privileges. Looks up the user that the threads of `program` become.
    ///
    /// # Errors
    /// If the requested user or group does not exist, or if the system cannot look it up.
    pub(crate) fn plan(&self, program: &str) -> Result<Plan, Error> {
        Plan::new(program, self.user.as_ref(), self.sandbox)
    }

    /// Returns the requested settings of the event loop.
    pub fn loop_config(&self) -> LoopConfig {
        LoopConfig {
            flush_interval: Duration::from_micros(u64::from(self.flush_interval_us)),
            batch: usize::from(self.batch),
            wait: self.wait.into(),
            drain: Duration::from_secs(self.drain.into()),
            ..LoopConfig::default()
        }
    }
}

/// Values of `--wait`: how an idle worker waits for packets.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitArg {
    /// Poll the ring for up to 8 µs while that usually finds a packet. Then sleep as with `block`.
    Adaptive,
    /// Sleep in the kernel until a packet arrives, except during a flood of packets.
    Block,
    /// Poll the ring without pause. This occupies one core and has the lowest latency.
    Spin,
    /// Let the kernel poll the device in the worker's thread, all the time. Where that does not
    /// work, sleep.
    BusyPoll,
}

impl From<WaitArg> for Wait {
    fn from(arg: WaitArg) -> Self {
        match arg {
            WaitArg::Adaptive => Self::Adaptive,
            WaitArg::Block => Self::Block,
            WaitArg::Spin => Self::Spin,
            WaitArg::BusyPoll => Self::BusyPoll,
        }
    }
}

/// Serves on its own network stack until Ctrl-C.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    network: ServeArgs,
}

/// Parses the command line of the program `name`, which accepts only the options of [`ServeArgs`],
/// and `--config` with a file of them. Ends the process if the command line or the file is wrong, or
/// if the command line asks for help.
pub fn network_args(name: &'static str) -> ServeArgs {
    let command = with_usage(Cli::command().name(name));
    config::parse::<Cli>(command).cli.network
}

/// Sets the usage line of a command that has only options. Without it, the usage line in an error
/// message would list the given options as if they were required.
pub(crate) fn with_usage(command: Command) -> Command {
    let usage = format!("{} [OPTIONS]", command.get_name());
    command.override_usage(usage)
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
    fn the_default_loop_settings_are_those_of_the_paper() {
        let args = parse("").unwrap();
        let config = args.loop_config();
        assert_eq!(config.flush_interval, Duration::from_micros(80));
        assert_eq!(config.straggler, Duration::from_millis(5));
        assert_eq!(config.wait, Wait::Adaptive);
        assert_eq!(config.drain, Duration::from_secs(10));
        assert_eq!(args.workers, None);
        assert_eq!(args.port, None);
    }

    #[test]
    fn the_default_options_equal_an_empty_command_line() {
        let parsed = format!("{:?}", parse("").unwrap());
        assert_eq!(format!("{:?}", ServeArgs::default()), parsed);
        let args = ServeArgs {
            sandbox: Sandbox::Off,
            ..ServeArgs::on("tap:t0".parse().unwrap())
        };
        let parsed = parse("--device tap:t0 --sandbox off").unwrap();
        assert_eq!(format!("{args:?}"), format!("{parsed:?}"));
    }

    #[test]
    fn event_loop_options_set_the_loops_configuration() {
        for (word, wait) in [
            ("adaptive", Wait::Adaptive),
            ("block", Wait::Block),
            ("spin", Wait::Spin),
            ("busy-poll", Wait::BusyPoll),
        ] {
            let line = format!("--wait {word} --flush-interval-us 7 --batch 9 --drain 2min");
            let config = parse(&line).unwrap().loop_config();
            assert_eq!(config.wait, wait);
            assert_eq!(config.flush_interval, Duration::from_micros(7));
            assert_eq!(config.batch, 9);
            assert_eq!(config.drain, Duration::from_mins(2));
        }
    }

    #[test]
    fn the_usage_line_shows_no_option_as_required() {
        let command = with_usage(super::Cli::command().name("kv"));
        let outcome = command.try_get_matches_from(["kv", "--device", "auto", "--bogus"]);
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains("Usage: kv [OPTIONS]\n"), "{message}");
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for line in [
            "--port 0",
            "--port 65536",
            "--workers 0",
            "--workers 257",
            "--batch 0",
            "--batch 1025",
            "--drain -1",
            "--drain 2d",
            "--drain 100ms",
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
    fn numbers_set_by_a_program_have_the_ranges_of_the_options() {
        let wrong = |change: fn(&mut ServeArgs)| {
            let mut args = ServeArgs::default();
            change(&mut args);
            let errors = args
                .check("server", &[], ContentFiles::default())
                .into_iter()
                .filter_map(Result::err);
            errors.map(|error| error.to_string()).collect::<Vec<_>>()
        };
        let message = |value: &str, range| format!("{value} is out of range; give {range}");
        for (change, expected) in [
            (
                (|args| args.batch = 0) as fn(&mut ServeArgs),
                message("--batch 0", "a number from 1 to 1024"),
            ),
            (
                |args| args.workers = Some(0),
                message("--workers 0", "a number from 1 to 256"),
            ),
            (
                |args| args.drain = u32::MAX,
                message("--drain 4294967295", "a number from 0 to 86400"),
            ),
            (
                |args| args.flush_interval_us = 5_001,
                message("--flush-interval-us 5001", "a number from 0 to 5000"),
            ),
        ] {
            assert_eq!(wrong(change), [expected]);
        }
        assert!(wrong(|args| args.workers = Some(MAX_WORKERS)).is_empty());
    }

    #[test]
    fn the_error_for_an_invalid_number_contains_the_range() {
        for line in ["--port http", "--port 0", "--port 65536"] {
            let message = parse(line).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains("from 1 to 65535"), "{message}");
        }
    }

    #[test]
    fn a_capture_to_standard_output_is_refused() {
        let message = parse("--pcap -").map(|_| ()).unwrap_err().to_string();
        assert!(
            message.contains("cannot be written to standard output"),
            "{message}"
        );
        let path = parse("--pcap ./-").unwrap().pcap;
        assert_eq!(path, Some("./-".into()));
    }

    #[test]
    fn the_fault_option_takes_a_rate_and_a_seed() {
        let fault = parse("--fault drop=0.01,seed=7").unwrap().fault;
        let fault = fault.unwrap();
        assert_eq!(fault.seed, 7);
        for rate in [fault.received.drop, fault.sent.drop] {
            assert!((rate - 0.01).abs() < f64::EPSILON);
        }
    }
}
