//! Undo of spurious window reductions: Eifel (RFC 3522, RFC 4015), F-RTO (RFC 5682) and DSACK (RFC
//! 3708).

use super::{Delivery, Frto, Phase, Proof, Recovery};
use crate::congestion::CongestionControl;
use crate::connection::{Flags, Tcb};
use crate::wire::Seq;

/// Number of new segments that F-RTO sends to detect a spurious timeout (RFC 5682, section 2.1).
const FRTO_SEGMENTS: u32 = 2;
/// Number of ranges for which an undo costs the peer one more acknowledged segment.
const RANGES_PER_SEGMENT: u32 = 32;
/// Price in segments that earlier undos may still have open when another one is granted.
const MAX_OPEN_SEGMENTS: u32 = 8;

impl<C: CongestionControl> Recovery<C> {
    /// Undoes the last window reduction if an ACK proves it spurious, and returns the proof. Also
    /// advances F-RTO.
    pub(super) fn undo_if_spurious(
        &mut self,
        tsecr: Option<u32>,
        delivery: &Delivery,
        acked: u32,
        is_duplicate: bool,
        tcb: &mut Tcb,
        congestion: &mut C,
    ) -> Option<Proof> {
        self.settle_undos(tcb);
        let mut proof = self.find_proof(tsecr, delivery, acked, tcb);
        if proof.is_some() && !self.pay_for_undo(tcb) {
            proof = None;
        }
        if proof.is_some() {
            self.undo(tcb, congestion);
        }
        self.step_frto(tcb, acked, is_duplicate);
        proof
    }

    /// Forgets what the peer has paid. Each ACK does this, so that the two numbers stay comparable.
    fn settle_undos(&mut self, tcb: &Tcb) {
        self.undos_paid_by = self.undos_paid_by.later(tcb.snd_una);
    }

    /// Returns true if the peer has acknowledged enough data for another undo, and charges its price.
    ///
    /// After an undo, loss detection examines all ranges again and may begin another recovery. A peer
    /// can forge each proof, as RFC 3708 warns of DSACKs, and so cause this work again and again.
    /// Therefore an undo costs one acknowledged segment, and one more for every 32 ranges. On a path
    /// that only reorders segments, the peer acknowledges the late segment before the next undo.
    fn pay_for_undo(&mut self, tcb: &Tcb) -> bool {
        let mss = u32::from(tcb.mss);
        let paid_by = self.undos_paid_by;
        let is_affordable = paid_by.since(tcb.snd_una) < MAX_OPEN_SEGMENTS * mss;
        if is_affordable {
            let segments = 1 + self.board.len() as u32 / RANGES_PER_SEGMENT;
            self.undos_paid_by = paid_by + segments * mss;
        }
        is_affordable
    }

    /// Undoes a spurious window reduction (RFC 3522; RFC 4015).
    fn undo(&mut self, tcb: &mut Tcb, congestion: &mut C) {
        if self.phase == Phase::Recovery {
            tcb.flags |= Flags::REORDERING;
        }
        if let Some(prior) = self.prior.take() {
            *congestion = prior;
        }
        // A window that opens suddenly causes a burst, which may overflow a queue on the path.
        // Therefore new segments are paced. (RFC 4015, section 3.4, allows a burst of an initial
        // window, and then slow start.)
        let sendable = congestion
            .window()
            .saturating_sub(self.pipe(tcb.flight(), tcb.mss));
        let burst = 2 * C::new(tcb.mss.into()).window();
        if sendable > burst.max(congestion.window() / 2) {
            tcb.flags |= Flags::SPREAD_BURST;
        }
        self.board.unmark_lost(tcb.snd_una);
        self.rack.recheck(tcb.snd_una);
        self.phase = Phase::Disorder;
        self.dup_acks = 0;
        self.frto = Frto::Off;
        tcb.backoff = 0;
    }

    /// Returns the proof if the ACK proves the last window reduction spurious. Also reduces
    /// `undo_retrans` by the bytes that have proved spurious.
    fn find_proof(
        &mut self,
        tsecr: Option<u32>,
        delivery: &Delivery,
        acked: u32,
        tcb: &Tcb,
    ) -> Option<Proof> {
        let undo_retrans = self.undo_retrans;
        self.undo_retrans =
            undo_retrans.saturating_sub(self.spurious_bytes(delivery) + delivery.early_bytes);
        self.prior.as_ref()?;
        let is_eifel = match (self.first_retransmit_ts, tsecr) {
            (Some(first), Some(tsecr)) => acked > 0 && Seq(tsecr).before(Seq(first)),
            _ => false,
        };
        let dsack_proof = (undo_retrans > 0 && self.undo_retrans == 0).then_some(Proof::Dsack);
        match self.phase {
            Phase::Disorder => return dsack_proof,
            // One TSecr does not prove that all retransmissions were spurious.
            Phase::Recovery if self.board.any_retransmitted() || self.board.lost() > 0 => {
                return dsack_proof;
            }
            Phase::Recovery | Phase::Loss => {}
        }
        let is_frto = match self.frto {
            Frto::Off => false,
            Frto::First => tcb.negotiated.sack() && delivery.spurious_loss,
            Frto::Second => acked > 0,
        };
        if is_eifel {
            Some(Proof::Eifel)
        } else if is_frto {
            Some(Proof::Frto)
        } else {
            dsack_proof
        }
    }

    /// Advances F-RTO (RFC 5682, section 2.1). With SACK the first step stays active, because every
    /// ACK reports which data was delivered.
    fn step_frto(&mut self, tcb: &Tcb, acked: u32, is_duplicate: bool) {
        if self.frto == Frto::Off || tcb.negotiated.sack() {
            return;
        }
        let has_new = tcb.snd_nxt != tcb.limit()
            && tcb.flight().saturating_add(u32::from(tcb.mss)) <= tcb.snd_wnd;
        self.frto = match self.frto {
            Frto::First if acked > 0 && has_new => {
                self.new_sent = FRTO_SEGMENTS;
                Frto::Second
            }
            Frto::Second if !is_duplicate => Frto::Second,
            _ => Frto::Off,
        };
    }
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod tests;
