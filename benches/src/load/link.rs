//! Opens a generator's port, resolves the server's MAC address, and runs the generator.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};
use eth::{Link, Mac, Station};
use etherparse::{ArpEthIpv4Packet, ArpOperation, NetSlice, PacketBuilder, SlicedPacket};
use nmio::device::{
    AddressPrefix, AnyPort, Device, DeviceError, Interface, InterfaceConfig, MemoryPlan, Offload,
    XdpOptions,
};
use nmio::xdp::XdpPort;
use nmio::{
    Batch, Clock, Fault, FaultConfig, Handler, LoopConfig, LoopState, MAX_BATCH, Pcap, PcapError,
    Port, TscClock, Wait,
};

use super::meter::{Meter, Phase, Report};
use super::pace::Pace;

/// Time limit for the server's ARP reply.
const RESOLVE_LIMIT: Duration = Duration::from_secs(5);
/// Interval between two ARP requests.
const RESOLVE_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for a generator to close its connections after a run.
const FINISH_LIMIT: Duration = Duration::from_secs(10);
/// Interval between two calls of [`Generator::finish`].
const FINISH_INTERVAL: Duration = Duration::from_millis(1);

/// Options of all generators.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Interface to send from, in this network namespace.
    #[arg(long)]
    pub interface: String,

    /// IPv4 address of the generator. The kernel must not own this address. Repeat the option for
    /// more connections.
    #[arg(long = "address", value_name = "IP/PREFIX", required = true)]
    pub addresses: Vec<AddressPrefix>,

    /// Address of the server on the same link.
    #[arg(long)]
    pub target: Ipv4Addr,

    /// TCP or UDP port of the server.
    #[arg(long, value_parser = value_parser!(u16).range(1..))]
    pub port: u16,

    /// Length of the measured phase in seconds.
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,

    /// Length in seconds of the warm-up before the measured phase.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    pub warmup: f64,

    /// Send this many requests per second, however fast the server answers (open loop). By default
    /// each reply triggers the next request (closed loop).
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    pub rate: Option<f64>,

    /// Number of requests of an open loop that are due at the same time. More than 1 imitates a
    /// client that sends in batches.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "rate",
          value_parser = value_parser!(u32).range(1..=1024))]
    pub burst: u32,

    /// Drop, duplicate, reorder or corrupt frames at random in both directions, as
    /// `drop=RATE,seed=N`.
    #[arg(long, value_name = "drop=RATE,seed=N")]
    pub fault: Option<FaultConfig>,

    /// Write all frames to a capture file for Wireshark.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,

    /// Seed for all random numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Options {
    /// Returns the schedule of an open loop, or `None` for a closed loop.
    pub fn pace(&self) -> Option<Pace> {
        self.rate.map(|rate| Pace::new(rate, self.burst))
    }

    /// Creates a meter for the warm-up and the measured phase that the options set.
    pub fn meter(&self) -> Meter {
        Meter::new(
            Duration::from_secs_f64(self.warmup),
            Duration::from_secs_f64(self.seconds),
        )
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=86_400.0).contains(&value) => Ok(value),
        _ => Err("give a number of seconds from 0 to 86400".into()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.001..=1e9).contains(&value) => Ok(value),
        _ => Err("give a number of requests per second from 0.001 to 1e9".into()),
    }
}

