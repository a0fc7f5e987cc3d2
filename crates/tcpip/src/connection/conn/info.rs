//! What a connection can tell about itself, in the manner of `tcp_info`.

use std::time::Duration;

use super::recovery::{Phase, Recovery};
use crate::congestion::CongestionControl;
use crate::connection::{Conn, Flags, Tcb};

/// How it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Condition {
    /// All that was sent arrives in order.
    #[default]
    Open,
    /// Something is out of order, and nothing is taken as lost.
    Disorder,
    /// Something was lost, and the window is being reduced.
    Recovery,
    /// All that was in flight is being sent again, in slow start.
    Loss,
}

/// A connection at one moment: see [`Connection::info`](crate::Connection::info).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// How it goes.
    pub condition: Condition,
    /// Smoothed round-trip time; zero before one is measured.
    pub srtt: Duration,
    /// Its variation.
    pub rttvar: Duration,
    /// The least round trip that was measured.
    pub min_rtt: Duration,
    /// Timeouts since the peer has last acknowledged something.
    pub retries: u8,
    /// Most bytes of data in a segment.
    pub mss: u16,
    /// Congestion window, in bytes.
    pub cwnd: u32,
    /// Slow-start threshold, in bytes; `u32::MAX` before the first loss.
    pub ssthresh: u32,
    /// Bytes sent and not acknowledged cumulatively.
    pub unacked: u32,
    /// Of these, bytes acknowledged selectively.
    pub sacked: u32,
    /// Of these, bytes taken as lost and not sent again yet.
    pub lost: u32,
    /// Bytes written and not sent yet.
    pub unsent: u32,
    /// The peer's window, in bytes.
    pub snd_wnd: u32,
    /// Our window as it was told last, in bytes.
    pub rcv_wnd: u32,
    /// Both sides send timestamps (RFC 7323).
    pub timestamps: bool,
    /// Both sides acknowledge selectively (RFC 2018).
    pub sack: bool,
    /// The shifts of the peer's windows and of ours (RFC 7323); zero where
    /// windows are not scaled.
    pub window_scales: (u8, u8),
    /// Both sides take part in congestion notification (RFC 3168).
    pub ecn: bool,
    /// Segments were seen to overtake each other.
    pub reordering: bool,
}

/// What of it only the stack knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sight {
    cwnd: u32,
    ssthresh: u32,
    own_scale: u8,
    condition: Condition,
    sacked: u32,
    lost: u32,
}

impl<C: CongestionControl> Conn<'_, C> {
    #[inline(always)]
    pub(crate) fn sight(&self) -> Sight {
        let sight = Sight {
            cwnd: self.congestion.window(),
            ssthresh: self.congestion.ssthresh(),
            own_scale: self.tcb.own_scale(self.cx) as u8,
            ..Sight::default()
        };
        match self.recovery() {
            None => sight,
            Some(recovery) => sight.in_disorder(recovery, self.congestion),
        }
    }
}

impl Sight {
    #[cold]
    fn in_disorder<C: CongestionControl>(self, recovery: &Recovery<C>, congestion: &C) -> Self {
        let (sacked, lost) = recovery.sacked_and_lost();
        Self {
            cwnd: recovery.window(congestion),
            condition: match recovery.phase {
                Phase::Disorder => Condition::Disorder,
                Phase::Reduction => Condition::Recovery,
                Phase::Again => Condition::Loss,
            },
            sacked,
            lost,
            ..self
        }
    }

    pub(crate) fn info(self, tcb: &Tcb) -> Info {
        let micros = |micros: u32| Duration::from_micros(micros.into());
        Info {
            condition: self.condition,
            srtt: micros(tcb.rtt.smoothed()),
            rttvar: micros(tcb.rtt.variation()),
            min_rtt: micros(tcb.rtt.least()),
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
            timestamps: tcb.negotiated.timestamps(),
            sack: tcb.negotiated.sack(),
            window_scales: (tcb.negotiated.peer_scale(), self.own_scale),
            ecn: tcb.negotiated.ecn(),
            reordering: tcb.flags.has(Flags::REORDERING),
        }
    }
}
