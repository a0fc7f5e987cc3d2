//! A test rig: two network namespaces, a veth pair between them, and a reflector as the server.
//!
//! Only the test process keeps the namespaces alive. Therefore the kernel removes them however the
//! process exits.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::mem;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nmio::device::{AnyPort, Device, Interface, InterfaceConfig, MemoryPlan, Transport};
use nmio::{
    Frame, Handler, Instant, LoopConfig, Port, PortCounters, Resident, Stop, TscClock, Wait,
};

/// The served port.
pub(crate) const PORT: u16 = 7;

/// A network namespace.
pub(crate) struct Namespace(File);

impl Namespace {
    /// Moves the calling thread into a new namespace.
    pub(crate) fn unshare() -> Self {
        // SAFETY: the call changes only this thread's namespace and accesses no memory.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(
            result,
            0,
            "this test needs root: {}",
            io::Error::last_os_error()
        );
        Self::current()
    }

    /// Returns the calling thread's namespace.
    pub(crate) fn current() -> Self {
        Self(File::open("/proc/thread-self/ns/net").unwrap())
    }

    /// Runs `work` inside this namespace, in a temporary thread.
    pub(crate) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                // SAFETY: the call changes only this thread's namespace and accesses no memory.
                let result = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(result, 0, "{}", io::Error::last_os_error());
                work()
            });
            worker.join().unwrap()
        })
    }
}

