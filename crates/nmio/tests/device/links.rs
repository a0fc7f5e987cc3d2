//! The ports on which the contract is checked, each with the other side of its link.

use std::time::Duration;

use nmio::checksum::Sum;
use nmio::device::{DeviceError, Offload};
use nmio::netmap::{NetmapPort, SimulatedConfig, SimulatedKernel};
use nmio::sim::{self, EndConfig, LinkConfig, Segmentation, SimClock, SimPort};
use nmio::{Batch, Port, SuperSegment};

use super::{RESIDENTS, SOURCE};
use crate::rig::RawSocket;
use crate::supers;

/// A port and the other side of its link.
pub(super) trait Link {
    type Port: Port;

    fn port(&mut self) -> &mut Self::Port;

    /// Returns the port, whose device now takes no frames if it can be stopped.
    fn stopped_port(&mut self) -> &mut Self::Port {
        self.port()
    }

    /// Makes the device drop frames that the port sends. Returns false if this device cannot do so, or does
    /// not report it.
    fn refuse(&mut self) -> bool {
        false
    }

    /// Makes the device accept frames again.
    fn accept(&mut self) {}

    /// Returns the number of sent frames that are known to be lost.
    fn lost(&mut self) -> u64 {
        self.port().counters().tx_lost
    }

    /// Sends a frame to the port.
    fn deliver(&mut self, frame: &[u8]);

    /// Returns the next frame that the port has sent, if there is one.
    fn next(&mut self) -> Option<Vec<u8>>;

    /// Returns the frames in which a super-segment arrives at the other side.
    fn frames(&self, packet: &SuperSegment) -> Vec<Vec<u8>> {
        supers::frames(packet)
    }

    /// Returns the number of data bytes per segment of a super-segment.
    fn mss(&self) -> u16 {
        supers::MSS
    }
}

/// Sends a copy of `frame` through the other side's port.
fn send_copy<P: Port>(port: &mut P, frame: &[u8]) {
    let mut copy = port.pool().take().unwrap();
    copy.set_len(frame.len());
    copy.copy_from_slice(frame);
    port.send(copy).unwrap();
    port.flush().unwrap();
}

/// Returns the next frame that has arrived at the other side's port.
fn receive_one<P: Port>(port: &mut P) -> Option<Vec<u8>> {
    let mut batch = Batch::new();
    port.receive(&mut batch, 1).unwrap();
    batch.pop().map(|frame| frame.to_vec())
}

/// A simulated link.
pub(super) struct Simulated {
    near: SimPort,
    far: SimPort,
    clock: SimClock,
}

impl Simulated {
    pub(super) fn new() -> Self {
        Self::that_loses(0)
    }

    /// Returns a link that loses every `nth` frame which the port sends. 0: it loses none.
    fn that_loses(nth: u64) -> Self {
        let mut link = LinkConfig::default();
        link.a = EndConfig {
            tx_ring: 64,
            io_frames: 128,
            resident_frames: RESIDENTS,
            segmentation: Some(Segmentation {
                largest: 65_000,
                write_segment: ip::write_segment,
            }),
            ..link.a
        };
        // Without a rate, the ring would be empty at once.
        link.a_to_b.line_rate = 1_000_000_000;
        link.a_to_b.lose_every = nth;
        let (near, far, clock) = sim::link(&link, 1);
        Self { near, far, clock }
    }
}

impl Link for Simulated {
    type Port = SimPort;

    fn port(&mut self) -> &mut SimPort {
        &mut self.near
    }

    fn refuse(&mut self) -> bool {
        *self = Self::that_loses(3);
        true
    }

    fn lost(&mut self) -> u64 {
        self.near.path_counters().lost
    }

    fn deliver(&mut self, frame: &[u8]) {
        send_copy(&mut self.far, frame);
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        self.clock.advance(Duration::from_millis(1));
        receive_one(&mut self.far)
    }
}

/// A simulated netmap port with its kernel, or why it could not be opened.
type SimulatedNetmapPort = Result<(NetmapPort<SimulatedKernel>, SimulatedKernel), DeviceError>;

/// A netmap port on a simulated kernel.
pub(super) struct SimulatedNetmap {
    port: NetmapPort<SimulatedKernel>,
    kernel: SimulatedKernel,
    rng: fastrand::Rng,
    /// Length of the header before each packet, in bytes.
    header: usize,
}

impl SimulatedNetmap {
    /// Sizes of the rings.
    const CONFIG: SimulatedConfig = SimulatedConfig {
        slots: 64,
        spares: 64,
        resident_frames: RESIDENTS,
        buffer: 2048,
    };

