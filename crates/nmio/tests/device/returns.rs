//! Ports that wait for the return of an interface that was removed.

use std::net::UdpSocket;
use std::time::Duration;

use nmio::device::{AnyPort, Interface, MemoryPlan, PacketMemory};
use nmio::{Batch, Fault, Handler as _, Instant, Pcap, Port, SendError};

use crate::rig::{PORT, Reflector, Rig, config, run, settle};
use crate::{eventually, supers};

/// Number of packets that are sent while there is no interface.
const LOST: u64 = 5_000;

/// A port in the test's own thread, with a reflector.
struct Echo<P> {
    port: P,
    reflector: Reflector,
}

impl Echo<AnyPort> {
    /// Opens a port that waits for the return of its interface.
    fn that_waits(interface: &Interface, memory: MemoryPlan) -> Self {
        let source = interface.queue(0).wait_for_return();
        Self {
            port: source.open(memory).unwrap(),
            reflector: Reflector::default(),
        }
    }
}

impl<P: Port> Echo<P> {
    /// Handles what has arrived.
    fn pass(&mut self) {
        let mut batch = Batch::new();
        self.port.receive(&mut batch, 64).unwrap();
        for frame in batch {
            let now = Instant::ZERO;
            self.reflector.handle_frame(&mut self.port, frame, now);
        }
        self.port.flush().unwrap();
        self.port.wait(Duration::from_millis(1), None).unwrap();
    }

    /// Returns true if the client gets its text back.
    fn answers(&mut self, client: &UdpSocket, text: &str) -> bool {
        client.send_to(text.as_bytes(), ("10.9.0.1", PORT)).unwrap();
        let mut bytes = [0; 64];
        for _ in 0..200 {
            self.pass();
            // The reply to the text before may come twice.
            while let Ok(len) = client.recv(&mut bytes) {
                if &bytes[..len] == text.as_bytes() {
                    return true;
                }
            }
        }
        false
    }

    /// Sends a frame that nobody waits for.
    fn send(&mut self) -> Result<(), SendError> {
        let mut frame = self.port.pool().take().expect("a frame is free");
        frame.set_len(60);
        frame.fill(0);
        self.port.send(frame)
    }
}

#[test]
fn a_port_goes_on_when_its_interface_returns() {
    for (device, mtu) in [
        ("xdp:srv", 1500),
        ("xdp:srv,generic", 1500),
        ("xdp:srv,offload=on", 1500),
        ("xdp:srv", 9000),
    ] {
        let rig = Rig::new(1);
        let set_mtu = || {
            run(&format!("ip link set srv mtu {mtu}"));
            let set = || run(&format!("ip link set cli mtu {mtu}"));
            rig.client.run(set);
        };
        // A second socket with this port could fail: a process that another test starts has a copy of
        // the first one for a moment.
        let client = rig.client_socket("10.9.0.2:4000");
        client.set_nonblocking(true).unwrap();
        set_mtu();
        let config = config(device, &[], 1);
        let interface = Interface::open(&config).unwrap_or_else(|error| panic!("{error}"));
        let memory = MemoryPlan {
            resident_frames: 4,
            scratch_frames: 0,
        };
        let mut echo = Echo::that_waits(&interface, memory);
        let levels = echo.port.levels();
        // The resident packet is made here, and sent from the same frame afterwards.
        for text in ["before", "resident"] {
            assert!(echo.answers(&client, text), "{device}");
        }

        // Packets are on their way when the interface is removed.
        while echo.send().is_ok() && echo.port.room() > 0 {}
        run("ip link delete srv");
        eventually("the port notices", || {
            echo.pass();
            echo.send().unwrap();
            echo.port.flush().unwrap() && echo.port.counters().tx_lost > 0
        });
        let lost = echo.port.counters().tx_lost;
        for _ in 0..LOST {
            echo.send().unwrap();
        }
        assert!(echo.port.flush().unwrap());
        assert_eq!(echo.port.counters().tx_lost, lost + LOST);
        drop(interface);

        rig.connect(1);
        set_mtu();
        let interface = Interface::open(&config).unwrap_or_else(|error| panic!("{error}"));
        if mtu == 9000 {
            // As another process would do it.
            let memory = echo.port.shared_memory().expect("a UMEM");
            let parts = (memory.facts(), memory.file().try_clone_to_owned().unwrap());
            let memory = PacketMemory::from_parts(parts.0, parts.1);
            interface.register_memory(0, &memory).unwrap();
        }
        let queue = interface.new_queue(0).expect("a queue of AF_XDP");
        let received = echo.port.counters().rx_frames;
        echo.pass();
        let lost = lost + u64::from(echo.port.levels().sending);
        echo.port.attach(queue).unwrap();
        assert_eq!(echo.port.levels(), levels, "all frames are back");
        for text in ["after", "resident", "after that"] {
            assert!(echo.answers(&client, text), "{device}");
        }
        let counters = echo.port.counters();
        assert!(counters.rx_frames >= received + 3);
        assert_eq!(
            (counters.tx_lost, counters.bad_descriptors),
            (lost + LOST, 0)
        );
    }
}

