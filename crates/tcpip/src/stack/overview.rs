//! What an operator may see of each connection, and what the stack remembers for that.

use std::net::SocketAddr;
use std::time::Duration;

use crate::clock::Moment;
use crate::connection::Info;
use crate::wire::Seq;

/// A connection as an operator sees it, similar to a line of `ss -tin`. See
/// [`Stack::overview`](crate::Stack::overview).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overview {
    /// The client's address and port.
    pub peer: SocketAddr,
    /// Our own address and port.
    pub local: SocketAddr,
    /// State, round-trip times, windows and losses.
    pub info: Info,
    /// The retransmission timeout, with its backoff.
    pub rto: Duration,
    /// Time since the SYN arrived, or since the ACK of a SYN cookie.
    pub age: Duration,
    /// Time since the last segment of a connection on which nothing is in flight. It is zero for
    /// all other connections.
    pub idle: Duration,
    /// Number of bytes sent, without retransmissions.
    pub bytes_sent: u64,
    /// Number of bytes that the peer has acknowledged cumulatively.
    pub bytes_acked: u64,
    /// Number of bytes received in order.
    pub bytes_received: u64,
    /// Number of retransmissions, including probes of lost tails.
    pub retransmits: u32,
    /// The data that the peer has to acknowledge next, or `None` if there is none.
    pub sending: Option<Sending>,
}

/// The data that a connection is sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Identifies the bytes of a content item: the address in memory of the bytes that were passed
    /// to [`Contents::add`](crate::Contents::add). `None` stands for bytes that belong to no
    /// content item.
    pub content: Option<usize>,
    /// Number of bytes of the content item in front of the first byte that is not acknowledged.
    pub at: u64,
    /// Length of the content item, in bytes. For other bytes, the length of what is left of them.
    pub len: u64,
}

/// What happened to a connection since it was opened, as far as its TCB does not tell. It lies apart
/// from the TCB, because nearly no segment changes it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct History {
    /// Time at which the connection was opened, in microseconds.
    opened: u64,
    /// First sequence number of our data.
    first_sent: Seq,
    /// First sequence number of the peer's data.
    first_received: Seq,
    retransmits: u32,
    /// Number of times that SND.UNA has passed from 2^32 - 1 to 0.
    una_wraps: u16,
    /// Number of times that RCV.NXT has passed from 2^32 - 1 to 0.
    rcv_wraps: u16,
}

impl History {
    /// Creates the history of a connection whose SND.UNA and RCV.NXT have not moved since
    /// SYN-RECEIVED.
    pub(super) fn new((una, rcv_nxt): (Seq, Seq), now: Moment) -> Self {
        Self {
            opened: now.whole_micros,
            first_sent: una + 1,
            first_received: rcv_nxt,
            ..Self::default()
        }
    }

    /// Adds events: passages of SND.UNA and of RCV.NXT from 2^32 - 1 to 0, and retransmissions.
    #[cold]
    #[inline(never)]
    pub(super) fn add(&mut self, una_wraps: u16, rcv_wraps: u16, retransmits: u32) {
        self.una_wraps = self.una_wraps.wrapping_add(una_wraps);
        self.rcv_wraps = self.rcv_wraps.wrapping_add(rcv_wraps);
        self.retransmits = self.retransmits.saturating_add(retransmits);
    }

    /// Sets what only the history tells of a connection. `una` and `rcv_nxt` are its SND.UNA and RCV.NXT.
    /// The bytes are those behind the SYNs, and include FINs.
    pub(super) fn tell(self, (una, rcv_nxt): (Seq, Seq), now: Moment, overview: &mut Overview) {
        let distance = |first: Seq, next: Seq, wraps: u16| {
            let next = u64::from(wraps) << 32 | u64::from(next.0);
            next.saturating_sub(first.0.into())
        };
        overview.age = Duration::from_micros(now.whole_micros.saturating_sub(self.opened));
        overview.bytes_acked = distance(self.first_sent, una, self.una_wraps);
        overview.bytes_received = distance(self.first_received, rcv_nxt, self.rcv_wraps);
        overview.retransmits = self.retransmits;
    }
}
