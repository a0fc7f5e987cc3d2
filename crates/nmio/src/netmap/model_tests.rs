//! A model of the ring protocol: all short sequences of calls and of the kernel's choices.
//!
//! The simulated kernel decides with each call how many packets it takes from the TX ring, and how
//! many of them the device still reads. The test tries every sequence on a port with tiny rings.

use std::collections::{HashSet, VecDeque};

use super::*;
use crate::frame::Frame;

const CONFIG: SimulatedConfig = SimulatedConfig {
    slots: 3,
    spares: 3,
    resident_frames: 1,
    buffer: 2048,
};
/// Number of steps in each sequence.
const STEPS: u32 = 6;

#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    SendResident,
    TurnAround,
    Deliver,
    Receive,
    /// A flush in which the kernel takes so many packets at most, and holds so many at least.
    Flush(u32, u32),
}

const ALL: [Step; 8] = [
    Step::Send,
    Step::SendResident,
    Step::TurnAround,
    Step::Deliver,
    Step::Receive,
    Step::Flush(0, 0),
    Step::Flush(1, 1),
    Step::Flush(u32::MAX, 0),
];

/// A port, its kernel, and what must still arrive at each side.
struct Model {
    port: NetmapPort<SimulatedKernel>,
    kernel: SimulatedKernel,
    resident: Option<Resident>,
    held: Option<Frame>,
    number: u8,
    sent: VecDeque<u8>,
    delivered: VecDeque<u8>,
}

impl Model {
    fn new() -> Self {
        let (port, kernel) = SimulatedKernel::open(CONFIG).unwrap();
        let resident = port.pool().make_resident(&[0; 60]);
        Self {
            port,
            kernel,
            resident,
            held: None,
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
                    frame.set_len(60);
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
                self.kernel.deliver(&[self.number; 60]);
                self.delivered.push_back(self.number);
            }
            Step::Receive => self.receive(),
            Step::Flush(takes, holds) => {
                self.kernel.limit(takes, holds);
                self.port.flush().unwrap();
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
        let Some(bytes) = resident.bytes_mut() else {
            assert_eq!(self.port.send_resident(resident), Err(SendError::InFlight));
            return;
        };
        bytes.fill(self.number);
        match self.port.send_resident(resident) {
            Ok(()) => self.sent.push_back(self.number),
            Err(error) => assert!(error == SendError::RingFull && !had_room),
        }
    }

    fn receive(&mut self) {
        let mut batch = Batch::new();
        self.port.receive(&mut batch, 1).unwrap();
        if let Some(frame) = batch.pop() {
            let expected = self.delivered.pop_front().expect("no packet twice");
            assert_eq!(frame[..], [expected; 60]);
            self.held = Some(frame);
        }
    }

    /// Compares the packets that have left the device with those that the port sent.
    fn compare(&mut self) {
        while let Some(packet) = self.kernel.take_sent() {
            let expected = self.sent.pop_front().expect("no packet twice");
            assert_eq!(packet[..], [expected; 60]);
        }
    }

    /// Lets all packets arrive, closes the port, and checks that every buffer came back once.
    fn finish(mut self) {
        self.kernel.limit(u32::MAX, 0);
        assert!(self.port.flush().unwrap());
        self.compare();
        assert!(self.sent.is_empty(), "every packet leaves");
        while !self.delivered.is_empty() {
            self.held = None;
            self.receive();
        }
        assert_eq!(self.port.counters().bad_descriptors, 0);
        let Self {
            port,
            kernel,
            resident,
            held,
            ..
        } = self;
        drop((resident, held, port));
        let buffers = kernel.all_buffers();
        let distinct: HashSet<_> = buffers.iter().collect();
        let total = (2 * CONFIG.slots + CONFIG.spares) as usize;
        assert_eq!((buffers.len(), distinct.len()), (total, total));
    }
}

#[test]
fn no_sequence_of_calls_loses_doubles_or_reorders_a_packet_or_a_buffer() {
    for sequence in 0..ALL.len().pow(STEPS) {
        let steps = (0..STEPS).map(|n| ALL[sequence / ALL.len().pow(n) % ALL.len()]);
        let mut model = Model::new();
        for step in steps {
            model.step(step);
        }
        model.finish();
    }
}
