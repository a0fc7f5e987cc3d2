//! Network namespaces. Dropping a [`Namespace`] removes the network namespace.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::shell;

/// Maximum size of a super-segment in bytes, as set by [`Namespace::allow_long_supers`].
const LONG_SUPERS: u32 = 256 << 10;

/// Interfaces of the server and of the client in the networks of the tests and comparisons.
pub(crate) const SERVER_LINK: &str = "srv0";
pub(crate) const CLIENT_LINK: &str = "cli0";

/// Joins two namespaces by a veth pair with this number of queues. Both interfaces are down.
pub(crate) fn join(ends: [(&Namespace, &str); 2], queues: u32) -> Result<()> {
    let [(near, link), (far, far_link)] = ends;
    let options = format!("mtu 1500 numrxqueues {queues} numtxqueues {queues}");
    let far_end = format!("{far_link} netns {} {options}", far.name);
    near.ip(&format!(
        "link add {link} {options} type veth peer name {far_end}"
    ))
    .map(drop)
}

/// A network namespace that this process made.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace named after `purpose` and the process id, and brings up loopback.
    pub(crate) fn create(purpose: &str) -> Result<Self> {
        let name = format!("storm-{purpose}-{}", std::process::id());
        shell::capture(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Self { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns a command that runs `program` in the namespace. `ip netns exec` replaces itself with
    /// the program, so the program has its process id.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs a command line in the namespace and returns its output. Spaces separate the arguments.
    pub(crate) fn run(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().unwrap_or_default());
        shell::capture_text(command.args(words))
    }

    /// Runs `ip ARGUMENTS` in the namespace and returns its output.
    pub(crate) fn ip(&self, arguments: &str) -> Result<String> {
        self.run(&format!("ip {arguments}"))
    }

    /// Turns offload features of an interface on or off. `features` are their `ethtool` names.
    pub(crate) fn set_features(&self, link: &str, features: &[&str], on: bool) -> Result<()> {
        let state = if on { " on " } else { " off " };
        let features = features.join(state) + state;
        self.run(&format!("ethtool -K {link} {features}")).map(drop)
    }

    /// Allows IPv4 super-segments of up to 256 KB on an interface. This uses netlink, because older
    /// versions of `ip` do not have `ip link set LINK gso_ipv4_max_size 262144`.
    pub(crate) fn allow_long_supers(&self, link: &str) -> Result<()> {
        let done = self.inside(|| set_longest_super(link, LONG_SUPERS))?;
        done.with_context(|| format!("allowing {link} longer super-segments"))
    }

    /// Moves the calling thread into the namespace permanently. Threads and processes that this
    /// thread starts later inherit the namespace.
    pub(crate) fn enter(&self) -> Result<()> {
        let path = format!("/run/netns/{}", self.name);
        let file = File::open(&path).with_context(|| format!("opening {path}"))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("entering {path}"))
    }

    /// Runs `work` on a new thread in the namespace, and returns its result.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| work()));
            thread
                .join()
                .map_err(|_| anyhow!("a thread inside a network namespace panicked"))?
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = shell::capture(Command::new("ip").args(["netns", "del", &self.name])) {
            eprintln!(
                "cannot remove the network namespace {}: {error:#}",
                self.name
            );
        }
    }
}

/// Sets the interface's `gso_ipv4_max_size` through routing netlink (RFC 3549).
fn set_longest_super(link: &str, bytes: u32) -> std::io::Result<()> {
    // These values are from linux/netlink.h, linux/rtnetlink.h and linux/if_link.h.
    const REQUEST_AND_ACK: u16 = 1 | 4;
    const RTM_SETLINK: u16 = 19;
    const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
    // The default protocol of a netlink socket is NETLINK_ROUTE.
    let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    let datagrams = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    let index = rustix::net::netdevice::name_to_index(&datagrams, link)?;
    let mut message = [0; 40];
    message[..4].copy_from_slice(&40_u32.to_ne_bytes());
    message[4..6].copy_from_slice(&RTM_SETLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&REQUEST_AND_ACK.to_ne_bytes());
    message[20..24].copy_from_slice(&index.to_ne_bytes());
    message[32..34].copy_from_slice(&8_u16.to_ne_bytes());
    message[34..36].copy_from_slice(&IFLA_GSO_IPV4_MAX_SIZE.to_ne_bytes());
    message[36..].copy_from_slice(&bytes.to_ne_bytes());
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0; 64];
    rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        code => Err(std::io::Error::from_raw_os_error(-code)),
    }
}
