//! Statistics of a connection, similar to Linux's `tcp_info`.

use std::time::Duration;

use crate::congestion::CongestionControl;
use crate::connection::condition::Condition;
use crate::connection::conn::Conn;
use crate::connection::conn::SendInfo;
use crate::connection::{Flags, State, Tcb};
use crate::negotiated::Negotiated;
use crate::wire::Seq;

/// Statistics of a connection, as returned by [`Connection::info`](crate::Connection::info).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// State of the connection (RFC 9293, section 3.3.2).
    pub state: State,
    /// Phase of loss recovery.
    pub condition: Condition,
    /// Smoothed round-trip time, or zero before the first sample.
    pub srtt: Duration,
    /// Variation of the round-trip time.
    pub rttvar: Duration,
    /// Minimum round-trip time, or zero before the first sample.
    pub min_rtt: Duration,
    /// Number of timeouts since the peer last acknowledged new data, or of zero-window probes or
    /// keep-alives that the peer has not answered.
    pub retries: u8,
    /// Maximum payload of a segment, in bytes.
    pub mss: u16,
    /// Congestion window, in bytes.
    pub cwnd: u32,
    /// Slow-start threshold in bytes, or `u32::MAX` while none is set. With [`Bbr`](crate::Bbr):
    /// the long-term limit of bytes in flight.
    pub ssthresh: u32,
    /// Number of bytes sent but not yet acknowledged cumulatively. A FIN counts as one byte.
    pub unacked: u32,
    /// Number of bytes that were acknowledged selectively, but not yet cumulatively.
    pub sacked: u32,
    /// Number of unacknowledged bytes that count as lost and were not yet retransmitted.
    pub lost: u32,
    /// Number of bytes written but not yet sent. A FIN counts as one byte.
    pub unsent: u32,
    /// The peer's window, in bytes.
    pub snd_wnd: u32,
    /// Our window as last advertised, in bytes.
    pub rcv_wnd: u32,
    /// TCP options and ECN support that both sides agreed on in the handshake.
    pub negotiated: Negotiated,
    /// Shift by which our windows are scaled (RFC 7323), or zero if they are not scaled.
    pub own_scale: u8,
    /// Whether the path has reordered segments, or a retransmission was spurious.
    pub reordering: bool,
}

impl<C: CongestionControl> Conn<'_, C> {
    #[inline(always)]
    pub(crate) fn send_info(&self) -> SendInfo {
        let send_info = SendInfo {
            cwnd: self.congestion.window(),
            ssthresh: self.congestion.ssthresh(),
            own_scale: self.tcb.own_scale(self.cx) as u8,
            ..SendInfo::default()
        };
        let Some(recovery) = self.recovery() else {
            return send_info;
        };
        let (condition, cwnd, sacked, lost) = recovery.summary(self.congestion);
        SendInfo {
            cwnd,
            condition,
            sacked,
            lost,
            ..send_info
        }
    }
}

impl Tcb {
    /// Returns SND.UNA and RCV.NXT.
    #[inline(always)]
    pub(crate) fn edges(&self) -> (Seq, Seq) {
        (self.snd_una, self.rcv_nxt)
    }
}

impl SendInfo {
    pub(crate) fn info(self, tcb: &Tcb) -> Info {
        let micros = |micros: u32| Duration::from_micros(micros.into());
        Info {
            state: tcb.state,
            condition: self.condition,
            srtt: micros(tcb.rtt.smoothed()),
            rttvar: micros(tcb.rtt.variation()),
            min_rtt: micros(tcb.rtt.min()),
            retries: tcb.retries,
            mss: tcb.mss,
            cwnd: self.cwnd,
            ssthresh: self.ssthresh,
            unacked: tcb.flight(),
            sacked: self.sacked,
            lost: self.lost,
            unsent: tcb.limit().since(tcb.snd_nxt),
            snd_wnd: tcb.snd_wnd,
            rcv_wnd: tcb.rcv_adv.since(tcb.rcv_nxt),
            negotiated: tcb.negotiated,
            own_scale: self.own_scale,
            reordering: tcb.flags.intersects(Flags::REORDERING),
        }
    }
}
