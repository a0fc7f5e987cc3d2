//! Checks of both servers below TCP and UDP: ICMP echo, IPv4 options, IPv6 extension headers, and a
//! closed UDP port.
//!
//! If the server has its own address, it answers echo requests and datagrams to the closed port. If
//! it shares the kernel's address, the kernel answers these packets.
#![allow(unsafe_code)]

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::net::{AddressFamily, SocketType, connect, socket};

use super::checks::Checks;
use super::dns::{self, udp};
use super::http::TIMEOUT;
use super::matrix::Scenario;
use super::rig::Place;
use crate::shell;

/// A record route option with room for one address, followed by the end of options (RFC 791).
const RECORD_ROUTE: [u8; 8] = [7, 7, 4, 0, 0, 0, 0, 0];
/// An options header that holds only padding. The kernel fills in the next header field.
const PADDING: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];

/// Options that a socket adds to each packet. Columns: whether the option is for IPv6, its name,
/// and the arguments of `setsockopt`.
const OPTIONS: [(bool, &str, libc::c_int, libc::c_int, [u8; 8]); 3] = [
    (
        false,
        "an IPv4 option",
        libc::IPPROTO_IP,
        libc::IP_OPTIONS,
        RECORD_ROUTE,
    ),
    (
        true,
        "IPv6 destination options",
        libc::IPPROTO_IPV6,
        libc::IPV6_DSTOPTS,
        PADDING,
    ),
    (
        true,
        "IPv6 hop-by-hop options",
        libc::IPPROTO_IPV6,
        libc::IPV6_HOPOPTS,
        PADDING,
    ),
];

/// Maximum number of attempts over UDP. One may not be enough, because the path may lose frames.
const TRIES: usize = 8;
/// A UDP port on which neither server listens.
const CLOSED: u16 = 9;

/// Runs all checks against the server at `place`.
pub(crate) fn check(place: &Place, scenario: &Scenario, checks: &mut Checks) {
    for address in place.addresses() {
        // Number of data bytes in an echo request that fills a packet of 1,500 bytes.
        let whole = if address.is_ipv4() { 1_472 } else { 1_452 };
        for (name, size) in [("small", 56), ("large", whole)] {
            // On a lossy path, wait up to 8 s. The kernel repeats a lost ARP request only after a
            // second.
            let tries = if place.loss {
                "-c 3 -i 0.1 -w 8"
            } else {
                "-c 1 -W 1"
            };
            checks.check(format_args!("a {name} echo from {address}"), || {
                ping(&format!("{tries} -M do -s {size} {address}"))
            });
        }
        let of_family = |option: &&(bool, _, _, _, _)| option.0 == address.is_ipv6();
        for (_, name, level, option, value) in OPTIONS.iter().filter(of_family) {
            let set = |socket: &dyn AsFd| set_option(socket, *level, *option, value);
            checks.check(format_args!("TCP with {name}"), || {
                ask_tcp(place.socket(address), scenario, set)
            });
            if scenario.is_dns() {
                checks.check(format_args!("UDP with {name}"), || {
                    ask_udp(place.socket(address), set)
                });
            }
        }
        checks.check(
            format_args!("a closed UDP port of {address} is refused"),
            || closed_port(address),
        );
    }
    checks.check("an echo with a record route", || {
        ping(&format!("-R -c 3 -i 0.1 -w 8 {}", place.v4))
    });
}

fn ping(arguments: &str) -> Result<()> {
    let mut ping = Command::new("ping");
    shell::capture(ping.args(["-n", "-q"]).args(arguments.split(' '))).map(drop)
}

fn set_option(
    socket: &dyn AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &[u8],
) -> Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let len = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel reads exactly `len` bytes of `value`.
    let done = unsafe { libc::setsockopt(fd, level, option, value.as_ptr().cast(), len) };
    let error = io::Error::last_os_error();
    ensure!(done == 0, "setting a socket's option: {error}");
    Ok(())
}

fn ask_tcp(
    to: SocketAddr,
    scenario: &Scenario,
    set: impl Fn(&dyn AsFd) -> Result<()>,
) -> Result<()> {
    let request = if scenario.is_dns() {
        dns::framed(&dns::question(1))
    } else {
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()
    };
    let families = [AddressFamily::INET, AddressFamily::INET6];
    let family = families[usize::from(to.is_ipv6())];
    let socket = socket(family, SocketType::STREAM, None).context("making a socket")?;
    // Set the option before connecting, so that the SYN carries it too.
    set(&socket)?;
    connect(&socket, &to).context("connecting")?;
    let mut stream = TcpStream::from(socket);
    let limited = stream.set_read_timeout(Some(TIMEOUT));
    limited.context("setting a time limit")?;
    stream.write_all(&request).context("sending")?;
    let read = stream.read(&mut [0; 64]).context("waiting for the reply")?;
    ensure!(read > 0, "closed without a reply");
    Ok(())
}

fn ask_udp(to: SocketAddr, set: impl Fn(&dyn AsFd) -> Result<()>) -> Result<()> {
    let (socket, query) = (udp(to)?, dns::question(1));
    set(&socket)?;
    for _ in 0..TRIES {
        socket.send(&query).context("sending")?;
        if matches!(socket.recv(&mut [0; 512]), Ok(length) if length > query.len()) {
            return Ok(());
        }
    }
    bail!("no answer")
}

fn closed_port(address: IpAddr) -> Result<()> {
    let socket = udp((address, CLOSED).into())?;
    for _ in 0..TRIES {
        let received = socket.send(b"hello").and_then(|_| socket.recv(&mut [0; 8]));
        if received.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            return Ok(());
        }
    }
    bail!("no ICMP error came")
}