    /// Opens an interface.
    pub(super) fn interface(seed: u64) -> Self {
        Self::over(SimulatedKernel::open(Self::CONFIG), 0, seed)
    }

    /// Opens a port of a switch, or one end of a pipe, with `open`.
    pub(super) fn with_offload(
        open: fn(SimulatedConfig, usize, Offload) -> SimulatedNetmapPort,
        mtu: usize,
        offload: Offload,
        seed: u64,
    ) -> Self {
        let mut config = Self::CONFIG;
        let mut header = 0;
        if offload == Offload::On {
            config.resident_frames = 0;
            header = 12;
        }
        Self::over(open(config, mtu, offload), header, seed)
    }

    fn over(opened: SimulatedNetmapPort, header: usize, seed: u64) -> Self {
        let (port, kernel) = opened.unwrap();
        Self {
            port,
            kernel,
            rng: fastrand::Rng::with_seed(seed),
            header,
        }
    }
}

impl Link for SimulatedNetmap {
    type Port = NetmapPort<SimulatedKernel>;

    fn port(&mut self) -> &mut Self::Port {
        // Now and then, the device takes only some packets at once, and holds them for a while.
        self.kernel.limit(self.rng.u32(1..40), self.rng.u32(0..20));
        &mut self.port
    }

    fn stopped_port(&mut self) -> &mut Self::Port {
        self.kernel.limit(0, 0);
        &mut self.port
    }

    fn deliver(&mut self, frame: &[u8]) {
        self.kernel
            .deliver(&[&vec![0; self.header], frame].concat());
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        self.kernel
            .take_sent()
            .map(|bytes| bytes[self.header..].to_vec())
    }

    fn frames(&self, packet: &SuperSegment) -> Vec<Vec<u8>> {
        vec![packet.gather().concat()]
    }
}

/// A netmap port, with another netmap port on the other side of a switch or pipe.
pub(super) struct Netmap {
    pub(super) near: NetmapPort,
    pub(super) far: NetmapPort,
    /// Whether both ports have virtio-net headers, so that super-segments arrive whole.
    pub(super) whole: bool,
}

impl Link for Netmap {
    type Port = NetmapPort;

    fn port(&mut self) -> &mut NetmapPort {
        &mut self.near
    }

    fn deliver(&mut self, frame: &[u8]) {
        send_copy(&mut self.far, frame);
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        // Some frames come back to the far side's ring only with a later call.
        self.far.flush().unwrap();
        receive_one(&mut self.far)
    }

    fn frames(&self, packet: &SuperSegment) -> Vec<Vec<u8>> {
        if !self.whole {
            return supers::frames(packet);
        }
        // The receiving port has completed the checksum, which is then correct for one long segment.
        let mut whole = packet.gather().concat();
        let sum = Sum::of(&whole[packet.transport_at()..]);
        whole[packet.transport_at() + 16..][..2].copy_from_slice(&sum.finish().to_be_bytes());
        vec![whole]
    }

    fn mss(&self) -> u16 {
        // A switch cuts super-segments into packets of 1,500 bytes.
        1500 - 20 - 32
    }
}

/// Lets a device accept frames, or drop them.
pub(super) type Switch<'a> = &'a dyn Fn(bool);

/// A real device, with a packet socket on the other side.
pub(super) struct Real<'a, P> {
    pub(super) port: P,
    pub(super) socket: RawSocket,
    /// Whether super-segments arrive whole, with their partial checksums.
    pub(super) whole: bool,
    /// `None` if the device cannot be made to drop frames, or does not report this.
    pub(super) switch: Option<Switch<'a>>,
}

impl<P: Port> Link for Real<'_, P> {
    type Port = P;

    fn port(&mut self) -> &mut P {
        &mut self.port
    }

    fn refuse(&mut self) -> bool {
        if let Some(switch) = self.switch {
            switch(false);
        }
        self.switch.is_some()
    }

    fn accept(&mut self) {
        if let Some(switch) = self.switch {
            switch(true);
        }
    }

    fn deliver(&mut self, frame: &[u8]) {
        self.socket.send(frame);
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        while let Some(frame) = self.socket.receive() {
            if frame[6..12] == SOURCE && frame[12..14] == [8, 0] {
                return Some(frame);
            }
        }
        None
    }

    fn frames(&self, packet: &SuperSegment) -> Vec<Vec<u8>> {
        if self.whole {
            vec![packet.gather().concat()]
        } else {
            supers::frames(packet)
        }
    }
}
