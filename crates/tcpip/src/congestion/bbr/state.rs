//! The states of BBR, and what it remembers as bits.

/// Percent of the bandwidth at which each state sends, and of the
/// bandwidth-delay product that it has in flight.
const STARTUP_PACING: u32 = 277;
const DRAIN_PACING: u32 = 50;
const DOWN_PACING: u32 = 90;
const UP_PACING: u32 = 125;
const CWND_GAIN: u32 = 200;
const UP_CWND_GAIN: u32 = 225;
const PROBE_RTT_CWND_GAIN: u32 = 50;

/// A state of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// Whether the state is one of `ProbeBW`.
    pub(super) const fn probes_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// Whether it accelerates.
    pub(super) const fn accelerates(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    pub(super) const fn pacing_gain(self) -> u32 {
        match self {
            Self::Startup => STARTUP_PACING,
            Self::Drain => DRAIN_PACING,
            Self::Down => DOWN_PACING,
            Self::Up => UP_PACING,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 100,
        }
    }

    pub(super) const fn cwnd_gain(self) -> u32 {
        match self {
            Self::Up => UP_CWND_GAIN,
            Self::ProbeRtt => PROBE_RTT_CWND_GAIN,
            _ => CWND_GAIN,
        }
    }
}

/// What is on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u16);

impl Flags {
    /// The pipe has been full once.
    pub(super) const FULL_BW_REACHED: u16 = 1;
    /// It is full, as far as the present probe can tell.
    pub(super) const FULL_BW_NOW: u16 = 1 << 1;
    /// Samples are of a probe for bandwidth.
    pub(super) const PROBE_SAMPLE: u16 = 1 << 2;
    /// Samples of the last probe still arrive until the round ends.
    pub(super) const PROBE_STOPPING: u16 = 1 << 3;
    /// The last probe lost too much.
    pub(super) const TOO_HIGH: u16 = 1 << 4;
    /// The last probe was stopped early by precaution.
    pub(super) const PRECAUTIONARY: u16 = 1 << 5;
    /// Something was lost in this round.
    pub(super) const LOSS: u16 = 1 << 6;
    /// Recovery goes on, and has for a round.
    pub(super) const RECOVERY: u16 = 1 << 7;
    pub(super) const RECOVERY_ROUND: u16 = 1 << 8;
    /// Nothing was in flight for long before this.
    pub(super) const IDLE: u16 = 1 << 9;
    /// `ProbeRTT`: little enough is in flight, and has been for a round.
    pub(super) const PROBE_RTT_TIMED: u16 = 1 << 10;
    pub(super) const PROBE_RTT_ROUND: u16 = 1 << 11;
    /// The pacing rate is known to be for this path.
    pub(super) const PACED: u16 = 1 << 12;

    pub(super) const fn has(self, flags: u16) -> bool {
        self.0 & flags != 0
    }

    pub(super) fn set(&mut self, flags: u16) {
        self.0 |= flags;
    }

    pub(super) fn clear(&mut self, flags: u16) {
        self.0 &= !flags;
    }
}
