//! What one connection remembers.

use nmio::Instant;

use super::head::MAX_HEAD;
use crate::load::tcp::{Fields, NOBODY, Ranges, WINDOW_SCALE};

/// What we offer to receive, where windows are scaled. What arrives is never
/// kept, so it only bounds how much a server may send before it hears of us.
pub(super) const WINDOW: u32 = 256 * 1024;
/// What we offer where they are not.
const PLAIN_WINDOW: u16 = 65_535;
/// A time that never comes, in ms.
pub(super) const NEVER: u32 = u32::MAX;
/// Requests left when there is no end.
pub(super) const ENDLESS: u32 = u32::MAX;
/// Connections with holes in what they have received, or with a part of a
/// head, at most: more of them lose what is out of order.
const MAX_TROUBLES: usize = 1 << 14;

const _: () = assert!(size_of::<Connection>() <= 128);
const _: () = assert!(WINDOW >> WINDOW_SCALE <= PLAIN_WINDOW as u32);

/// The states of RFC 9293, section 3.3.2, that lead to different things here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// The entry is free.
    #[default]
    Closed,
    /// SYN-SENT.
    Opening,
    /// ESTABLISHED.
    Open,
    /// We have closed, or are about to: CLOSE-WAIT, LAST-ACK, FIN-WAIT,
    /// CLOSING. Nobody waits for anything on it.
    Closing,
}

/// Facts about a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u32);

impl Flags {
    /// It is in the output list.
    pub(super) const QUEUED: u32 = 1;
    /// To send, in this order: a SYN, the handshake's third segment, a
    /// request, what was lost, a FIN, an acknowledgement.
    pub(super) const SYN: u32 = 1 << 1;
    pub(super) const THIRD: u32 = 1 << 2;
    pub(super) const REQUEST: u32 = 1 << 3;
    pub(super) const RESEND: u32 = 1 << 4;
    pub(super) const FIN: u32 = 1 << 5;
    pub(super) const ACK: u32 = 1 << 6;
    /// The acknowledgement timer runs.
    pub(super) const DELAYED: u32 = 1 << 7;
    /// Windows are scaled.
    pub(super) const SCALED: u32 = 1 << 8;
    /// The peer understands SACK.
    pub(super) const SACK: u32 = 1 << 9;
    /// A request has no whole response yet.
    pub(super) const BUSY: u32 = 1 << 10;
    /// Its head has been read.
    pub(super) const BODY: u32 = 1 << 11;
    /// The head told another status or length than expected.
    pub(super) const BAD_STATUS: u32 = 1 << 12;
    pub(super) const BAD_LENGTH: u32 = 1 << 13;
    /// The response is the last one.
    pub(super) const LAST: u32 = 1 << 14;
    /// The server should close now.
    pub(super) const EXPECT_FIN: u32 = 1 << 15;
    /// Sequence space holds a FIN of ours.
    pub(super) const FIN_SENT: u32 = 1 << 16;
    pub(super) const FIN_RECEIVED: u32 = 1 << 17;
    /// The request is sent though the peer's window has no room: a probe.
    pub(super) const PROBE: u32 = 1 << 18;

    /// What belongs to one response.
    pub(super) const RESPONSE: u32 = Self::BUSY | Self::BODY | Self::BAD_STATUS | Self::BAD_LENGTH;

    #[inline(always)]
    pub(super) const fn has(self, any: u32) -> bool {
        self.0 & any != 0
    }

    #[inline(always)]
    pub(super) const fn set(&mut self, flags: u32) {
        self.0 |= flags;
    }

    #[inline(always)]
    pub(super) const fn clear(&mut self, flags: u32) {
        self.0 &= !flags;
    }

    /// These and no others.
    #[inline(always)]
    pub(super) const fn only(self, flags: u32) -> Self {
        Self(self.0 & flags)
    }
}

