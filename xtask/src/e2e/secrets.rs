//! Initial sequence numbers of two starts: they depend on the clock, and on a
//! secret that no two starts share.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::Signal;

use super::Content;
use super::checks::Checks;
use super::flood;
use super::matrix::{Program, Scenario};
use super::rig::Rig;
use crate::shell::{Context as _, Failure, Result};

/// The client's ports, the same with each start.
const PORTS: std::ops::Range<u16> = 41_000..41_006;
/// A clock adds 1 to sequence numbers every 4 µs (RFC 9293, section 3.4.1): so
/// much in a minute. Two starts are less apart.
const OF_CLOCK: u32 = 60 * 250_000;
/// So many numbers may be near each other by chance: each is with a
/// probability of 1 %.
const BY_CHANCE: usize = 2;

/// Runs it.
pub(crate) fn run(programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    let namestorm = Program::Namestorm {
        mode: "turnaround",
        hash: "wire",
    };
    for program in [flood::scenario().program, namestorm] {
        let scenario = Scenario {
            program,
            ..flood::scenario()
        };
        let rig = Rig::build(&scenario)?;
        let of_start = || numbers(&rig, &scenario, programs, content);
        let (first, second) = (of_start()?, of_start()?);
        let name = format!("{scenario}: initial sequence numbers of two starts");
        checks.check(&name, || differ(&first, &second));
    }
    Ok(())
}

/// Whether what two starts have said differs by more than the clock.
fn differ(first: &BTreeMap<u16, u32>, second: &BTreeMap<u16, u32>) -> Result<()> {
    let pairs: Vec<(u32, u32)> = PORTS
        .filter_map(|port| Some((*first.get(&port)?, *second.get(&port)?)))
        .collect();
    let near = |(a, b): &&(u32, u32)| a.wrapping_sub(*b).min(b.wrapping_sub(*a)) < OF_CLOCK;
    if pairs.len() == PORTS.len() && pairs.iter().filter(near).count() <= BY_CHANCE {
        return Ok(());
    }
    Err(Failure::new(format!("they are {pairs:?}")))
}

/// Starts the server, connects from each port, and ends it: the server's
/// initial sequence numbers, by the client's port.
fn numbers(
    rig: &Rig,
    scenario: &Scenario,
    programs: &Path,
    content: &Content,
) -> Result<BTreeMap<u16, u32>> {
    let file = content.folder.join("secrets.pcap");
    let capture = file.display().to_string();
    let (server, place) =
        rig.start_with(scenario, None, programs, content, &["--pcap", &capture])?;
    let to = place.socket(place.v4);
    rig.as_client(|| {
        PORTS
            .into_iter()
            .try_for_each(|port| connect_from(port, to))
    })??;
    // The capture is whole when the server has ended.
    server.stop(Signal::TERM)?;
    read(&file)
}

/// Connects, and resets the connection, so that the port is free again.
fn connect_from(port: u16, to: SocketAddr) -> Result<()> {
    let doing = || format!("connecting from port {port}");
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).context(doing())?;
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    bind(&socket, &any).context(doing())?;
    set_socket_linger(&socket, Some(Duration::ZERO)).context(doing())?;
    connect(&socket, &to).context(doing())
}

/// Sequence numbers of the SYN-ACKs in a capture, by their destination port.
fn read(path: &Path) -> Result<BTreeMap<u16, u32>> {
    let what = || format!("reading {}", path.display());
    let file = File::open(path).context(what())?;
    let mut capture = PcapReader::new(BufReader::new(file)).context(what())?;
    let mut numbers = BTreeMap::new();
    while let Some(packet) = capture.next_packet() {
        numbers.extend(syn_ack(&packet.context(what())?.data));
    }
    Ok(numbers)
}

/// The destination port and the sequence number, if `frame` is a SYN-ACK in
/// IPv4 without options.
fn syn_ack(frame: &[u8]) -> Option<(u16, u32)> {
    const SYN_ACK: u8 = 0x12;
    let is_tcp = frame.get(12..14)? == [0x08, 0x00] && *frame.get(23)? == 6;
    let tcp = frame.get(34..).filter(|_| is_tcp)?;
    let flags = *tcp.get(13)?;
    (flags & 0x17 == SYN_ACK).then_some((
        u16::from_be_bytes(*tcp.get(2..)?.first_chunk()?),
        u32::from_be_bytes(*tcp.get(4..)?.first_chunk()?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: impl Fn(u32) -> u32) -> BTreeMap<u16, u32> {
        let value = |port: u16| number(u32::from(port).wrapping_mul(0x9e37_79b9));
        PORTS.map(|port| (port, value(port))).collect()
    }

    #[test]
    fn numbers_that_only_the_clock_moves_are_found() {
        let first = of(|n| n);
        assert!(differ(&first, &of(|n| n.wrapping_add(OF_CLOCK - 1))).is_err());
        assert!(differ(&first, &of(|n| n.wrapping_sub(1))).is_err());
        assert!(differ(&first, &of(|n| n ^ 0x8000_0000)).is_ok());
        assert!(differ(&first, &BTreeMap::new()).is_err());
    }
}
