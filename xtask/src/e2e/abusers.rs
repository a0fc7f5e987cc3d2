//! Clients that hold connections without making use of them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use socket2::{SockFilter, SockRef};

use super::dns;
use super::many::allow_files;
use super::rig::Rig;
use crate::netns::CLIENT_LINK;
use crate::shell;

/// Addresses of the abusers. Both are in one IPv6 network, so the server counts them as one client.
/// Together they have enough ports to fill the server's connection table.
const ABUSERS: [&str; 2] = ["fd99::66", "fd99::67"];
/// Number of threads that drive the abusive clients.
const THREADS: usize = 4;
/// Number of files that this process opens in addition to the connections.
const FILES: u64 = 200;
/// Time between the opening of the last abusive connection and the other clients' first request.
const SETTLE_TIME: Duration = Duration::from_secs(3);
/// Number of frames that can queue on the clients' side of the link.
const QUEUE: usize = 100_000;

/// Duration of a round: the interval between two bytes of a slow request, and between two checks of
/// a connection.
const ROUND: Duration = Duration::from_secs(3);
/// Number of connections that a thread drives between two pauses. Pauses spread the packets,
/// because the tests are about the number of connections and not about their packet rate.
const AT_ONCE: usize = 32;
/// Number of rounds from one read of a [`Sip`](Abuse::Sip) client to the next.
const SIP_ROUNDS: u32 = 3;
/// Number of bytes that a [`Sip`](Abuse::Sip) client reads at a time.
const SIP: usize = 500;
/// Receive buffer of a [`Holes`](Abuse::Holes) client, in bytes. It has room for the 64 KB in which
/// [`holes`] drops segments.
const LARGE_BUFFER: usize = 256 << 10;
/// Number of queries that a [`Queries`](Abuse::Queries) client sends.
const QUERIES: u16 = 250;
/// Receive buffer of a client that reads little or nothing, in bytes.
const SMALL_BUFFER: usize = 2_048;

/// What an abusive client does on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Abuse {
    /// Sends half a request, and then one byte per round.
    HalfHead,
    /// Requests a large file and reads nothing.
    ZeroWindow,
    /// Requests a large file and reads [`SIP`] bytes every [`SIP_ROUNDS`] rounds.
    Sip,
    /// Requests a large file and never receives some of its segments.
    Holes,
    /// Asks [`QUERIES`] questions and reads no answer.
    Queries,
    /// Sends half a question, and then one byte per round.
    HalfQuestion,
}

/// Lets this process open the connections of so many abusers.
pub(super) fn allow(abuses: &[(Abuse, usize)]) -> Result<()> {
    let count = abuses.iter().map(|(_, count)| *count as u64);
    allow_files(FILES + count.sum::<u64>())
}

/// Gives the client's side of a rig the addresses and the ports of abusers.
pub(super) fn add_addresses(rig: &Rig) -> Result<()> {
    let client = rig.client();
    for address in ABUSERS {
        client.ip(&format!("address add {address}/64 dev {CLIENT_LINK} nodad"))?;
    }
    let ports = "net.ipv4.ip_local_port_range=1024 65535";
    let mut sysctl = client.command("sysctl");
    shell::capture(sysctl.args(["-q", "-w", ports]))?;
    // Thousands of connections retransmit at the same moment. With a short queue, the link would drop
    // other clients' frames.
    let queue = format!("tc qdisc add dev {CLIENT_LINK} root pfifo limit {QUEUE}");
    client.run(&queue).map(drop)
}

/// Runs `act` while so many abusers hold connections to the server at `to`. Call this function in the
/// client's namespace, after [`add_addresses`].
pub(super) fn beside<T>(
    to: SocketAddr,
    abuses: &[(Abuse, usize)],
    act: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let stop = &AtomicBool::new(false);
    let share = |(abuse, count): &(Abuse, usize)| std::iter::repeat_n(*abuse, count / THREADS);
    let abuses: &Vec<Abuse> = &abuses.iter().flat_map(share).collect();
    let (opened, all_opened) = mpsc::channel();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for address in ABUSERS.iter().cycle().take(THREADS) {
            let from: IpAddr = address.parse().with_context(|| address.to_string())?;
            let (from, opened) = (SocketAddr::new(from, 0), opened.clone());
            let opened = move || opened.send(()).unwrap_or_default();
            threads.push(scope.spawn(move || run(from, to, abuses, stop, opened)));
        }
        drop(opened);
        let are_open = all_opened.iter().count() == THREADS;
        std::thread::sleep(SETTLE_TIME);
        let outcome = act();
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("an abuser panicked"))??;
        }
        ensure!(are_open, "abusers could not open their connections");
        outcome
    })
}

