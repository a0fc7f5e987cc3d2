//! Packets and GET requests on a netmap port. The kernel is simulated.
//!
//! The counts exclude the simulated kernel: see [`Workload`].

use nmio::netmap::{NetmapPort, SimulatedConfig, SimulatedKernel};
use nmio::{Batch, Handler, Instant, Port};
use sandstorm::Server;
use sandstorm::reply::Status;
use tcpip::SendMode;
use testkit::{ACK, PSH};

use super::Workload;
use super::http::{KEEP_ALIVE, PAGE_LEN, server_on};
use crate::{Client, Wire, numbers, patch};

/// Number of packets that each call of the simulated kernel delivers.
const BURST: usize = 32;
/// Number of slots of each ring.
const SLOTS: u32 = 512;
/// Number of resident packets that fit into the port's memory.
const RESIDENTS: u32 = 256;

/// Opens a port whose buffers have 2 KiB.
fn open(resident_frames: u32) -> (NetmapPort<SimulatedKernel>, SimulatedKernel) {
    let config = SimulatedConfig {
        slots: SLOTS,
        spares: SLOTS + resident_frames,
        resident_frames,
        buffer: 2048,
    };
    SimulatedKernel::open(config).expect("buffers of 2 KiB suffice")
}

/// Opens a port that receives the same frame of `len` bytes again and again.
fn receiving(len: usize) -> NetmapPort<SimulatedKernel> {
    let (port, kernel) = open(0);
    kernel.replay(&vec![2; len], BURST as u32);
    port
}

/// A workload of received packets that are dropped. It counts the slots of the RX ring.
pub struct ReceiveOnly {
    port: NetmapPort<SimulatedKernel>,
    batch: Batch,
    runs: u64,
}

impl ReceiveOnly {
    /// Creates a workload of frames of `len` bytes.
    ///
    /// # Panics
    /// If a frame does not fit in a buffer.
    pub fn new(len: usize) -> Self {
        Self {
            port: receiving(len),
            batch: Batch::new(),
            runs: 0,
        }
    }
}

impl Workload for ReceiveOnly {
    const REQUESTS: u64 = BURST as u64;

    fn run(&mut self) {
        let received = self.port.receive(&mut self.batch, BURST);
        received.expect("a simulated kernel never fails");
        self.batch.clear();
        self.runs += 1;
    }

    fn check(&self) {
        let counters = self.port.counters();
        assert_eq!(counters.rx_frames, self.runs * Self::REQUESTS);
        assert_eq!(counters.bad_descriptors, 0);
    }
}

/// A workload of scratch frames that are sent without being filled. It counts the slots of the TX ring,
/// and includes taking the sent buffers back.
pub struct SendOnly {
    port: NetmapPort<SimulatedKernel>,
    len: usize,
    runs: u64,
}

impl SendOnly {
    /// Creates a workload of frames of `len` bytes.
    pub fn new(len: usize) -> Self {
        let (port, kernel) = open(0);
        kernel.keep_sent(false);
        Self { port, len, runs: 0 }
    }
}

impl Workload for SendOnly {
    const REQUESTS: u64 = BURST as u64;

    fn run(&mut self) {
        for _ in 0..BURST {
            // A frame that is missing, or finds the ring full, is found by `check`.
            if let Some(mut frame) = self.port.pool().take() {
                frame.set_len(self.len);
                let _ = self.port.send(frame);
            }
        }
        self.port.flush().expect("a simulated kernel never fails");
        self.runs += 1;
    }

    fn check(&self) {
        let counters = self.port.counters();
        assert_eq!(counters.tx_frames, self.runs * Self::REQUESTS);
        assert_eq!((counters.bad_descriptors, counters.tx_ring_full), (0, 0));
    }
}

/// A workload of packets that the port sends back in their own buffers. Nothing parses them.
pub struct TurnRound {
    port: NetmapPort<SimulatedKernel>,
    batch: Batch,
    runs: u64,
}

impl TurnRound {
    /// Creates a workload of frames of `len` bytes.
    ///
    /// # Panics
    /// If a frame does not fit in a buffer.
    pub fn new(len: usize) -> Self {
        Self {
            port: receiving(len),
            batch: Batch::new(),
            runs: 0,
        }
    }
}

impl Workload for TurnRound {
    const REQUESTS: u64 = BURST as u64;