/// Packets that the kernel has not taken when the interface is removed are lost. Each segment counts.
#[test]
fn packets_that_were_queued_before_the_removal_are_lost() {
    const QUEUED: u64 = 5;
    let rig = Rig::new(1);
    for has_super in [false, true] {
        let config = config("xdp:srv,offload=on", &["10.9.0.9/24"], 1);
        let open = || Interface::open(&config).unwrap_or_else(|error| panic!("{error}"));
        let interface = open();
        let mut echo = Echo::that_waits(&interface, MemoryPlan::default());
        for _ in 0..QUEUED {
            echo.send().unwrap();
        }
        let mut queued = QUEUED;
        if has_super {
            let bytes = vec![0; 5_000].into();
            let packet = supers::run(&supers::path(false), &bytes, 4_000, Some(supers::ACK));
            queued += packet.segments() as u64;
            echo.port.send_super(packet).unwrap();
        }
        run("ip link delete srv");
        echo.port.wait(Duration::from_millis(1), None).unwrap();
        drop(interface);
        rig.connect(1);
        let interface = open();
        let queue = interface.new_queue(0).expect("a queue of AF_XDP");
        echo.port.attach(queue).unwrap();
        assert_eq!(echo.port.counters().tx_lost, queued);
        drop((echo, interface));
        settle();
    }
}

/// The helper process opens an interface, which is gone before the worker uses its queue.
#[test]
fn a_port_goes_on_waiting_if_the_new_interface_is_removed_too() {
    let rig = Rig::new(1);
    let client = rig.client_socket("10.9.0.2:4000");
    client.set_nonblocking(true).unwrap();
    let config = config("xdp:srv,offload=on", &[], 1);
    let open = || Interface::open(&config).unwrap_or_else(|error| panic!("{error}"));
    let interface = open();
    let mut echo = Echo::that_waits(&interface, MemoryPlan::default());
    assert!(echo.answers(&client, "before"));
    run("ip link delete srv");
    eventually("the port notices", || {
        echo.pass();
        echo.send().unwrap();
        echo.port.counters().tx_lost > 0
    });
    drop(interface);

    rig.connect(1);
    let interface = open();
    let queue = interface.new_queue(0).expect("a queue of AF_XDP");
    run("ip link delete srv");
    echo.port.attach(queue).unwrap();
    let lost = echo.port.counters().tx_lost;
    echo.send().unwrap();
    assert!(echo.port.flush().unwrap());
    assert_eq!(echo.port.counters().tx_lost, lost + 1);
    drop(interface);

    rig.connect(1);
    let interface = open();
    let queue = interface.new_queue(0).expect("a queue of AF_XDP");
    echo.port.attach(queue).unwrap();
    assert!(echo.answers(&client, "after"));
}

#[test]
fn a_wrapped_port_shares_its_packet_memory() {
    let _rig = Rig::new(1);
    let interface = Interface::open(&config("xdp:srv", &[], 1)).unwrap();
    let port = interface.queue(0).open(MemoryPlan::default()).unwrap();
    let captured = Pcap::new(port, None).unwrap();
    assert!(captured.shared_memory().is_some());
    assert!(Fault::new(captured, None).shared_memory().is_some());
}

#[test]
fn only_a_port_that_waits_for_it_takes_another_queue() {
    let _rig = Rig::new(1);
    let interface = Interface::open(&config("xdp:srv", &[], 1)).unwrap();
    let mut port = interface.queue(0).open(MemoryPlan::default()).unwrap();
    let queue = interface.new_queue(0).unwrap();
    assert!(port.attach(queue).is_err());
    drop((port, interface));
    settle();
    let interface = Interface::open(&config("xdp:srv", &[], 1)).unwrap();
    let source = interface.queue(0).wait_for_return();
    let mut port = source.open(MemoryPlan::default()).unwrap();
    let other = interface.new_queue(0).unwrap();
    let error = port.attach(other).unwrap_err().to_string();
    assert!(error.contains("srv"), "its own queue still exists: {error}");
    let tap = Interface::open(&config("tap:nmiotap", &["10.7.0.2/24"], 1)).unwrap();
    assert!(tap.new_queue(0).is_none());
    assert!(!tap.may_return());
}
