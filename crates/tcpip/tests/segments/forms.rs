//! The forms in which a case runs. A form sets the IP version, send mode, option layout, initial
//! sequence numbers and starting time.

use std::fmt;

use crate::SendMode;
use testkit::{Layout, Route};

use super::run::OWN_PORT;

/// A form in which a case runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) v6: bool,
    pub(crate) mode: SendMode,
    /// The peer's initial sequence number.
    pub(crate) isn: u32,
    /// Secret from which our initial sequence numbers are derived.
    pub(crate) secret: [u64; 4],
    /// Layout of the TCP options that the peer sends.
    pub(crate) layout: Layout,
    /// Reading of the clock in milliseconds when the case begins. If `iss` is set, the case begins
    /// later.
    pub(crate) begin_ms: u64,
    /// The initial sequence number that the stack should choose. The stack's choice grows with
    /// time, so the case begins at most a millisecond before the stack would choose this number.
    pub(crate) iss: Option<u32>,
}

/// All forms. In the first form, the peer's sequence numbers wrap after two bytes. In the second
/// form, a 32-bit microsecond clock wraps after about 150 ms. In the third form, our sequence
/// numbers wrap after about 3,000 bytes, and the peer's pass 2^31 after two bytes. In the fourth
/// form, a 32-bit millisecond clock wraps after 250 ms.
pub(crate) const FORMS: [Form; 4] = [
    Form {
        v6: false,
        mode: SendMode::MemCopy,
        isn: u32::MAX - 2,
        secret: [1, 2, 3, 4],
        layout: Layout::Usual,
        begin_ms: 1_000_000,
        iss: None,
    },
    Form {
        v6: false,
        mode: SendMode::PreCopy,
        isn: 1_000_000,
        secret: [5, 6, 7, 8],
        layout: Layout::Dense,
        begin_ms: (1 << 32) / 1000 - 150,
        iss: None,
    },
    Form {
        v6: true,
        mode: SendMode::MemCopy,
        isn: 0x7fff_fffd,
        secret: [9, 10, 11, 12],
        layout: Layout::Dense,
        begin_ms: 1_000_000,
        iss: Some(u32::MAX - 3_000),
    },
    Form {
        v6: true,
        mode: SendMode::PreCopy,
        isn: 0,
        secret: [13, 14, 15, 16],
        layout: Layout::Usual,
        begin_ms: (1 << 32) - 250,
        iss: None,
    },
];

impl Form {
    /// Returns the route from a peer's port to our usual port.
    pub(crate) const fn route(self, peer_port: u16) -> Route {
        Route::to_server(self.v6, peer_port, OWN_PORT)
    }

    /// Returns the size of the IP and TCP headers in bytes, without options.
    pub(crate) const fn headers(self) -> u16 {
        if self.v6 { 60 } else { 40 }
    }

    pub(crate) fn is(self, name: &str) -> bool {
        match name {
            "ipv4" => !self.v6,
            "ipv6" => self.v6,
            "memcopy" => self.mode == SendMode::MemCopy,
            "precopy" => self.mode == SendMode::PreCopy,
            _ => false,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.v6 { "IPv6" } else { "IPv4" };
        write!(f, "{version}, {:?}", self.mode)
    }
}
