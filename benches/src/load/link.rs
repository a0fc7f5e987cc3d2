//! The client's end of the wire.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use eth::{ETHERTYPE_ARP, HEADER_LEN, Link, Mac, Station};
use nmio::device::MemoryPlan;
use nmio::device::{
    AddressPrefix, AnyPort, Device, DeviceError, Interface, InterfaceConfig, Offload, Queues,
};
use nmio::{
    Batch, Clock, Fault, FaultConfig, Handler, LoopConfig, LoopState, MAX_BATCH, Pcap, PcapError,
    Port, TscClock, Wait,
};

use super::meter::{Meter, Phase, Report};
use super::pace::Pace;

/// A server has this long to tell its MAC address; asked this often.
const RESOLVE_LIMIT: Duration = Duration::from_secs(5);
const RESOLVE_INTERVAL: Duration = Duration::from_millis(50);
/// What a generator sends when it leaves has this long to go out.
const FINISH_LIMIT: Duration = Duration::from_secs(10);
const FINISH_INTERVAL: Duration = Duration::from_millis(1);

/// What all generators are told.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The interface to ask from, in this network namespace.
    #[arg(long)]
    pub interface: String,

    /// An address of the generator's own, as IP/PREFIX, none that the kernel
    /// has; may repeat where many connections are wanted. IPv4.
    #[arg(long = "address", value_name = "IP/PREFIX", required = true)]
    pub addresses: Vec<AddressPrefix>,

    /// The server's address, on the same link.
    #[arg(long)]
    pub target: Ipv4Addr,

    /// The server's port.
    #[arg(long, value_parser = value_parser!(u16).range(1..))]
    pub port: u16,

    /// Length of the measured part.
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,

    /// What goes before it and is not counted.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    pub warmup: f64,

    /// Open loop: so many requests a second, whatever the server does.
    /// Without it, a closed loop: the next request when a reply is there.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    pub rate: Option<f64>,

    /// Requests of an open loop that are due together, as from a client that
    /// sends in batches.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "rate",
          value_parser = value_parser!(u32).range(1..=1024))]
    pub burst: u32,

    /// What to do while there is nothing to do.
    #[arg(long, value_enum, default_value_t = WaitFor::Block)]
    pub wait: WaitFor,

    /// Lose, double, reorder or corrupt frames at random on both ways, as
    /// `drop=RATE,seed=N`.
    #[arg(long, value_name = "drop=RATE,seed=N")]
    pub fault: Option<FaultConfig>,

    /// Write what passes to a capture file, which Wireshark opens.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,

    /// The seed of everything that is random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Options {
    /// The open loop's clock, if it is one.
    pub fn pace(&self) -> Option<Pace> {
        self.rate.map(|rate| Pace::new(rate, self.burst))
    }

    /// A meter for the run that is asked for.
    pub fn meter(&self) -> Meter {
        Meter::new(
            Duration::from_secs_f64(self.warmup),
            Duration::from_secs_f64(self.seconds),
        )
    }
}

/// `--wait`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Sleep in the kernel until a packet comes or a request is due.
    Block,
    /// Look again at once.
    Spin,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=86_400.0).contains(&value) => Ok(value),
        _ => Err("a number of seconds from 0 to 86400".into()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.001..=1e9).contains(&value) => Ok(value),
        _ => Err("requests a second, from 0.001 to 1e9".into()),
    }
}

