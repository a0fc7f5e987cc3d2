//! The choice of an interface's queues.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::limits::MAX_QUEUES;
use super::{DeviceError, ParseDeviceError};
use crate::WrongWords;

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
}

/// The options `queues=N` and `partial` of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueWords<'t> {
    /// Whether there is a number, which may be wrong.
    has_number: bool,
    number: Option<u32>,
    /// The word `partial`.
    pub(super) partial: Option<&'t str>,
}

impl QueueWords<'_> {
    /// Reads the number of the option `queues=N`.
    pub(super) fn read_number(&mut self, number: &str) -> Result<(), ParseDeviceError> {
        self.has_number = true;
        match number.parse() {
            Ok(number @ 1..=MAX_QUEUES) => self.number = Some(number),
            _ => return Err(ParseDeviceError::Queues(number.to_owned())),
        }
        Ok(())
    }

    /// Combines the options. `text` is the text of all options.
    pub(super) fn finish(self, text: &str, wrong: &mut WrongWords<ParseDeviceError>) -> Queues {
        match (self.number, self.partial) {
            (Some(number), None) => Queues::Exactly(number),
            (Some(number), Some(_)) => Queues::Partial(number),
            (None, None) => Queues::All,
            (None, Some(word)) => {
                if !self.has_number {
                    wrong.add(text, word, ParseDeviceError::Partial);
                }
                Queues::All
            }
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