/// Why a generator could not run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Opening the interface or its port failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The options, or the files that they name, cannot be used.
    #[error("{0}")]
    Asked(String),
    /// The server with this address did not answer ARP requests on this interface.
    #[error(
        "{0} did not answer ARP within {limit} s: is it on the link of {1}, and up?",
        limit = RESOLVE_LIMIT.as_secs()
    )]
    Unresolved(Ipv4Addr, String),
    /// The capture file could not be created.
    #[error(transparent)]
    Pcap(#[from] PcapError),
    /// The interface was removed during the run.
    #[error("the interface was removed: {0}")]
    Gone(#[from] io::Error),
}

/// A [`Handler`] that generates load.
pub trait Generator {
    /// Returns the meter of the generator.
    fn meter(&mut self) -> &mut Meter;
    /// Returns the results.
    fn report(&self) -> Report;

    /// Returns true if the warm-up may begin.
    fn is_ready(&self) -> bool {
        true
    }

    /// Closes the connections to the server after the measured phase. Each millisecond, the caller
    /// calls this method and flushes, until the method returns true or a time limit passes.
    fn finish<P: Port>(&mut self, _port: &mut P) -> bool {
        true
    }
}

/// Addresses that a generator needs.
#[derive(Clone, Debug)]
pub struct Place {
    /// Link header of frames from the generator to the server.
    pub link: Link,
    /// IP addresses of the generator.
    pub addresses: Vec<Ipv4Addr>,
    /// IP address and TCP or UDP port of the server.
    pub target: (Ipv4Addr, u16),
}

/// Opens the interface, resolves the server's MAC address, and runs a generator until it has closed
/// its connections.
///
/// # Errors
/// See [`LoadError`].
pub fn run<G>(
    options: &Options,
    start: impl FnOnce(&Place) -> Result<G, LoadError>,
) -> Result<Report, LoadError>
where
    G: Generator + Handler<XdpPort> + Handler<Pcap<Fault<XdpPort>>>,
{
    let interface = Interface::open(&InterfaceConfig {
        device: Device::Xdp(XdpOptions {
            partial_checksums: true,
            // The generator sends only single frames, which need no offload.
            offload: Offload::Off,
            ..XdpOptions::new(options.interface.clone())
        }),
        own_addresses: options.addresses.clone(),
        services: Vec::new(),
        workers: Some(1),
        wait: Wait::Block,
        program: "load",
    })?;
    let mac = Mac(interface.mac());
    let AnyPort::Xdp(mut port) = interface.queue(0).open(MemoryPlan::default())? else {
        return Err(LoadError::Asked("the interface has no AF_XDP port".into()));
    };
    if options.fault.is_none() && options.pcap.is_none() {
        return on_port(&mut port, mac, options, start);
    }
    let port = Fault::new(port, options.fault.as_ref());
    let mut port = Pcap::new(port, options.pcap.as_deref())?;
    let report = on_port(&mut port, mac, options, start);
    if let Some(stopped) = port.finish().and_then(|summary| summary.stopped) {
        eprintln!("load: the capture ended early: {stopped}");
    }
    report
}

fn on_port<P: Port, G: Generator + Handler<P>>(
    port: &mut P,
    mac: Mac,
    options: &Options,
    start: impl FnOnce(&Place) -> Result<G, LoadError>,
) -> Result<Report, LoadError> {
    let mut addresses = Vec::new();
    for address in &options.addresses {
        match address.address {
            IpAddr::V4(v4) => addresses.push(v4),
            IpAddr::V6(v6) => {
                return Err(LoadError::Asked(format!("{v6}: only IPv4 is supported")));
            }
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
    let mut generator = start(&place)?;
    drive(port, &mut generator, &clock)?;
    Ok(generator.report())
}

/// Runs a generator from the warm-up until it has closed its connections. Reports on standard error
/// when the measured phase begins and ends.
fn drive<P: Port, G: Generator + Handler<P>>(
    port: &mut P,
    generator: &mut G,
    clock: &impl Clock,
) -> io::Result<()> {
    let mut turn = LoopState::new(&LoopConfig::default(), clock.now());
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

/// Lets a generator close its connections within [`FINISH_LIMIT`].
fn finish<P: Port>(
    port: &mut P,
    generator: &mut impl Generator,
    clock: &impl Clock,
) -> io::Result<()> {
    let start = clock.now();
    let mut batch = Batch::new();
    let mut sent = false;
    while !sent && clock.now().since(start) < FINISH_LIMIT {
        // Replies no longer matter, but receiving also reclaims the frames that the port has sent.
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

/// Resolves the server's MAC address (RFC 826). Returns `None` if the server does not answer in
/// time.
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
        let requested_at = clock.now();
        while clock.now().since(requested_at) < RESOLVE_INTERVAL {
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

/// Builds an ARP request for the MAC address of `target`.
pub(crate) fn arp_request(own: Mac, own_address: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let packet = ArpEthIpv4Packet {
        operation: ArpOperation::REQUEST,
        sender_mac: own.0,
        sender_ipv4: own_address.octets(),
        target_mac: [0; 6],
        target_ipv4: target.octets(),
    };
    let builder = PacketBuilder::ethernet2(own.0, Mac::BROADCAST.0).arp(packet.into());
    let mut frame = Vec::with_capacity(builder.size());
    builder
        .write(&mut frame)
        .expect("writing to a vector succeeds");
    frame
}

/// Returns the sender's MAC address if `frame` is an ARP reply from `target`.
fn arp_reply(frame: &[u8], target: Ipv4Addr) -> Option<Mac> {
    let Some(NetSlice::Arp(arp)) = SlicedPacket::from_ethernet(frame).ok()?.net else {
        return None;
    };
    let is_reply = arp.operation() == ArpOperation::REPLY;
    let is_right = is_reply && arp.sender_protocol_addr() == target.octets();
    arp.sender_hw_addr()
        .first_chunk()
        .filter(|_| is_right)
        .copied()
        .map(Mac)
}

#[cfg(test)]
impl Options {
    /// Returns the options that every generator needs, followed by `more`.
    pub(super) fn of_tests(more: &[&str]) -> Self {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            options: Options,
        }
        let line = "load --interface lo --address 192.0.2.9/24 --target 192.0.2.1 --port 80";
        let words = line.split(' ').chain(more.iter().copied());
        <Cli as clap::Parser>::parse_from(words).options
    }
}

#[cfg(test)]
impl Place {
    /// Returns the addresses of `testkit`, with a second client address.
    pub(super) fn of_tests() -> Self {
        Self {
            link: Link {
                peer: Mac(testkit::SERVER_MAC),
                own: Mac(testkit::CLIENT_MAC),
                vlan: None,
            },
            addresses: vec![Ipv4Addr::new(192, 0, 2, 9), Ipv4Addr::new(192, 0, 2, 10)],
            target: (Ipv4Addr::new(192, 0, 2, 1), 80),
        }
    }
}

#[cfg(test)]
mod tests {
    use ip::{Host, Input};

    use super::*;

    #[test]
    fn a_station_answers_the_arp_request() {
        let Place {
            link,
            addresses,
            target: (target, _),
        } = Place::of_tests();
        let mut server = Host::own(Station::new(link.peer, &[target.into()]), [0; 4]);
        let sink = nmio::sim::Sink::new(1500, 4, 0);
        let request = arp_request(link.own, addresses[0], target);
        let Input::Reply(reply) = server.receive(sink.frame_from(&request), nmio::Instant::ZERO)
        else {
            panic!("no reply to {request:x?}");
        };
        assert_eq!(arp_reply(&reply, target), Some(link.peer));
        assert_eq!(
            arp_reply(&reply, addresses[0]),
            None,
            "another host replied"
        );
        assert_eq!(
            arp_reply(&request, addresses[0]),
            None,
            "a request is not a reply"
        );
    }
}