/// Why there is no load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The interface cannot be had.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// What the command line asks for makes no sense.
    #[error("{0}")]
    Asked(String),
    /// Nobody answers for the address.
    #[error(
        "{0} did not answer ARP within {limit} s: is it on the link of {1}, and up?",
        limit = RESOLVE_LIMIT.as_secs()
    )]
    Unresolved(Ipv4Addr, String),
    /// The capture file cannot be had.
    #[error(transparent)]
    Pcap(#[from] PcapError),
    /// The interface went away.
    #[error("the interface is gone: {0}")]
    Gone(#[from] io::Error),
}

/// A [`Handler`] that makes load.
pub trait Generator<P: Port>: Handler<P> {
    /// What it measures with.
    fn meter(&mut self) -> &mut Meter;
    /// Its result.
    fn report(&self) -> Report;

    /// Whether the warm-up may begin.
    fn is_ready(&self) -> bool {
        true
    }

    /// Leaves the server after the measured part: called each millisecond, with
    /// a flush, until it gives true, but not for ever.
    fn finish(&mut self, _port: &mut P) -> bool {
        true
    }
}

/// What a generator knows of its place, to be made.
#[derive(Clone, Debug)]
pub struct Place {
    /// The server's MAC address as the peer, ours as the own.
    pub link: Link,
    /// Our addresses.
    pub addresses: Vec<Ipv4Addr>,
    /// The server's address and port.
    pub target: (Ipv4Addr, u16),
}

/// Makes a generator once its port and place are known; a trait, as a closure
/// cannot be generic over ports.
pub trait Start {
    /// What is made for a port of type `P`.
    type Generator<P: Port>: Generator<P>;

    /// Makes it.
    ///
    /// # Errors
    /// When it cannot run in this place.
    fn start<P: Port>(self, place: &Place) -> Result<Self::Generator<P>, LoadError>;
}

/// Opens the interface, finds the server, runs a generator to its end.
///
/// # Errors
/// [`LoadError`].
pub fn run(options: &Options, memory: MemoryPlan, start: impl Start) -> Result<Report, LoadError> {
    let wait = match options.wait {
        WaitFor::Block => Wait::Block,
        WaitFor::Spin => Wait::Spin,
    };
    let interface = Interface::open(&InterfaceConfig {
        device: Device::Xdp {
            interface: options.interface.clone(),
            queues: Queues::All,
            vlans: Vec::new(),
            generic: false,
            partial_checksums: true,
            // Single frames are all that it sends.
            offload: Offload::Off,
        },
        own_addresses: options.addresses.clone(),
        services: Vec::new(),
        workers: Some(1),
        wait,
        program: "load",
    })?;
    let mac = Mac(interface.mac());
    let AnyPort::Xdp(mut port) = interface.queue(0).open(memory)? else {
        return Err(LoadError::Asked("a tap device has no server".into()));
    };
    if options.fault.is_none() && options.pcap.is_none() {
        return on_port(&mut port, mac, wait, options, start);
    }
    let port = Fault::new(port, options.fault.as_ref());
    let mut port = Pcap::new(port, options.pcap.as_deref())?;
    let report = on_port(&mut port, mac, wait, options, start);
    if let Some(stopped) = port.finish().and_then(|summary| summary.stopped) {
        eprintln!("load: the capture has ended early: {stopped}");
    }
    report
}

fn on_port<P: Port>(
    port: &mut P,
    mac: Mac,
    wait: Wait,
    options: &Options,
    start: impl Start,
) -> Result<Report, LoadError> {
    let mut addresses = Vec::new();
    for address in &options.addresses {
        match address.address {
            IpAddr::V4(v4) => addresses.push(v4),
            IpAddr::V6(v6) => return Err(LoadError::Asked(format!("{v6}: only IPv4 is spoken"))),
        }
    }
    let clock = TscClock::new();
    let all: Vec<IpAddr> = addresses.iter().copied().map(IpAddr::V4).collect();
    let station = Station::new(mac, &all);
    station.announce(port);
    let peer = resolve(port, &clock, mac, addresses[0], options.target)?
        .ok_or_else(|| LoadError::Unresolved(options.target, options.interface.clone()))?;
    let place = Place {
        link: Link {
            peer,
            own: mac,
            vlan: None,
        },
        addresses,
        target: (options.target, options.port),
    };
    let mut generator = start.start::<P>(&place)?;
    drive(port, &mut generator, &clock, wait)?;
    Ok(generator.report())
}

/// Runs a generator from warm-up to its end; says on standard error when the
/// measured part begins and ends.
///
/// # Errors
/// When the port is gone.
pub fn drive<P: Port>(
    port: &mut P,
    generator: &mut impl Generator<P>,
    clock: &impl Clock,
    wait: Wait,
) -> io::Result<()> {
    let config = LoopConfig {
        wait,
        ..LoopConfig::default()
    };
    let mut turn = LoopState::new(&config, clock.now());
    loop {
        let now = clock.now();
        if generator.is_ready() && generator.meter().advance(now) {
            match generator.meter().phase() {
                Phase::WarmUp => {}
                Phase::Measuring => eprintln!("load: measuring"),
                Phase::Finished => {
                    eprintln!("load: measured");
                    return finish(port, generator, clock);
                }
            }
        }
        if !turn.pass(port, generator, now)? {
            let end = generator.meter().phase_end();
            turn.rest(port, generator, end, now)?;
        }
    }
}

/// Lets a generator leave, within [`FINISH_LIMIT`].
fn finish<P: Port>(
    port: &mut P,
    generator: &mut impl Generator<P>,
    clock: &impl Clock,
) -> io::Result<()> {
    let start = clock.now();
    let mut batch = Batch::new();
    let mut sent = false;
    while !sent && clock.now().since(start) < FINISH_LIMIT {
        // To receive is to take back what has been sent.
        port.receive(&mut batch, MAX_BATCH)?;
        batch.clear();
        sent = generator.finish(port);
        while !port.flush()? && clock.now().since(start) < FINISH_LIMIT {}
        if !sent {
            std::thread::sleep(FINISH_INTERVAL);
        }
    }
    Ok(())
}

/// Asks for the server's MAC address (RFC 826).
fn resolve<P: Port>(
    port: &mut P,
    clock: &impl Clock,
    own: Mac,
    own_address: Ipv4Addr,
    target: Ipv4Addr,
) -> io::Result<Option<Mac>> {
    let request = arp_request(own, own_address, target);
    let mut batch = Batch::new();
    let start = clock.now();
    while clock.now().since(start) < RESOLVE_LIMIT {
        if let Some(mut frame) = port.pool().take() {
            frame.set_len(request.len());
            frame.copy_from_slice(&request);
            let _ = port.send(frame);
        }
        port.flush()?;
        let asked = clock.now();
        while clock.now().since(asked) < RESOLVE_INTERVAL {
            port.receive(&mut batch, 64)?;
            let found = batch.drain(..).find_map(|frame| arp_reply(&frame, target));
            if found.is_some() {
                return Ok(found);
            }
            port.wait(RESOLVE_INTERVAL, None)?;
        }
    }
    Ok(None)
}

/// Hardware and protocol of IPv4 over Ethernet, and the lengths of their
/// addresses, as an ARP packet begins.
const ARP_BEGIN: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_REQUEST: u8 = 1;
const ARP_REPLY: u8 = 2;
const ARP_LEN: usize = 28;

fn arp_request(own: Mac, own_address: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0; HEADER_LEN];
    let link = Link {
        peer: Mac::BROADCAST,
        own,
        vlan: None,
    };
    link.write(&mut frame, ETHERTYPE_ARP);
    frame.extend_from_slice(&ARP_BEGIN);
    frame.extend_from_slice(&[0, ARP_REQUEST]);
    frame.extend_from_slice(&own.0);
    frame.extend_from_slice(&own_address.octets());
    frame.extend_from_slice(&[0; 6]);
    frame.extend_from_slice(&target.octets());
    frame
}

/// The sender's MAC address, if `frame` is `target`'s reply.
fn arp_reply(frame: &[u8], target: Ipv4Addr) -> Option<Mac> {
    let header = eth::Header::parse(frame).filter(|header| header.ethertype == ETHERTYPE_ARP)?;
    let arp: &[u8; ARP_LEN] = frame.get(header.len()..)?.first_chunk()?;
    let right = arp[..6] == ARP_BEGIN && arp[7] == ARP_REPLY && arp[14..18] == target.octets();
    let mac = arp[8..14].first_chunk().copied().map(Mac);
    mac.filter(|_| right)
}
