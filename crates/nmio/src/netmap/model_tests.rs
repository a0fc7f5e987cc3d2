//! A model of the ring protocol: all short sequences of calls and of the kernel's choices.
//!
//! The simulated kernel decides with each call how many packets it takes from the TX ring, and how
//! many of them the device still reads. It may also refuse all calls, as while an interface is down. The
//! test tries every sequence on a port with tiny rings.

use std::collections::{HashSet, VecDeque};

use super::*;
use crate::device::Offload;
use crate::frame::{Frame, Resident};

type Opened = Result<(NetmapPort<SimulatedKernel>, SimulatedKernel), DeviceError>;

/// A port with tiny rings, and how it is used.
#[derive(Clone, Copy)]
struct Shape {
    config: SimulatedConfig,
    open: fn(SimulatedConfig) -> Opened,
    /// Length of the packets, in bytes.
    len: usize,
    /// Number of steps in each sequence.
    steps: u32,
}

/// Buffers are exchanged.
const EXCHANGING: Shape = Shape {
    config: SimulatedConfig {
        slots: 3,
        spares: 3,
        resident_frames: 1,
        buffer: 2048,
    },
    open: SimulatedKernel::open,
    len: 60,
    steps: 6,
};
/// Each packet is copied to two slots.
const COPYING: Shape = Shape {
    config: SimulatedConfig {
        slots: 6,
        spares: 0,
        resident_frames: 1,
        buffer: 256,
    },
    open: |config| SimulatedKernel::open_on_switch(config, 400, Offload::Off),
    len: 300,
    steps: 5,
};

#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    SendResident,
    TurnAround,
    Deliver,
    Receive,
    /// A flush in which the kernel takes so many packets at most, and holds so many at least.
    Flush(u32, u32),
    /// The kernel refuses all calls from now on, or accepts them again.
    StopOrStart,
}

const ALL: [Step; 9] = [
    Step::Send,
    Step::SendResident,
    Step::TurnAround,
    Step::Deliver,
    Step::Receive,
    Step::Flush(0, 0),
    Step::Flush(1, 1),
    Step::Flush(u32::MAX, 0),
    Step::StopOrStart,
];

/// A port, its kernel, and what must still arrive at each side.
struct Model {
    shape: Shape,
    port: NetmapPort<SimulatedKernel>,
    kernel: SimulatedKernel,
    resident: Option<Resident>,
    held: Option<Frame>,
    is_stopped: bool,
    number: u8,
    sent: VecDeque<u8>,
    delivered: VecDeque<u8>,
}

impl Model {
    fn new(shape: Shape) -> Self {
        let (port, kernel) = (shape.open)(shape.config).unwrap();
        let resident = port.pool().make_resident(&vec![0; shape.len]);
        Self {
            shape,
            port,
            kernel,
            resident,
            held: None,
            is_stopped: false,
            number: 0,
            sent: VecDeque::new(),
            delivered: VecDeque::new(),
        }
    }

    fn step(&mut self, step: Step) {
        self.number += 1;
        match step {
            Step::Send => {
                if let Some(mut frame) = self.port.pool().take() {
                    frame.set_len(self.shape.len);
                    frame.fill(self.number);
                    self.send(frame, self.number);
                }
            }
            Step::TurnAround => {
                if let Some(frame) = self.held.take() {
                    let number = frame[0];
                    self.send(frame, number);
                }
            }
            Step::SendResident => self.send_resident(),
            Step::Deliver => {
                self.kernel.deliver(&vec![self.number; self.shape.len]);
                self.delivered.push_back(self.number);
            }
            Step::Receive => self.receive(),
            Step::Flush(takes, holds) => {
                self.kernel.limit(takes, holds);
                let fails = self.is_stopped && self.port.levels().sending > 0;
                assert_eq!(self.port.flush().is_err(), fails);
            }
            Step::StopOrStart => {
                self.is_stopped = !self.is_stopped;
                self.kernel.stop(self.is_stopped.then_some(libc::EIO));
            }
        }
        self.compare();
    }

    fn send(&mut self, frame: Frame, number: u8) {
        let had_room = self.port.room() > 0;
        match self.port.send(frame) {
            Ok(()) => self.sent.push_back(number),
            Err(error) => assert!(error == SendError::RingFull && !had_room),
        }
    }

    fn send_resident(&mut self) {
        let resident = self.resident.as_mut().unwrap();
        let had_room = self.port.room() > 0;
        let Some(mut packet) = resident.idle() else {
            return;
        };
        packet.fill(self.number);
        match self.port.send_resident(packet) {
            Ok(()) => self.sent.push_back(self.number),
            Err(error) => assert!(error == SendError::RingFull && !had_room),
        }
    }

    fn receive(&mut self) {
        let mut batch = Batch::new();
        if let Err(error) = self.port.receive(&mut batch, 1) {
            assert!(self.is_stopped, "{error}");
        }
        if let Some(frame) = batch.pop() {
            let expected = self.delivered.pop_front().expect("no packet twice");
            assert_eq!(frame[..], vec![expected; self.shape.len]);
            self.held = Some(frame);
        }
    }

    /// Compares the packets that have left the device with those that the port sent.
    fn compare(&mut self) {
        while let Some(packet) = self.kernel.take_sent() {
            let expected = self.sent.pop_front().expect("no packet twice");
            assert_eq!(packet, vec![expected; self.shape.len]);
        }
    }

    /// Lets all packets arrive.
    fn arrive(&mut self) {
        self.kernel.limit(u32::MAX, 0);
        assert!(self.port.flush().unwrap());
        self.compare();
        assert!(self.sent.is_empty(), "every packet leaves");
        while !self.delivered.is_empty() {
            self.held = None;
            self.receive();
        }
    }

    /// Closes the port, and checks that every buffer came back once. Before that, lets all packets
    /// arrive, unless the kernel refuses calls.
    fn finish(mut self) {
        if !self.is_stopped {
            self.arrive();
        }
        assert_eq!(self.port.counters().bad_descriptors, 0);
        let Self {
            shape,
            port,
            kernel,
            resident,
            held,
            ..
        } = self;
        drop((resident, held, port));
        let buffers = kernel.all_buffers();
        let distinct: HashSet<_> = buffers.iter().collect();
        let total = (2 * shape.config.slots + shape.config.spares) as usize;
        assert_eq!((buffers.len(), distinct.len()), (total, total));
    }
}

#[test]
fn no_sequence_of_calls_loses_doubles_or_reorders_a_packet_or_a_buffer() {
    for shape in [EXCHANGING, COPYING] {
        for sequence in 0..ALL.len().pow(shape.steps) {
            let steps = (0..shape.steps).map(|n| ALL[sequence / ALL.len().pow(n) % ALL.len()]);
            let mut model = Model::new(shape);
            for step in steps {
                model.step(step);
            }
            model.finish();
        }
    }
}
