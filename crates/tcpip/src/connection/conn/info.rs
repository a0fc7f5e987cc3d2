//! Statistics of a connection, similar to Linux's `tcp_info`.

use std::time::Duration;

use crate::congestion::CongestionControl;
use crate::connection::condition::Condition;
use crate::connection::conn::SendInfo;
use crate::connection::{Conn, Flags, State, Tcb};
use crate::negotiated::Negotiated;

/// Statistics of a connection at one moment: see
/// [`Connection::info`](crate::Connection::info).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// State of the connection.
    pub state: State,
    /// Phase of loss recovery.
    pub condition: Condition,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Variation of the round-trip time.
    pub rttvar: Duration,
    /// Minimum round-trip time; zero before the first sample.
    pub min_rtt: Duration,
    /// Timeouts since the peer last acknowledged new data.
    pub retries: u8,
    /// Maximum payload of a segment, in bytes.
    pub mss: u16,
    /// Congestion window, in bytes.
    pub cwnd: u32,
    /// Slow-start threshold, in bytes; `u32::MAX` before the first loss.
    pub ssthresh: u32,
    /// Bytes sent and not acknowledged cumulatively.
    pub unacked: u32,
    /// Unacknowledged bytes that were acknowledged selectively.
    pub sacked: u32,
    /// Unacknowledged bytes that count as lost and are not retransmitted yet.
    pub lost: u32,
    /// Bytes written and not sent yet.
    pub unsent: u32,
    /// The peer's window, in bytes.
    pub snd_wnd: u32,
    /// Our window as last advertised, in bytes.
    pub rcv_wnd: u32,
    /// Options that both sides agreed on in the handshake.
    pub negotiated: Negotiated,
    /// Shift of our windows (RFC 7323); zero if windows are not scaled.
    pub own_scale: u8,
    /// Whether segments were reordered on the path.
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
