//! The state of one connection.

use nmio::Instant;

use crate::load::tcp::{Fields, NOBODY, Ranges, WINDOW_SCALE};

/// Receive window in bytes that the client advertises with window scaling. Received data is not
/// stored, so the window limits only how much a server sends without an ACK.
pub(super) const WINDOW: u32 = 256 * 1024;
/// Receive window in bytes without window scaling.
const PLAIN_WINDOW: u16 = 65_535;
/// A deadline that never comes, in ms.
pub(super) const NEVER: u32 = u32::MAX;
/// The number of remaining requests that stands for "no limit".
pub(super) const ENDLESS: u32 = u32::MAX;
/// Maximum number of connections with holes in the received data or with an incomplete head.
/// Further connections drop out-of-order data, and fail if a head is incomplete.
pub(super) const MAX_TROUBLES: usize = 1 << 14;

const _: () = assert!(size_of::<Connection>() <= 128);
const _: () = assert!(WINDOW >> WINDOW_SCALE <= PLAIN_WINDOW as u32);

/// The states of RFC 9293, section 3.3.2. States that the client treats alike are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// The entry is free.
    #[default]
    Closed,
    /// SYN-SENT.
    Opening,
    /// ESTABLISHED.
    Open,
    /// The client has closed or is about to close: CLOSE-WAIT, LAST-ACK, FIN-WAIT or CLOSING. No
    /// request waits for a response on this connection.
    Closing,
}

bitflags::bitflags! {
    /// Flags of a connection.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Flags: u32 {
        /// The connection is in the output list.
        const QUEUED = 1;
        /// This flag and the next five say what to send. `SYN` and `THIRD` are served first, then
        /// `REQUEST`, then `RESEND` and `FIN`, and `ACK` last. `THIRD` stands for the third segment
        /// of the handshake.
        const SYN = 1 << 1;
        const THIRD = 1 << 2;
        const REQUEST = 1 << 3;
        const RESEND = 1 << 4;
        const FIN = 1 << 5;
        const ACK = 1 << 6;
        /// A delayed ACK is pending.
        const DELAYED = 1 << 7;
        /// Both sides scale their windows.
        const SCALED = 1 << 8;
        /// The peer supports SACK.
        const SACK = 1 << 9;
        /// The response to the current request is not complete.
        const BUSY = 1 << 10;
        /// The head of the response has been parsed.
        const BODY = 1 << 11;
        /// The head has an unexpected status.
        const BAD_STATUS = 1 << 12;
        /// The head gives an unexpected length of the body.
        const BAD_LENGTH = 1 << 13;
        /// The current request is the last on the connection.
        const LAST = 1 << 14;
        /// The server is expected to close the connection after the current response.
        const EXPECT_FIN = 1 << 15;
        /// The client's FIN has a sequence number: `snd_nxt` counts it.
        const FIN_SENT = 1 << 16;
        const FIN_RECEIVED = 1 << 17;
        /// The request is sent as a zero-window probe, although it exceeds the window.
        const PROBE = 1 << 18;
        /// The connection has additional state: a [`Trouble`].
        const TROUBLE = 1 << 19;
        /// The head lacks the field that shows the form of the response.
        const BAD_FIELD = 1 << 20;

        /// The flags of a wrong head.
        const BAD_HEAD = Self::BAD_STATUS.bits() | Self::BAD_LENGTH.bits() | Self::BAD_FIELD.bits();

        /// The flags of one response.
        const RESPONSE = Self::BUSY.bits() | Self::BODY.bits() | Self::BAD_HEAD.bits();
    }
}

/// State of a connection. Times of type `u32` are in ms on the client's clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    pub(super) state: State,
    /// Index of the local address.
    pub(super) address: u8,
    pub(super) port: u16,
    pub(super) flags: Flags,
    pub(super) snd_una: u32,
    pub(super) snd_nxt: u32,
    pub(super) rcv_nxt: u32,
    /// Last acknowledgement number that the client has sent.
    pub(super) rcv_acked: u32,
    pub(super) snd_wnd: u32,
    /// Window scale of the peer.
    pub(super) window_scale: u8,
    /// Number of retransmissions since the server last acknowledged something new.
    pub(super) tries: u8,
    /// Index of the requested page.
    pub(super) page: u32,
    /// Number of remaining requests, including the current request, or [`ENDLESS`].
    pub(super) left: u32,
    /// Number of missing bytes of the body.
    pub(super) body_left: u32,
    /// CRC of the body's received bytes.
    pub(super) crc: u32,
    /// Lane that owns the connection, or [`NOBODY`] if the connection is idle or closing.
    pub(super) lane: u32,
    /// Deadline of the retransmission timer.
    pub(super) rto_at: u32,
    /// Deadline of the delayed ACK.
    pub(super) ack_at: u32,
    /// Deadline for the response, or for the close.
    pub(super) limit_at: u32,
    /// Time at which the connection's timer expires. The timer may expire before the first
    /// deadline, but never after it.
    pub(super) armed: u32,
    /// Time from which the latency of the request is measured. In an open loop, this is its due
    /// time. In a closed loop, this is the time of the SYN or of the preceding response.
    pub(super) requested_at: Instant,
}

impl Connection {
    /// Returns a free entry.
    pub(super) fn free() -> Self {
        Self {
            left: ENDLESS,
            lane: NOBODY,
            rto_at: NEVER,
            ack_at: NEVER,
            limit_at: NEVER,
            armed: NEVER,
            ..Self::default()
        }
    }

    /// Returns true if a request, a SYN or a FIN is not acknowledged yet.
    #[inline(always)]
    pub(super) const fn in_flight(&self) -> bool {
        self.snd_una != self.snd_nxt
    }

    /// Returns the number of bytes received since the last ACK.
    #[inline(always)]
    pub(super) const fn unacknowledged(&self) -> u32 {
        self.rcv_nxt.wrapping_sub(self.rcv_acked)
    }

    /// Returns true if the server's FIN has arrived and the client's FIN has been acknowledged.
    #[inline(always)]
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Closing
            && self.flags.intersects(Flags::FIN_RECEIVED)
            && self.flags.intersects(Flags::FIN_SENT)
            && !self.in_flight()
    }

    /// Returns the header fields of a segment that begins at `seq`.
    #[inline(always)]
    pub(super) fn fields(&self, addresses: &[u32], seq: u32) -> Fields {
        let window = if self.flags.intersects(Flags::SCALED) {
            (WINDOW >> WINDOW_SCALE) as u16
        } else {
            PLAIN_WINDOW
        };
        Fields {
            src: addresses[usize::from(self.address)],
            src_port: self.port,
            seq,
            ack: self.rcv_nxt,
            window,
        }
    }
}

/// Additional state of a connection with a hole in the received data or an incomplete head.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Parts of a body after a hole.
    pub(super) ranges: Ranges,
    /// Sequence number of a FIN after a hole.
    pub(super) fin: Option<u32>,
    /// The received part of an incomplete head.
    pub(super) head: Vec<u8>,
}