    fn run(&mut self) {
        let received = self.port.receive(&mut self.batch, BURST);
        received.expect("a simulated kernel never fails");
        for frame in self.batch.drain(..) {
            // A frame that finds the ring full is dropped, which `check` finds.
            let _ = self.port.send(frame);
        }
        self.port.flush().expect("a simulated kernel never fails");
        self.runs += 1;
    }

    fn check(&self) {
        let counters = self.port.counters();
        let packets = self.runs * Self::REQUESTS;
        assert_eq!((counters.rx_frames, counters.tx_frames), (packets, packets));
        assert_eq!((counters.bad_descriptors, counters.tx_ring_full), (0, 0));
    }
}

/// A netmap port, and the simulated kernel as the client's end.
struct Link {
    port: NetmapPort<SimulatedKernel>,
    kernel: SimulatedKernel,
    batch: Batch,
    last: Vec<u8>,
}

impl Link {
    /// Lets the server handle the packets that have arrived, at most [`BURST`] of them.
    #[inline(always)]
    fn pass<H: Handler<NetmapPort<SimulatedKernel>>>(&mut self, server: &mut H) {
        let received = self.port.receive(&mut self.batch, BURST);
        received.expect("a simulated kernel never fails");
        server.handle_batch(&mut self.port, &mut self.batch, Instant::ZERO);
        self.port.flush().expect("a simulated kernel never fails");
    }
}

impl Wire for Link {
    type Port = NetmapPort<SimulatedKernel>;

    fn deliver<H: Handler<Self::Port>>(&mut self, server: &mut H, frame: &[u8]) {
        self.kernel.deliver(frame);
        self.pass(server);
        while let Some(sent) = self.kernel.take_sent() {
            self.last = sent;
        }
    }

    fn last(&self) -> &[u8] {
        &self.last
    }
}

/// A workload of GET requests for a page of 1 KB. Clients with a persistent connection each send one
/// request, and the server receives all these requests in one batch.
pub struct Get {
    link: Link,
    server: Server,
    /// The clients, and the frame of each client's request.
    clients: Vec<(Client, Vec<u8>)>,
    response_len: u32,
    sent_requests: u64,
    sent_before: u64,
}

impl Get {
    /// Creates the workload. `mode` says how the server sends its responses.
    ///
    /// # Panics
    /// Panics if the response is not as long as a head and this page in one segment.
    pub fn new(mode: SendMode) -> Self {
        let (port, kernel) = open(RESIDENTS);
        let mut server = server_on(&port, mode);
        let mut link = Link {
            port,
            kernel,
            batch: Batch::new(),
            last: Vec::new(),
        };
        let mut probe = Client::open(&mut link, &mut server, 4000, u16::MAX);
        probe.send(&mut link, &mut server, ACK | PSH, KEEP_ALIVE);
        let response_len = numbers(link.last()).2;
        assert!(
            (PAGE_LEN as u32 + 1..1460).contains(&response_len),
            "the response is a head and the page in one segment"
        );
        let clients = (0..BURST as u16).map(|nth| {
            let client = Client::open(&mut link, &mut server, 4096 + nth, u16::MAX);
            let request = client.segment(ACK | PSH, KEEP_ALIVE);
            (client, request)
        });
        let clients = clients.collect();
        link.kernel.keep_sent(false);
        Self {
            sent_before: server.transports.stack().counters().segments_sent,
            link,
            server,
            clients,
            response_len,
            sent_requests: 0,
        }
    }

    /// Lets one request of each client arrive.
    #[inline(never)]
    fn uncounted_requests(&mut self) {
        for (client, request) in &mut self.clients {
            patch(request, client.seq, client.ack);
            self.link.kernel.deliver(request);
            client.seq = client.seq.wrapping_add(KEEP_ALIVE.len() as u32);
            client.ack = client.ack.wrapping_add(self.response_len);
            self.sent_requests += 1;
        }
    }
}

impl Workload for Get {
    const REQUESTS: u64 = BURST as u64;

    fn run(&mut self) {
        self.uncounted_requests();
        self.link.pass(&mut self.server);
    }

    fn check(&self) {
        let stack = self.server.transports.stack();
        let sent = stack.counters().segments_sent - self.sent_before;
        assert_eq!(sent, self.sent_requests, "one segment for each request");
        // `new` sent one more request to measure the length of the response.
        let replies = stack.app().counters().of(Status::Ok);
        assert_eq!(replies, self.sent_requests + 1);
        let counters = self.link.port.counters();
        assert_eq!((counters.bad_descriptors, counters.tx_ring_full), (0, 0));
    }
}
