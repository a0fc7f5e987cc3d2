//! Counts of the connections in each state.

use super::State;

/// Number of connections in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts([u32; State::ALL.len()]);

impl StateCounts {
    /// Returns the number of connections in this state, which must not be [`State::Closed`].
    #[inline(always)]
    pub fn of(&self, state: State) -> u32 {
        self.0[state as usize]
    }

    /// Returns the number of connections in all states, including half-open ones and those in
    /// TIME-WAIT.
    pub fn total(&self) -> u32 {
        self.iter().map(|(_, count)| count).sum()
    }

    /// Returns the number of connections, excluding half-open ones and those in TIME-WAIT.
    pub fn open(&self) -> u32 {
        self.total() - self.of(State::SynReceived) - self.of(State::TimeWait)
    }

    /// Returns each state of a connection with its count, without [`State::Closed`].
    pub fn iter(&self) -> impl Iterator<Item = (State, u32)> + '_ {
        let states = State::ALL.into_iter().zip(self.0);
        states.filter(|(state, _)| *state != State::Closed)
    }

    /// Counts a connection that changes from one state to another.
    #[inline(always)]
    pub fn change(&mut self, from: State, to: State) {
        let [from, to] = [from, to].map(|state| state as usize);
        // The count of closed connections wraps around, and nobody reads it.
        self.0[from] = self.0[from].wrapping_sub(1);
        self.0[to] = self.0[to].wrapping_add(1);
    }
}

impl State {
    /// All states, in the order of their numbers.
    const ALL: [Self; 9] = [
        Self::Closed,
        Self::SynReceived,
        Self::Established,
        Self::CloseWait,
        Self::FinWait1,
        Self::FinWait2,
        Self::Closing,
        Self::LastAck,
        Self::TimeWait,
    ];

    /// Returns the state's name as `ss` prints it, such as `fin-wait-1` or `syn-recv`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::SynReceived => "syn-recv",
            Self::Established => "established",
            Self::CloseWait => "close-wait",
            Self::FinWait1 => "fin-wait-1",
            Self::FinWait2 => "fin-wait-2",
            Self::Closing => "closing",
            Self::LastAck => "last-ack",
            Self::TimeWait => "time-wait",
        }
    }
}
