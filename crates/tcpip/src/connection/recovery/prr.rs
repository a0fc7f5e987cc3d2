//! How much is sent while the window shrinks: proportional rate reduction (RFC
//! 6937).

use super::Prr;

impl Prr {
    /// Bytes have been sent, new or again.
    pub(super) fn has_sent(&mut self, bytes: u32) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// What may be sent with an acknowledgement of `delivered` bytes, when
    /// `pipe` are in flight and the window is to become `target`. `progress`:
    /// it was cumulative and told of no further loss.
    pub(super) fn allowance(
        &mut self,
        delivered: u32,
        pipe: u32,
        target: u32,
        progress: bool,
        mss: u32,
    ) -> u32 {
        self.delivered = self.delivered.saturating_add(delivered);
        let allowed = if pipe > target {
            let share = u64::from(self.delivered) * u64::from(target);
            let share = share.div_ceil(u64::from(self.flight.max(1)));
            // Segments are counted, as a part of one cannot be sent.
            let share = share.next_multiple_of(u64::from(mss));
            u32::try_from(share)
                .unwrap_or(u32::MAX)
                .saturating_sub(self.sent)
        } else {
            // Slow start while the network drains faster than it should.
            let behind = self.delivered.saturating_sub(self.sent);
            let grown = behind.max(delivered) + if progress { mss } else { 0 };
            grown.min(target - pipe)
        };
        // The fast retransmit itself goes at once.
        if self.sent == 0 {
            allowed.max(mss)
        } else {
            allowed
        }
    }
}