/// One connection. Times are in ms on the client's clock.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    /// Our address, by its number.
    pub(super) address: u8,
    pub(super) port: u16,
    pub(super) flags: Flags,
    pub(super) snd_una: u32,
    pub(super) snd_nxt: u32,
    pub(super) rcv_nxt: u32,
    /// Up to where we have acknowledged.
    pub(super) rcv_acked: u32,
    pub(super) snd_wnd: u32,
    /// The peer's shift.
    pub(super) window_scale: u8,
    /// Times that what is under way was sent again.
    pub(super) tries: u8,
    /// The page that is asked for.
    pub(super) page: u32,
    /// Requests left, this one included, or [`ENDLESS`].
    pub(super) left: u32,
    /// Bytes of the body that are still to come, and the CRC of the others.
    pub(super) body_left: u32,
    pub(super) crc: u32,
    /// Its entry in [`Troubles`], or [`NOBODY`].
    pub(super) trouble: u32,
    /// Whose connection it is; [`NOBODY`]: idle, or closing.
    pub(super) lane: u32,
    /// When to send again what has not been acknowledged.
    pub(super) rto_at: u32,
    /// When to acknowledge at the latest.
    pub(super) ack_at: u32,
    /// When to give up.
    pub(super) limit_at: u32,
    /// When the connection's timer runs out; it may be too early, never too
    /// late.
    pub(super) armed: u32,
    /// When the request was, or should have been, sent; of a new connection,
    /// its SYN.
    pub(super) asked: Instant,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            state: State::Closed,
            address: 0,
            port: 0,
            flags: Flags::default(),
            snd_una: 0,
            snd_nxt: 0,
            rcv_nxt: 0,
            rcv_acked: 0,
            snd_wnd: 0,
            window_scale: 0,
            tries: 0,
            page: 0,
            left: ENDLESS,
            body_left: 0,
            crc: 0,
            trouble: NOBODY,
            lane: NOBODY,
            rto_at: NEVER,
            ack_at: NEVER,
            limit_at: NEVER,
            armed: NEVER,
            asked: Instant::ZERO,
        }
    }
}

impl Connection {
    /// Something of ours is not acknowledged.
    #[inline(always)]
    pub(super) const fn in_flight(&self) -> bool {
        self.snd_una != self.snd_nxt
    }

    /// Bytes received since the last acknowledgement.
    #[inline(always)]
    pub(super) const fn unacknowledged(&self) -> u32 {
        self.rcv_nxt.wrapping_sub(self.rcv_acked)
    }

    /// Both sides have closed and know it of each other.
    #[inline(always)]
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Closing
            && self.flags.has(Flags::FIN_RECEIVED)
            && self.flags.has(Flags::FIN_SENT)
            && !self.in_flight()
    }

    /// What its next segment says, when that begins at `seq`.
    #[inline(always)]
    pub(super) fn fields(&self, addresses: &[u32], seq: u32) -> Fields {
        let window = if self.flags.has(Flags::SCALED) {
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

/// What only a connection in trouble needs.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Parts of a body behind a hole.
    pub(super) ranges: Ranges,
    /// Where a FIN behind a hole lies.
    pub(super) fin: Option<u32>,
    /// The part of a head that has come.
    pub(super) head: Vec<u8>,
}

/// The connections in trouble.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    entries: Vec<Trouble>,
    free: Vec<u32>,
}

impl Troubles {
    /// The entry that `id` names, given one first if need be. `None` when too
    /// many are in use.
    pub(super) fn enter(&mut self, id: &mut u32) -> Option<&mut Trouble> {
        if *id == NOBODY {
            if let Some(free) = self.free.pop() {
                *id = free;
            } else if self.entries.len() < MAX_TROUBLES {
                *id = self.entries.len() as u32;
                self.entries.push(Trouble {
                    head: Vec::with_capacity(MAX_HEAD),
                    ..Trouble::default()
                });
            } else {
                return None;
            }
        }
        self.entries.get_mut(*id as usize)
    }

    pub(super) fn get(&self, id: u32) -> Option<&Trouble> {
        self.entries.get(id as usize)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Trouble> {
        self.entries.get_mut(id as usize)
    }

    /// The trouble is over.
    pub(super) fn leave(&mut self, id: &mut u32) {
        if let Some(trouble) = self.entries.get_mut(*id as usize) {
            trouble.ranges.clear();
            trouble.fin = None;
            trouble.head.clear();
            self.free.push(*id);
        }
        *id = NOBODY;
    }
}