/// Opens one connection from address `from` for each entry of `abuses`, and then calls `opened`.
/// The entry says what the client does on its connection in each round. The rounds continue until
/// `stop` is true. If the server closes a connection, the client opens another one.
fn run(
    from: SocketAddr,
    to: SocketAddr,
    abuses: &[Abuse],
    stop: &AtomicBool,
    opened: impl FnOnce(),
) -> Result<()> {
    let is_stopped = || stop.load(Ordering::Relaxed);
    let mut open = Vec::new();
    for abuse in abuses.iter().take_while(|_| !is_stopped()) {
        // The server may close the connection before the first bytes are sent, so try twice.
        let stream = abuse.open(from, to).or_else(|_| abuse.open(from, to))?;
        open.push((*abuse, stream));
    }
    opened();
    let pause = ROUND / open.len().div_ceil(AT_ONCE).max(1) as u32;
    for round in 0.. {
        for some in open.chunks_mut(AT_ONCE) {
            if is_stopped() {
                return Ok(());
            }
            for (abuse, stream) in some {
                if !abuse.continues(stream, round) {
                    // If the server refuses the new connection, the client may stay without one.
                    if let Ok(reopened) = abuse.open(from, to) {
                        *stream = reopened;
                    }
                }
            }
            std::thread::sleep(pause);
        }
    }
    Ok(())
}

impl Abuse {
    /// Opens a connection and sends the first bytes.
    fn open(self, from: SocketAddr, to: SocketAddr) -> Result<TcpStream> {
        let open = || {
            let fd = socket(AddressFamily::INET6, SocketType::STREAM, None)?;
            // A small receive buffer keeps the client's kernel from receiving all answers.
            let buffer = match self {
                Self::HalfHead | Self::HalfQuestion => None,
                Self::Holes => Some(LARGE_BUFFER),
                Self::ZeroWindow | Self::Sip | Self::Queries => Some(SMALL_BUFFER),
            };
            if let Some(size) = buffer {
                sockopt::set_socket_recv_buffer_size_force(&fd, size)?;
            }
            bind(&fd, &from)?;
            connect(&fd, &to)?;
            let mut stream = TcpStream::from(fd);
            if self == Self::Holes {
                SockRef::from(&stream).attach_filter(&holes())?;
            }
            stream.write_all(&self.first_bytes())?;
            stream.set_nonblocking(true)?;
            std::io::Result::Ok(stream)
        };
        open().with_context(|| format!("a connection from {from} to {to}"))
    }

    fn first_bytes(self) -> Vec<u8> {
        match self {
            Self::HalfHead => b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec(),
            Self::ZeroWindow | Self::Sip | Self::Holes => {
                b"GET /size-30000000.bin HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()
            }
            Self::Queries => {
                let questions = (0..QUERIES).map(|id| dns::framed(&dns::question(id)));
                questions.flatten().collect()
            }
            // This length prefix announces a message of 65,535 bytes, which does not follow.
            Self::HalfQuestion => vec![0xff, 0xff],
        }
    }

    /// Does what the client does in one round. Returns false if the server has closed the
    /// connection.
    fn continues(self, stream: &mut TcpStream, round: u32) -> bool {
        let done = match self {
            Self::HalfHead | Self::HalfQuestion => stream.write(b"x"),
            Self::Sip if round.is_multiple_of(SIP_ROUNDS) => stream.read(&mut [0; SIP]),
            _ => return matches!(stream.take_error(), Ok(None)),
        };
        match done {
            Ok(count) => count > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// Returns a socket filter that makes holes in the received data. In one of every four stretches of
/// 64 KB, it drops about every second segment. Retransmissions are dropped too, so the holes
/// remain.
fn holes() -> [SockFilter; 5] {
    /// Offset of the sequence number in the TCP header.
    const SEQ: u32 = 4;
    /// These bits of the sequence number are zero in the stretches with holes.
    const STRETCH: u32 = 0x3_0000;
    /// This bit differs between most neighbouring segments.
    const CHANGING: u32 = 0x400;
    let step = |code: u32, jt, jf, k| SockFilter::new(code as u16, jt, jf, k);
    let jump_if_set = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    let end = libc::BPF_RET | libc::BPF_K;
    [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, SEQ),
        step(jump_if_set, 2, 0, STRETCH),
        step(jump_if_set, 0, 1, CHANGING),
        step(end, 0, 0, 0),
        step(end, 0, 0, u32::MAX),
    ]
}