/// Runs a command in the calling thread's namespace, and returns its standard output. Panics if the
/// command fails.
pub(crate) fn run(command: &str) -> String {
    let output = output(command);
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn output(command: &str) -> Output {
    let mut words = command.split(' ');
    let mut process = Command::new(words.next().unwrap());
    process.args(words);
    let _held = STARTING.lock();
    process
        .output()
        .unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// Locked at least while a child process starts. Until exec closes them, a starting child holds
/// copies of this process's descriptors.
static STARTING: Mutex<()> = Mutex::new(());

/// Starts a process, and waits for its first output. Returns the process and a reader for its
/// standard output.
pub(crate) fn spawn(command: &mut Command) -> (Child, BufReader<ChildStdout>) {
    let _held = STARTING.lock();
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.fill_buf().unwrap();
    (child, output)
}

/// Waits until descriptors that the calling thread has closed are closed in all processes.
///
/// This is necessary because a process that another test starts holds copies of all descriptors for
/// a short time.
pub(crate) fn settle() {
    drop(STARTING.lock());
}

/// The link between server and client.
///
/// Interface `srv`, in the server's namespace, has the addresses 02:00:00:00:00:09, 10.9.0.1/24 and
/// `fd09::1/64`. Interface `cli`, in the client's namespace, has 02:00:00:00:00:08, 10.9.0.2/24 and
/// `fd09::2/64`.
pub(crate) struct Rig {
    pub(crate) client: Namespace,
}

impl Rig {
    /// Creates the link and moves the calling thread into the server's namespace.
    pub(crate) fn new(queues: u32) -> Self {
        let client = thread::spawn(Namespace::unshare).join().unwrap();
        Namespace::unshare();
        let rig = Self { client };
        rig.connect(queues);
        rig
    }

    /// Creates the link. It must not exist, for example because one end was removed.
    pub(crate) fn connect(&self, queues: u32) {
        let client = &self.client;
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        run(&format!(
            "ip link add srv {queues} address 02:00:00:00:00:09 type veth \
             peer name cli {queues} address 02:00:00:00:00:08"
        ));
        run(&format!(
            "ip link set cli netns /proc/{}/fd/{}",
            std::process::id(),
            client.0.as_raw_fd()
        ));
        for (own, other) in [("srv", None), ("cli", Some(client))] {
            let host = if own == "srv" { 1 } else { 2 };
            let set_up = || {
                run(&format!("ip address add 10.9.0.{host}/24 dev {own}"));
                run(&format!(
                    "ip -6 address add fd09::{host}/64 dev {own} nodad"
                ));
                run("ip link set lo up");
                run(&format!("ip link set {own} up"));
                run(&format!("ethtool -K {own} tx off"));
            };
            match other {
                Some(namespace) => namespace.run(set_up),
                None => set_up(),
            }
        }
    }

    /// Opens a UDP socket in the client's namespace.
    pub(crate) fn client_socket(&self, address: &str) -> UdpSocket {
        self.client.run(|| socket(address))
    }
}

/// Opens a UDP socket with a large receive buffer, in the calling thread's namespace.
pub(crate) fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    grow_receive_buffer(&socket);
    socket
}

/// Gives a socket a receive buffer of 64 MB.
fn grow_receive_buffer(socket: &impl AsRawFd) {
    let size: i32 = 64 << 20;
    // SAFETY: the pointer and the length describe a live i32.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const size).cast(),
            4,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// A packet socket, which sends and receives whole frames.
pub(crate) struct RawSocket(OwnedFd);

impl RawSocket {
    /// Opens a socket on an interface of the calling thread's namespace.
    pub(crate) fn open(interface: &str) -> Self {
        Self::open_for(interface, libc::ETH_P_ALL as u16)
    }

    /// Opens a socket that receives only packets of one Ethernet type, as the kernel's own protocols
    /// do. A socket for all types also gets packets that the kernel never sees.
    pub(crate) fn open_for(interface: &str, ethertype: u16) -> Self {
        let flags = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: the call accesses no memory.
        let fd = unsafe { libc::socket(libc::AF_PACKET, flags, 0) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the descriptor is new, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        grow_receive_buffer(&fd);
        let link = run(&format!("ip -oneline link show dev {interface}"));
        let (index, _) = link.split_once(':').unwrap();
        // SAFETY: the address consists of integers, for which zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ethertype.to_be();
        address.sll_ifindex = index.parse().unwrap();
        let len = mem::size_of_val(&address) as u32;
        // SAFETY: the pointer and the length describe a live address.
        let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        Self(fd)
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        // SAFETY: the pointer and the length describe live bytes.
        let sent = unsafe { libc::write(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len()) };
        assert_eq!(
            sent.cast_unsigned(),
            frame.len(),
            "{}",
            io::Error::last_os_error()
        );
    }

    /// Returns the next received frame, if there is one.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 1 << 16];
        // SAFETY: the pointer and the length describe live, writable bytes.
        let len = unsafe { libc::read(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len()) };
        frame.truncate(usize::try_from(len).ok()?);
        Some(frame)
    }
}

/// Returns an interface configuration for UDP on [`PORT`].
pub(crate) fn config(device: &str, own: &[&str], queues: u32) -> InterfaceConfig {
    InterfaceConfig {
        device: device.parse::<Device>().unwrap(),
        own_addresses: own.iter().map(|text| text.parse().unwrap()).collect(),
        services: vec![(Transport::Udp, PORT)],
        workers: Some(queues),
        wait: Wait::Block,
        program: "nmiotest",
    }
}

/// Reflects every UDP packet to its sender, and answers ARP requests.
///
/// If the payload is `resident`, the reflector replies twice with a resident packet. If it is
/// `burst N`, the reflector replies with N packets.
#[derive(Default)]
pub(crate) struct Reflector {
    /// The MAC address to put into ARP replies.
    pub(crate) mac: [u8; 6],
    resident: Option<Resident>,
    /// Number of frames received so far.
    received: Arc<AtomicU64>,
    /// Number of burst packets refused because the TX ring was full.
    dropped: Arc<AtomicU64>,
}

const ETHERNET: usize = 14;

impl Reflector {
    fn reflect_in_place(&self, frame: &mut [u8]) -> Option<usize> {
        let (dst, rest) = frame.split_at_mut(6);
        dst.copy_from_slice(&rest[..6]);
        rest[..6].copy_from_slice(&self.mac);
        let (at, addresses, len) = match (frame[12], frame[13]) {
            (0x08, 0x06) if frame[21] == 1 => {
                // Turn the request into a reply: the requested address becomes the sender's address
                // (RFC 826).
                frame[21] = 2;
                let (sender, target) = frame[22..42].split_at_mut(10);
                sender.swap_with_slice(target);
                sender[..6].copy_from_slice(&self.mac);
                return Some(42);
            }
            (0x08, 0x00) if frame[ETHERNET + 9] == 17 => (ETHERNET + 12, 4, ETHERNET + 20),
            (0x86, 0xdd) if frame[ETHERNET + 6] == 17 => (ETHERNET + 8, 16, ETHERNET + 40),
            _ => return None,
        };
        let (source, destination) = frame[at..at + 2 * addresses].split_at_mut(addresses);
        source.swap_with_slice(destination);
        let (source, destination) = frame[len..len + 4].split_at_mut(2);
        source.swap_with_slice(destination);
        Some(len + 8)
    }
}

impl<P: Port> Handler<P> for Reflector {
    fn handle_frame(&mut self, port: &mut P, mut frame: Frame, _: Instant) {
        self.received.fetch_add(1, Ordering::Relaxed);
        let Some(payload) = self.reflect_in_place(&mut frame) else {
            return;
        };
        let text = String::from_utf8_lossy(&frame[payload.min(frame.len())..]).into_owned();
        if text == "resident" {
            let packet = self.resident.get_or_insert_with(|| {
                port.pool()
                    .make_resident(&frame)
                    .expect("the pool has a free resident frame")
            });
            for _ in 0..2 {
                while packet.in_flight() {
                    port.flush().unwrap();
                    port.room();
                    port.receive(&mut nmio::Batch::new(), 0).unwrap();
                }
                port.send_resident(packet.idle().unwrap()).unwrap();
            }
        } else if let Some(number) = text.strip_prefix("burst ") {
            let number: u64 = number.parse().unwrap();
            for _ in 0..number {
                let mut copy = port
                    .pool()
                    .take()
                    .expect("the pool has a free scratch frame");
                copy.set_len(frame.len());
                copy.copy_from_slice(&frame);
                if port.send(copy).is_err() {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        } else {
            port.send(frame).unwrap();
        }
    }

    fn handle_timers(&mut self, _: &mut P, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// A running server: an interface with a reflector on each queue.
pub(crate) struct Server {
    pub(crate) interface: Interface,
    pub(crate) port_summary: Vec<(&'static str, String)>,
    received: Vec<Arc<AtomicU64>>,
    dropped: Arc<AtomicU64>,
    stop: Arc<Stop>,
    workers: Vec<JoinHandle<io::Result<PortCounters>>>,
}

impl Server {
    pub(crate) fn start(config: &InterfaceConfig) -> Self {
        let interface = Interface::open(config).unwrap_or_else(|error| panic!("{error}"));
        let stop = Arc::new(Stop::new());
        let dropped = Arc::new(AtomicU64::new(0));
        let mut server = Self {
            port_summary: Vec::new(),
            received: Vec::new(),
            dropped: Arc::clone(&dropped),
            stop: Arc::clone(&stop),
            workers: Vec::new(),
            interface,
        };
        let (ready, opened) = std::sync::mpsc::channel();
        for index in 0..server.interface.queues() {
            let source = server.interface.queue(index);
            let received = Arc::new(AtomicU64::new(0));
            server.received.push(Arc::clone(&received));
            let (stop, dropped, ready) = (Arc::clone(&stop), Arc::clone(&dropped), ready.clone());
            let (wait, mac) = (config.wait, server.interface.mac());
            server.workers.push(thread::spawn(move || {
                let memory = MemoryPlan {
                    resident_frames: 4,
                    scratch_frames: 0,
                };
                let port = source
                    .open(memory)
                    .unwrap_or_else(|error| panic!("{error}"));
                ready.send(port.summary()).unwrap();
                let reflector = Reflector {
                    mac,
                    received,
                    dropped,
                    resident: None,
                };
                match port {
                    AnyPort::Xdp(port) => reflect(port, reflector, wait, &stop),
                    AnyPort::Tap(port) => reflect(port, reflector, wait, &stop),
                    AnyPort::Netmap(port) => reflect(port, reflector, wait, &stop),
                }
            }));
            server.port_summary = opened.recv().expect("the worker opens its queue");
        }
        server
    }

    /// Returns the number of frames that queue `index` has received.
    pub(crate) fn received(&self, index: usize) -> u64 {
        self.received[index].load(Ordering::Relaxed)
    }

    /// Returns the number of burst packets that were refused because the TX ring was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Stops the server and returns the counters of each queue.
    pub(crate) fn stop(self) -> Vec<PortCounters> {
        self.stop.request();
        self.wait_for_end().unwrap()
    }

    /// Waits until all workers have stopped. Returns each queue's counters, or the first error.
    pub(crate) fn wait_for_end(mut self) -> io::Result<Vec<PortCounters>> {
        let ends = self
            .workers
            .drain(..)
            .map(|worker| worker.join().unwrap())
            .collect();
        drop(self);
        settle();
        ends
    }
}

fn reflect<P: Port>(
    mut port: P,
    mut reflector: Reflector,
    wait: Wait,
    stop: &Stop,
) -> io::Result<PortCounters> {
    let config = LoopConfig {
        wait,
        ..LoopConfig::default()
    };
    nmio::run(&mut port, &mut reflector, &TscClock::new(), &config, stop)?;
    Ok(port.counters())
}

/// Sends `payload` and returns the answer.
///
/// Sends the packet only once, and panics if no answer arrives.
pub(crate) fn exchange(socket: &UdpSocket, to: &str, payload: &str) -> String {
    let mut answer = [0; 10_000];
    socket.send_to(payload.as_bytes(), to).unwrap();
    let (len, from) = socket
        .recv_from(&mut answer)
        .unwrap_or_else(|e| panic!("{to}: {e}"));
    assert_eq!(from.to_string(), to);
    String::from_utf8_lossy(&answer[..len]).into_owned()
}
