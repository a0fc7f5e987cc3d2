//! Opening of a connection.

use std::net::Ipv4Addr;

use eth::{Link, Mac};
use ip::{Addresses, PROTOCOL_TCP, Path, Sum};

use super::{Conn, DeadlineKind, Flags, NONE, Record, State, Tcb};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{Opening, ReorderingWindow};
use crate::content::Contents;
use crate::mss::MIN_MSS;
use crate::negotiated::Negotiated;
use crate::rto::Rtt;
use crate::stream::Stream;
use crate::wire::{Control, Segment, Seq};

/// Distance from the old connection's SND.NXT to the initial sequence number of a reopened
/// connection. Any positive distance satisfies RFC 9293, section 3.6.1 (MAY-2).
const REOPEN_DISTANCE: u32 = 1 << 17;

impl<C: CongestionControl> Default for Record<C> {
    /// Creates a record that is not in use.
    fn default() -> Self {
        Self {
            tcb: Tcb::default(),
            congestion: C::new(u32::from(MIN_MSS)),
        }
    }
}

impl<C: CongestionControl> Conn<'_, C> {
    /// Starts this connection, which must be closed. It is half-open then, and waits for the third
    /// segment of the handshake.
    #[inline(always)]
    pub(crate) fn open(&mut self, tcb: Tcb, now: Moment) {
        *self.congestion = C::new(u32::from(tcb.mss));
        self.cx.states.change(State::Closed, tcb.state);
        *self.tcb = tcb;
        self.tcb.rtt.set_floor(self.cx.settings.min_rto_ms);
        let rto = self.rto();
        self.tcb.arm(DeadlineKind::Handshake, rto, now);
    }
}

impl Default for Tcb {
    /// Creates a TCB that is not in use.
    fn default() -> Self {
        Self {
            path: Path {
                link: Link {
                    peer: Mac([0; 6]),
                    own: Mac([0; 6]),
                    vlan: None,
                },
                addresses: Addresses::V4 {
                    src: Ipv4Addr::UNSPECIFIED,
                    dst: Ipv4Addr::UNSPECIFIED,
                },
            },
            own_port: 0,
            peer_port: 0,
            sum: 0,
            mss: 0,
            class: Contents::NO_CLASS,
            state: State::Closed,
            flags: Flags::empty(),
            retries: 0,
            backoff: 0,
            negotiated: Negotiated::new(false, false, None, false),
            deadline_kind: DeadlineKind::Handshake,
            reo_wnd: ReorderingWindow::new(),
            longest_rto: 0,
            mss_max: 0,
            mss_too_big: 0,
            raise_at: 0,
            challenged_at: 0,
            snd_una: Seq(0),
            snd_nxt: Seq(0),
            snd_wnd: 0,
            max_snd_wnd: 0,
            snd_wl1: Seq(0),
            rcv_nxt: Seq(0),
            rcv_adv: Seq(0),
            rtt: Rtt::default(),
            rtt_seq: Seq(0),
            rtt_at: 0,
            deadline: 0,
            stream: Stream::new(Seq(0)),
            buffer: NONE,
            recovery: NONE,
            ts_recent: 0,
            ts_offset: 0,
            cwr_high: Seq(0),
            paced_until: 0,
        }
    }
}

impl Tcb {
    /// Returns the sum of the addresses, ports and protocol. Every TCP checksum of a connection
    /// starts with this sum.
    #[inline(always)]
    fn sum_of(addresses: &Addresses, (own_port, peer_port): (u16, u16)) -> Sum {
        let sum = addresses.sum().word(u16::from(PROTOCOL_TCP));
        sum.word(own_port).word(peer_port)
    }

    /// Returns the sum, addresses and ports of the segments that this connection sends.
    #[inline(always)]
    pub(crate) fn ends(&self) -> (Sum, Addresses, (u16, u16)) {
        let sum = Sum::from_folded(self.sum);
        (sum, self.path.addresses, self.ports())
    }

    /// Returns true if a received segment with these addresses and ports belongs to this
    /// connection.
    #[inline(always)]
    pub(crate) fn matches(&self, addresses: &Addresses, src_port: u16, dst_port: u16) -> bool {
        if self.peer_port != src_port || self.own_port != dst_port {
            return false;
        }
        match (&self.path.addresses, addresses) {
            (
                Addresses::V4 { src, dst },
                Addresses::V4 {
                    src: peer,
                    dst: own,
                },
            ) => src == own && dst == peer,
            (
                Addresses::V6 { src, dst },
                Addresses::V6 {
                    src: peer,
                    dst: own,
                },
            ) => src.to_bits() == own.to_bits() && dst.to_bits() == peer.to_bits(),
            _ => false,
        }
    }

    /// Returns the TCB of a new connection in SYN-RECEIVED. The stack then adds the connection to
    /// its table. `segment` is a SYN, or the third segment of a handshake with a SYN cookie.
    #[inline(always)]
    pub(crate) fn half_open(segment: Segment, path: Path, opening: Opening, now: Moment) -> Self {
        let (own_port, peer_port) = (segment.dst_port, segment.src_port);
        let Opening {
            negotiated,
            mss,
            iss,
            ts_offset,
        } = opening;
        // The round trip of the SYN-ACK is measured, unless the connection starts from a cookie:
        // the send time of that SYN-ACK is not known.
        let (irs, flags) = if segment.control.has(Control::SYN) {
            (segment.seq, Flags::TIMING)
        } else {
            (segment.seq - 1, Flags::default())
        };
        Self {
            path,
            own_port,
            peer_port,
            sum: Tcb::sum_of(&path.addresses, (own_port, peer_port)).fold(),
            mss,
            mss_max: mss,
            state: State::SynReceived,
            flags,
            rtt_seq: iss + 1,
            rtt_at: now.micros,
            negotiated,
            ts_recent: segment.timestamps.map_or(0, |timestamps| timestamps.tsval),
            ts_offset,
            snd_una: iss,
            snd_nxt: iss + 1,
            stream: Stream::new(iss + 1),
            snd_wnd: u32::from(segment.window),
            // A SYN's window is not scaled.
            max_snd_wnd: segment.window.div_ceil(1 << negotiated.peer_scale()),
            snd_wl1: irs,
            rcv_nxt: irs + 1,
            rcv_adv: irs + 1,
            paced_until: now.micros,
            ..Tcb::default()
        }
    }

    /// Returns the initial sequence number of a connection that replaces this one in TIME-WAIT. The
    /// number is larger than any that this connection has used (RFC 9293, section 3.6.1).
    ///
    /// Also returns whether this connection and the SYN `segment` both use timestamps.
    pub(crate) fn reopens(&self, segment: Segment) -> (Seq, bool) {
        let both_use_timestamps = self.negotiated.timestamps() && segment.timestamps.is_some();
        (self.snd_nxt + REOPEN_DISTANCE, both_use_timestamps)
    }
}
