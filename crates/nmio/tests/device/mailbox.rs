//! Tests that a message wakes a sleeping port.

use std::time::{Duration, Instant};

use nmio::Port;
use nmio::device::{AnyPort, Interface, MemoryPlan};

use super::rig::{Rig, config};

/// Without the bell, the port would sleep for a minute.
#[test]
fn a_bell_wakes_a_port_that_sleeps() {
    let _rig = Rig::new(1);
    for (device, own) in [("xdp:srv", "10.9.0.9/24"), ("tap:nmiotap", "10.7.0.2/24")] {
        let interface = Interface::open(&config(device, &[own], 1)).unwrap();
        let memory = MemoryPlan {
            resident_frames: 0,
            scratch_frames: 0,
        };
        let mut port = interface.queue(0).open(memory).unwrap();
        let (sender, mut mailbox) = nmio::mailbox(1).unwrap();
        let outside = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            sender.send(device).unwrap();
        });
        let bell = Some(mailbox.bell());
        let started = Instant::now();
        // Unrelated packets on the interface may also wake the port, so wait again until the bell
        // is rung.
        while !mailbox.bell().is_rung() && started.elapsed() < Duration::from_mins(1) {
            let mut batch = nmio::Batch::new();
            let woken = match &mut port {
                AnyPort::Xdp(port) => sleep(port, &mut batch, bell),
                AnyPort::Tap(port) => sleep(port, &mut batch, bell),
                AnyPort::Netmap(port) => sleep(port, &mut batch, bell),
            };
            woken.unwrap();
        }
        let mut messages = Vec::new();
        mailbox.take_all(|message| messages.push(message));
        assert_eq!(messages, [device]);
        assert!(started.elapsed() < Duration::from_secs(30), "{device}");
        outside.join().unwrap();
    }
}

fn sleep<P: Port>(
    port: &mut P,
    batch: &mut nmio::Batch,
    bell: Option<&nmio::Bell>,
) -> std::io::Result<()> {
    port.receive(batch, 64)?;
    port.wait(Duration::from_mins(1), bell)
}
