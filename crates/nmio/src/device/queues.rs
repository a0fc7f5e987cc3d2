//! The choice of an interface's queues.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::limits::MAX_QUEUES;
use super::{DeviceError, ParseDeviceError};

/// Which queues of an interface to serve, with one worker each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Queues {
    /// All queues of the interface.
    #[default]
    All,
    /// The first N queues, where N is at least 1. Opening the interface fails if packets could
    /// arrive on other queues.
    Exactly(u32),
    /// The first N queues, where N is at least 1. Clients whose packets arrive on other queues are
    /// not served.
    Partial(u32),
}

impl Queues {
    /// Returns the number of queues to serve, or `None` for all queues.
    pub fn number(self) -> Option<u32> {
        match self {
            Self::All => None,
            Self::Exactly(number) | Self::Partial(number) => Some(number),
        }
    }

    /// Combines the option with `--workers`. If both are given, they must specify the same number,
    /// because each worker serves one queue.
    pub(super) fn for_workers(self, workers: Option<u32>) -> Result<Self, DeviceError> {
        match (self, self.number(), workers) {
            (Self::All, _, Some(workers)) => Ok(Self::Exactly(workers)),
            (_, Some(queues), Some(workers)) if queues != workers => {
                Err(DeviceError::WorkersAndQueues { workers, queues })
            }
            _ => Ok(self),
        }
    }

    /// Parses the number of the option `queues=N`.
    pub(super) fn parse_number(number: &str) -> Result<u32, ParseDeviceError> {
        match number.parse() {
            Ok(number @ 1..=MAX_QUEUES) => Ok(number),
            _ => Err(ParseDeviceError::Queues(number.to_owned())),
        }
    }

    /// Combines the options `queues=N` and `partial`.
    pub(super) fn from_options(
        queues: Option<u32>,
        partial: bool,
    ) -> Result<Self, ParseDeviceError> {
        match (queues, partial) {
            (None, false) => Ok(Self::All),
            (None, true) => Err(ParseDeviceError::Partial),
            (Some(number), false) => Ok(Self::Exactly(number)),
            (Some(number), true) => Ok(Self::Partial(number)),
        }
    }
}

/// The options `queues=N` and `partial`, with a comma before each.
impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => Ok(()),
            Self::Exactly(number) => write!(f, ",queues={number}"),
            Self::Partial(number) => write!(f, ",queues={number},partial"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_and_queues_must_agree() {
        use Queues::{All, Exactly, Partial};
        for (queues, workers, expected) in [
            (All, None, All),
            (All, Some(2), Exactly(2)),
            (Exactly(2), None, Exactly(2)),
            (Exactly(2), Some(2), Exactly(2)),
            (Partial(2), Some(2), Partial(2)),
        ] {
            assert_eq!(queues.for_workers(workers).unwrap(), expected);
        }
        for queues in [Exactly(2), Partial(2)] {
            let error = queues.for_workers(Some(3)).unwrap_err().to_string();
            assert!(error.contains("--workers 3 and queues=2 differ"), "{error}");
        }
    }
}
