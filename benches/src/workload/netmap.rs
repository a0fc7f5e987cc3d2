//! Packets that a netmap port receives, turns round and sends. Nothing parses them.
//!
//! The kernel is simulated, and its few instructions for each packet are counted, too.

use nmio::netmap::{NetmapPort, SimulatedConfig, SimulatedKernel};
use nmio::{Batch, Port};

use super::Workload;

/// Number of packets that each call of the simulated kernel delivers.
const BURST: u32 = 32;

/// A workload of packets that the port sends back in their own buffers.
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
        let config = SimulatedConfig {
            slots: 512,
            spares: 512,
            resident_frames: 0,
            buffer: 2048,
        };
        let (port, kernel) = SimulatedKernel::open(config).expect("buffers of 2 KiB suffice");
        kernel.replay(&vec![2; len], BURST);
        Self {
            port,
            batch: Batch::new(),
            runs: 0,
        }
    }
}

impl Workload for TurnRound {
    const REQUESTS: u64 = BURST as u64;

    fn run(&mut self) {
        let received = self.port.receive(&mut self.batch, BURST as usize);
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
