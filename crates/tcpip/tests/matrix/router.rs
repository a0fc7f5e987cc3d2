//! A router in front of the client. The MTU of its link to the client can be reduced, from the
//! start or during a run.

use nmio::sim::SimClock;
use nmio::{Clock, Instant};
use testkit::{CLIENT_MAC, End, IcmpError, Observer, Route, SERVER_MAC, Verdict, read};

const ETHERNET: usize = 14;
/// The router's IPv4 and IPv6 address.
const ROUTER: [&str; 2] = ["192.0.2.254", "2001:db8::fe"];

/// The MTU of the router's link to the client, and what the router does with longer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Narrow {
    /// The MTU: the maximum size of an IP packet in bytes.
    pub(crate) mtu: usize,
    /// Time from which the link has this MTU.
    pub(crate) from: Instant,
    /// Whether the router sends an ICMP error about each longer packet that it drops (RFC 1191, RFC
    /// 8201). If not, it drops these packets silently.
    pub(crate) sends_icmp_errors: bool,
}

/// The router, which checks the size of each frame that arrives at the client's port.
pub(crate) struct Router {
    pub(crate) clock: SimClock,
    pub(crate) narrow: Option<Narrow>,
}

impl Observer for Router {
    fn received(&mut self, frame: &[u8]) -> Verdict {
        let now = self.clock.now();
        let Some(narrow) = self.narrow.filter(|narrow| narrow.from <= now) else {
            return Verdict::Deliver;
        };
        if frame.len() <= ETHERNET + narrow.mtu {
            return Verdict::Deliver;
        }
        if !narrow.sends_icmp_errors {
            return Verdict::Drop;
        }
        let server = read(frame).expect("a valid packet").route.src;
        let router = End {
            mac: CLIENT_MAC,
            ip: ROUTER[usize::from(server.ip.is_ipv6())].parse().unwrap(),
            port: 0,
        };
        let back = Route {
            src: router,
            dst: End {
                mac: SERVER_MAC,
                ..server
            },
            vlan: None,
        };
        Verdict::Answer(back.icmp_error(IcmpError::TooBig(narrow.mtu as u32), frame))
    }
}
