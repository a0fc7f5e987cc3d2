//! Whether waking up for each packet is worth it.

use std::time::Duration;

/// After so many wake-ups in a row for nothing packets gather before the next.
/// A connection alone comes to two or three between one request and the next.
const IN_VAIN: u32 = 4;
/// They gather for this long; the kernel may take as long again.
const GATHERING: Duration = Duration::from_micros(50);

/// Wake-ups that have led to nothing being sent.
///
/// A client that reads many long responses acknowledges each piece that it
/// has read, and asks again only when it has read them all. Each such ACK wakes
/// a server that has nothing left to send, which costs it as much as a response.
#[derive(Debug, Default)]
pub(super) struct WakeUps {
    woken: bool,
    sent: u64,
    in_vain: u32,
}

impl WakeUps {
    /// How long to let packets gather before waiting for one, when `sent`
    /// frames were sent so far.
    pub(super) fn gathering(&mut self, sent: u64) -> Duration {
        let in_vain = self.woken && sent == self.sent;
        self.in_vain = if in_vain { self.in_vain + 1 } else { 0 };
        self.sent = sent;
        if self.in_vain < IN_VAIN {
            Duration::ZERO
        } else {
            // No need to count on.
            self.in_vain = IN_VAIN;
            GATHERING
        }
    }

    /// A wait is over: whether a packet has ended it.
    pub(super) fn end_wait(&mut self, woken: bool) {
        self.woken = woken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes before each wait, for what ended the last and was sent then.
    fn gatherings(waits: &[(bool, u64)]) -> Vec<bool> {
        let mut wakeups = WakeUps::default();
        let mut sent = 0;
        let gathering = waits.iter().map(|&(woken, frames)| {
            wakeups.end_wait(woken);
            sent += frames;
            wakeups.gathering(sent) == GATHERING
        });
        gathering.collect()
    }

    #[test]
    fn packets_gather_after_wakeups_in_vain_until_something_is_sent() {
        let (vain, sent) = ((true, 0), (true, 3));
        assert_eq!(
            gatherings(&[
                vain, vain, vain, sent, vain, vain, vain, vain, vain, sent, vain
            ]),
            [
                false, false, false, false, false, false, false, true, true, false, false
            ]
        );
    }

    #[test]
    fn who_waits_for_long_waits_for_the_next_packet_alone() {
        let (vain, idle) = ((true, 0), (false, 0));
        assert_eq!(
            gatherings(&[vain, vain, vain, vain, idle, vain, idle, idle]),
            [false, false, false, true, false, false, false, false]
        );
    }
}
