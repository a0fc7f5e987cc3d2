//! Turns UDP packets round and does nothing else: what a rig's client, wire
//! and kernel let through at the most. A benchmark runs it first, and gives a
//! server's rate as a part of this one.
//!
//! It reads no checksum and answers any UDP packet that is steered to it:
//! source and destination change places at every layer, which leaves all
//! checksums right.

use std::process::ExitCode;

use clap::Parser;
use control::{Listening, Program, ServeArgs, StartError, WorkerContext};
use ip::{PROTOCOL_UDP, Transports};
use nmio::device::Transport;
use nmio::{Frame, Instant, Port};

const ETHERTYPE: usize = 12;
/// Where an untagged frame has the IP protocol, the source address (the
/// destination is behind it), and the source port.
const IPV4: [usize; 3] = [23, 26, 34];
const IPV6: [usize; 3] = [20, 22, 54];

/// What is not turned round goes to the host: it answers ARP and neighbour discovery,
/// or no client would come.
struct Reflect;

#[inline(always)]
fn turn_round(frame: &mut [u8]) -> bool {
    let [protocol, addresses, ports] = match frame.get(ETHERTYPE..ETHERTYPE + 3) {
        Some([0x08, 0x00, 0x45]) => IPV4,
        Some([0x86, 0xdd, _]) => IPV6,
        _ => return false,
    };
    if frame.len() < ports + udpip::HEADER_LEN || frame[protocol] != PROTOCOL_UDP {
        return false;
    }
    // MAC addresses, IP addresses, ports: each pair side by side.
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
        if !turn_round(&mut frame) {
            return Some(frame);
        }
        // What finds the ring full is lost; the summary tells how much.
        let _ = port.send(frame);
        None
    }
}

/// Turns UDP packets round, nothing else: the ceiling of a rig.
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
    control::serve(&Cli::parse().network, || {
        Ok::<_, StartError>(ReflectProgram)
    })
}
