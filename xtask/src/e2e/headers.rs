//! Clients of the kernel whose packets carry IPv4 options or IPv6 extension
//! headers, and one that asks a port which nobody serves.
#![allow(unsafe_code)]

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, connect, socket};

use super::checks::Checks;
use super::dns;
use super::http::PATIENCE;
use super::matrix::Program;
use super::rig::Place;
use crate::shell::{self, Context as _, Failure, Result};

/// A record route of one address, and the end of options behind it (RFC 791).
const RECORD_ROUTE: &[u8] = &[7, 7, 4, 0, 0, 0, 0, 0];
/// An extension header with nothing but padding; the kernel writes what comes
/// next into its first byte.
const PADDING: &[u8] = &[0, 0, 1, 4, 0, 0, 0, 0];

/// What is put into every packet of a socket: a name, and the kernel's option.
const V4: [(&str, libc::c_int, libc::c_int, &[u8]); 1] = [(
    "an IPv4 option",
    libc::IPPROTO_IP,
    libc::IP_OPTIONS,
    RECORD_ROUTE,
)];
const V6: [(&str, libc::c_int, libc::c_int, &[u8]); 2] = [
    (
        "IPv6 destination options",
        libc::IPPROTO_IPV6,
        libc::IPV6_DSTOPTS,
        PADDING,
    ),
    (
        "IPv6 hop-by-hop options",
        libc::IPPROTO_IPV6,
        libc::IPV6_HOPOPTS,
        PADDING,
    ),
];

const HTTP_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// Frames that are lost are sent again.
const TRIES: usize = 8;

/// Everything that is checked of one server.
pub(crate) fn check(place: &Place, program: &Program, checks: &mut Checks) {
    let is_dns = matches!(program, Program::Namestorm { .. });
    for (address, options) in [(place.v4, &V4[..]), (place.v6, &V6[..])] {
        for &(name, level, option, value) in options {
            let with = |socket: &dyn AsFd| set_option(socket, level, option, value);
            checks.check(&format!("TCP with {name}"), || {
                let request = if is_dns {
                    dns::framed(&dns::question(1))
                } else {
                    HTTP_REQUEST.to_vec()
                };
                ask_tcp(place, address, &request, with)
            });
            if is_dns {
                checks.check(&format!("UDP with {name}"), || {
                    ask_udp(place, address, with)
                });
            }
        }
        checks.check(
            &format!("a closed UDP port of {address} is refused"),
            || closed_port(address),
        );
    }
    checks.check("an echo with a record route", || {
        let mut ping = Command::new("ping");
        ping.args(["-n", "-q", "-R", "-c", "3", "-i", "0.1", "-w", "8"]);
        shell::capture(ping.arg(place.v4.to_string())).map(|_| ())
    });
}

fn set_option(
    socket: &dyn AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &[u8],
) -> Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let len = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel reads `len` bytes of
    // `value`.
    let done = unsafe { libc::setsockopt(fd, level, option, value.as_ptr().cast(), len) };
    let outcome = if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    };
    outcome.context("setting the socket's option")
}

fn ask_tcp(
    place: &Place,
    address: IpAddr,
    request: &[u8],
    with: impl Fn(&dyn AsFd) -> Result<()>,
) -> Result<()> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let opened: io::Result<OwnedFd> =
        socket(family, SocketType::STREAM, None).map_err(io::Error::from);
    let opened = opened.context("making a socket")?;
    with(&opened)?;
    // From its first segment on.
    connect(&opened, &place.socket(address))
        .map_err(io::Error::from)
        .context("connecting")?;
    let mut stream = TcpStream::from(opened);
    stream
        .set_read_timeout(Some(PATIENCE))
        .context("setting a time limit")?;
    stream.write_all(request).context("sending")?;
    let mut reply = [0; 64];
    match stream.read(&mut reply).context("waiting for the reply")? {
        0 => Err(Failure::new("closed without a reply")),
        _ => Ok(()),
    }
}

/// A socket to one port of the server's.
fn udp(address: IpAddr, port: u16) -> Result<UdpSocket> {
    let any = if address.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any).context("binding")?;
    socket.connect((address, port)).context("connecting")?;
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .context("setting a time limit")?;
    Ok(socket)
}

fn ask_udp(place: &Place, address: IpAddr, with: impl Fn(&dyn AsFd) -> Result<()>) -> Result<()> {
    let socket = udp(address, place.port)?;
    with(&socket)?;
    let query = dns::question(1);
    let mut reply = [0; 512];
    for _ in 0..TRIES {
        socket.send(&query).context("sending")?;
        if matches!(socket.recv(&mut reply), Ok(length) if length > query.len()) {
            return Ok(());
        }
    }
    Err(Failure::new("no answer"))
}

/// In own mode the server says so, in shared mode the kernel.
fn closed_port(address: IpAddr) -> Result<()> {
    const CLOSED: u16 = 9;
    let socket = udp(address, CLOSED)?;
    for _ in 0..TRIES {
        let refused = socket.send(b"hello").and_then(|_| socket.recv(&mut [0; 8]));
        if let Err(error) = refused
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            return Ok(());
        }
    }
    Err(Failure::new("nobody said that it is closed"))
}
