//! A TCP connection on a lossless simulated link, from smoltcp to a server.

use std::time::Duration;

use ip::{Host, Server, Transports};
use nmio::sim::{self, EndConfig, LinkConfig, SimPort};
use testkit::smol::{Client, Talk};
use testkit::{Link, Observed, Observer, RST, SYN, Verdict, read_segment};

use crate::{MTU, offsets, station};

const FRAMES: u32 = 160;
/// The exchange also ends if the server sends nothing for this time.
const QUIET: Duration = Duration::from_millis(200);

/// What a client has received.
#[derive(Debug, PartialEq, Eq)]
pub struct Received {
    pub bytes: Vec<u8>,
    /// Whether the server has closed its direction.
    pub is_closed: bool,
}

/// Sends `bytes` to the server that `make` creates on `port`, in segments that end at `cuts`. If
/// `ends` is set, the client then closes its direction. Returns what the client has received.
pub fn talk<T: Transports<SimPort>>(
    port: u16,
    make: impl FnOnce(&SimPort) -> T,
    bytes: &[u8],
    cuts: &[u16],
    ends: bool,
) -> Received {
    let end = EndConfig {
        io_frames: FRAMES,
        resident_frames: 0,
        tx_ring: FRAMES as usize,
        ..EndConfig::default()
    };
    let config = LinkConfig {
        a: end,
        b: end,
        ..LinkConfig::default()
    };
    let (client, server, clock) = sim::link(&config, 0);
    let transports = make(&server);
    let mut link = Link::of(Observed::new(client, Order::default()), server, clock);
    let mut server = Server::new(Host::own(station(), [0; 4]), transports);
    let mut client = Client::new(MTU);
    let talk = Talk {
        bytes: bytes.to_vec(),
        cuts: offsets(cuts, bytes.len()),
        half_close: ends,
        ..Talk::default()
    };
    client.connect(port, talk);
    loop {
        let before = link.client.observer.segments;
        let done = link.run(&mut client, &mut server, QUIET, |client, _| client.done());
        if done || link.client.observer.segments == before {
            break;
        }
    }
    let connection = client.connections.remove(0);
    Received {
        bytes: connection.received,
        is_closed: connection.closed_by_server,
    }
}

/// Checks that the server does not reset the connection and sends its data in order. The server may
/// retransmit only the last segment, as a tail loss probe.
#[derive(Default)]
struct Order {
    /// Sequence number of the server's next byte.
    next: u32,
    /// Number of segments that the server has sent.
    segments: u32,
}

impl Observer for Order {
    fn received(&mut self, frame: &[u8]) -> Verdict {
        // smoltcp first asks for the server's MAC address, so the server also sends ARP.
        if frame[12..14] != [8, 6] {
            let segment = read_segment(frame).expect("a valid segment").segment;
            self.segments += 1;
            assert!(!segment.has(RST), "the server resets the connection");
            if segment.has(SYN) {
                self.next = segment.seq;
            }
            if segment.span() > 0 {
                let end = segment.seq.wrapping_add(segment.span());
                let in_order = segment.seq == self.next || end == self.next;
                assert!(in_order, "a retransmission or a gap");
                self.next = end;
            }
        }
        Verdict::Deliver
    }
}
