//! Compares the initial sequence numbers of two server starts. These numbers depend on the clock
//! and on a random secret, which is different at each start.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use pcap_file::pcap::PcapReader;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::Env;
use super::checks::Checks;
use super::matrix::Scenario;
use super::rig::Rig;

/// Client ports, which are the same for both starts.
const PORTS: Range<u16> = 41_000..41_006;
/// Growth of initial sequence numbers in a minute. Their clock adds 1 every 4 µs (RFC 9293, section
/// 3.4.1). Two starts are less than a minute apart.
const OF_CLOCK: u32 = 60 * 250_000;
/// Maximum number of ports whose two numbers may be close by chance. The probability is less than
/// 1 % per port.
const BY_CHANCE: usize = 2;

/// Initial sequence numbers by the client's port.
type Numbers = BTreeMap<u16, u32>;

pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    for scenario in [Scenario::WEB, Scenario::DNS] {
        let rig = Rig::build(&scenario)?;
        let (first, second) = (
            numbers(&rig, &scenario, env)?,
            numbers(&rig, &scenario, env)?,
        );
        let name = format!("{scenario}: initial sequence numbers of two starts");
        checks.check(name, || differ(&first, &second));
    }
    Ok(())
}

/// Returns an error unless the numbers of two starts differ by more than the clock explains.
fn differ(first: &Numbers, second: &Numbers) -> Result<()> {
    let pair = |port| Some((*first.get(&port)?, *second.get(&port)?));
    let pairs: Vec<(u32, u32)> = PORTS.filter_map(pair).collect();
    let near = |(a, b): &&(u32, u32)| a.wrapping_sub(*b).min(b.wrapping_sub(*a)) < OF_CLOCK;
    let are_near = pairs.iter().filter(near).count();
    let right = pairs.len() == PORTS.len() && are_near <= BY_CHANCE;
    ensure!(right, "the numbers are {pairs:?}");
    Ok(())
}

/// Starts the server once, connects to it, and returns its initial sequence numbers.
fn numbers(rig: &Rig, scenario: &Scenario, env: &Env) -> Result<Numbers> {
    let file = env.folder.join("secrets.pcap");
    let capture = file.display().to_string();
    let (server, place) = rig.start(env, scenario, &["--pcap", &capture])?;
    let to = place.socket(place.v4);
    rig.as_client(|| {
        PORTS
            .into_iter()
            .try_for_each(|port| connect_from(port, to))
    })??;
    // The capture file is complete only after the server has stopped.
    server.stop_well()?;
    read(&file)
}

/// Connects and then resets the connection, so that the client port is free again.
fn connect_from(port: u16, to: SocketAddr) -> Result<()> {
    let connect = || {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(
            &socket,
            &SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
        )?;
        set_socket_linger(&socket, Some(Duration::ZERO))?;
        connect(&socket, &to)
    };
    connect().with_context(|| format!("connecting from port {port}"))
}

/// Reads the sequence numbers of the SYN-ACKs in a capture, by destination port.
fn read(path: &Path) -> Result<Numbers> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut capture = PcapReader::new(file).with_context(|| path.display().to_string())?;
    let mut numbers = BTreeMap::new();
    while let Some(packet) = capture.next_packet() {
        numbers.extend(syn_ack(
            &packet.with_context(|| path.display().to_string())?.data,
        ));
    }
    Ok(numbers)
}

/// Returns the destination port and the sequence number if `frame` is a SYN-ACK over IPv4 without
/// IP options.
fn syn_ack(frame: &[u8]) -> Option<(u16, u32)> {
    const SYN_ACK: u8 = 0x12;
    let is_tcp = frame.get(12..14)? == [0x08, 0x00] && *frame.get(23)? == 6;
    let tcp = frame.get(34..).filter(|_| is_tcp)?;
    let flags = *tcp.get(13)?;
    let port = u16::from_be_bytes(*tcp.get(2..)?.first_chunk()?);
    let seq = u32::from_be_bytes(*tcp.get(4..)?.first_chunk()?);
    (flags & 0x17 == SYN_ACK).then_some((port, seq))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(number: impl Fn(u32) -> u32) -> Numbers {
        let value = |port: u16| number(u32::from(port).wrapping_mul(0x9e37_79b9));
        PORTS.map(|port| (port, value(port))).collect()
    }

    #[test]
    fn sequence_numbers_that_differ_only_by_the_clock_are_found() {
        let first = numbers(|n| n);
        assert!(differ(&first, &numbers(|n| n.wrapping_add(OF_CLOCK - 1))).is_err());
        assert!(differ(&first, &numbers(|n| n.wrapping_sub(1))).is_err());
        assert!(differ(&first, &numbers(|n| n ^ 0x8000_0000)).is_ok());
        assert!(differ(&first, &BTreeMap::new()).is_err());
    }
}
