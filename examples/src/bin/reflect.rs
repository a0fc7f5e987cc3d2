//! Sends UDP packets back to their senders. This shows the maximum rate that the client, the link
//! and the kernel of a test setup allow. `cargo xtask bench` also measures this program, and
//! reports Namestorm's rate as a fraction of this program's rate.
//!
//! The program answers each untagged UDP packet without IP options or extension headers, and does
//! not check its checksums. Swapping source and destination at every layer leaves them valid.

use std::process::ExitCode;

use clap::Parser;
use control::{Listening, Program, ServeArgs, StartError, WorkerContext};
use ip::{PROTOCOL_UDP, Transports};
use nmio::device::Transport;
use nmio::{Frame, Instant, Port};

const ETHERTYPE: usize = 12;
/// Offsets in an untagged frame, in bytes: the IP protocol, the source address (followed by the
/// destination address), and the source port.
const IPV4: [usize; 3] = [23, 26, 34];
const IPV6: [usize; 3] = [20, 22, 54];

/// Intercepts UDP packets before the IP layer (`ip::Host`) parses them. The IP layer handles the
/// other frames. Among them are ARP and neighbour discovery, without which clients could not reach
/// the program.
struct Reflect;

#[inline(always)]
fn turn_around(frame: &mut [u8]) -> bool {
    let [protocol, addresses, ports] = match frame.get(ETHERTYPE..ETHERTYPE + 3) {
        Some([0x08, 0x00, 0x45]) => IPV4,
        Some([0x86, 0xdd, _]) => IPV6,
        _ => return false,
    };
    if frame.len() < ports + udpip::HEADER_LEN || frame[protocol] != PROTOCOL_UDP {
        return false;
    }
    // Swaps the MAC addresses, IP addresses and ports. In each pair, source and destination are
    // adjacent.
    for (start, end) in [(0, 12), (addresses, ports), (ports, ports + 4)] {
        let (dst, src) = frame[start..end].split_at_mut((end - start) / 2);
        dst.swap_with_slice(src);
    }
    true
}

impl<P: Port> Transports<P> for Reflect {
    const INTERCEPTS: bool = true;

    fn serves(&self, _protocol: u8, _port: u16) -> bool {
        false
    }

    #[inline(always)]
    fn intercept(&mut self, port: &mut P, mut frame: Frame, _now: Instant) -> Option<Frame> {
        if !turn_around(&mut frame) {
            return Some(frame);
        }
        // If the ring is full, the packet is lost. The summary shows how many packets were lost.
        let _ = port.send(frame);
        None
    }
}

/// Sends UDP packets back to their senders, to measure the limit of a test setup.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    network: ServeArgs,
}

struct ReflectProgram;

impl Program for ReflectProgram {
    const NAME: &'static str = "reflect";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const DEFAULT_PORT: u16 = 7;
    type Transports<P: Port> = Reflect;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Udp, port)]
    }

    fn transports<P: Port>(&self, _: &mut P, _: &WorkerContext) -> Result<Reflect, StartError> {
        Ok(Reflect)
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        at.command(|address, port| format!("nc -u {address} {port}"))
    }
}

fn main() -> ExitCode {
    control::serve_loaded(&Cli::parse().network, ReflectProgram)
}
