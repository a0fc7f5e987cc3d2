//! What a segment is to be: where it is cut out of the stream, and its header.

use ip::Ecn;

use super::Plan;
use super::{Conn, Context, Cut, Flags, Kind, NONE, State, Tcb};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::content::Family;
use crate::wire::{Control, Header, Seq, Written};

impl<C: CongestionControl> Conn<'_, C> {
    /// At most `most` bytes from `seq` on, or the FIN that is there, with a
    /// timestamp of `late` milliseconds ago.
    pub(crate) fn plan(&self, kind: Kind, seq: Seq, most: u32, late: u32, now: Moment) -> Plan {
        let tcb = &*self.tcb;
        let mut header = Header {
            seq,
            ack: tcb.rcv_nxt,
            control: tcb.control(),
            window: self.window_field(),
            timestamps: tcb.timestamps(now),
        };
        if let Some(timestamps) = &mut header.timestamps {
            timestamps.value = timestamps.value.wrapping_sub(late);
        }
        let Some(cut) = Cut::at(tcb, seq, &self.cx.lists) else {
            debug_assert!(tcb.flags.has(Flags::CLOSE), "the stream ends here");
            header.control = header.control | Control::FIN;
            return Plan::of_control(kind, header);
        };
        let len = cut.whole.min(most);
        if len == cut.place.len {
            header.control = header.control | Control::PSH;
        }
        // A FIN that was sent with this segment goes with it again.
        if seq + len == tcb.stream.end() && tcb.snd_nxt == tcb.stream.end() + 1 {
            header.control = header.control | Control::FIN;
        }
        Plan {
            kind,
            header,
            // RFC 3168, section 6.1.5: what is sent again takes no part.
            ecn: Ecn::NotEct,
            place: cut.place,
            len,
            prepared: cut.prepared.filter(|_| len == cut.whole),
            is_run: false,
        }
    }

    /// A segment has told all that has come, and a window by its field.
    #[inline(always)]
    pub(crate) fn has_told(&mut self, window: u16) {
        let window = u32::from(window) << self.tcb.own_scale(self.cx);
        self.tcb.rcv_adv = self.tcb.rcv_nxt + window;
        self.tcb.flags.clear(Flags::ACK);
    }

    /// A header without data that acknowledges what has come, and what has
    /// come out of order.
    #[inline(always)]
    pub(crate) fn acknowledgement(&mut self, now: Moment) -> (Header, Written) {
        let tcb = &*self.tcb;
        let header = Header {
            seq: tcb.snd_nxt,
            ack: tcb.rcv_nxt,
            control: tcb.control(),
            window: self.window_field(),
            timestamps: tcb.timestamps(now),
        };
        let nothing = tcb.buffer == NONE && self.cx.twice.is_none();
        let options = if nothing || !tcb.negotiated.sack() {
            Written::default()
        } else {
            self.selective()
        };
        (header, options)
    }

    /// A segment just before what the peer expects, which it must acknowledge
    /// (RFC 1122, section 4.2.3.6).
    pub(crate) fn keep_alive(&mut self, now: Moment) -> (Header, Written) {
        let (mut header, options) = self.acknowledgement(now);
        header.seq = Seq(header.seq.0.wrapping_sub(1));
        (header, options)
    }

    /// The port has taken a keep-alive.
    pub(crate) fn has_sent_keep_alive(&mut self) {
        self.tcb.retries += 1;
        self.cx.counters.keep_alives += 1;
    }

    /// The peer has not got all that was written for it, or the application waits
    /// to write more.
    pub(crate) fn is_owed(&self) -> bool {
        let tcb = &*self.tcb;
        tcb.snd_una.before(tcb.stream.end()) || tcb.flags.has(Flags::WANTS_ROOM)
    }

    /// The last segment of a connection that nobody answers for any more: a FIN
    /// to a peer that has all that was written, otherwise a reset. `None` when the
    /// peer has our FIN.
    pub(crate) fn farewell(&mut self, now: Moment) -> Option<Header> {
        let tcb = &*self.tcb;
        let has_all = tcb.snd_una == tcb.limit() && tcb.state.fin_sent();
        if tcb.state == State::TimeWait || has_all {
            return None;
        }
        let is_reset = tcb.state == State::SynReceived || self.is_owed();
        let (mut header, _) = self.acknowledgement(now);
        let tcb = &*self.tcb;
        (header.seq, header.control) = if is_reset {
            (tcb.reset_at(), Control::RST | Control::ACK)
        } else {
            (tcb.stream.end(), Control::FIN | Control::ACK)
        };
        Some(header)
    }

    /// A reset that the peer takes as in order.
    pub(crate) fn reset(&self, now: Moment) -> Header {
        let tcb = &*self.tcb;
        Header {
            seq: tcb.reset_at(),
            ack: tcb.rcv_nxt,
            control: Control::RST | Control::ACK,
            window: 0,
            timestamps: tcb.timestamps(now),
        }
    }
}

impl Tcb {
    /// Sequence number for a RST, above everything the peer may have received,
    /// so that it is in order then. A probe of a zero window was most likely
    /// dropped.
    fn reset_at(&self) -> Seq {
        if self.probes_window() {
            self.snd_una
        } else {
            self.snd_nxt
        }
    }

    /// The SYN-ACK of a half-open connection: our MSS, and what the SYN has
    /// offered.
    pub(crate) fn syn_ack<C>(&self, cx: &Context<C>, now: Moment) -> (Header, Written) {
        let family = Family::of(&self.path.addresses);
        let mut control = Control::SYN | Control::ACK;
        if self.negotiated.ecn() {
            control = control | Control::ECE;
        }
        // Never scaled (RFC 7323, section 2.2).
        let window = self.window_to_tell(cx).min(u32::from(u16::MAX));
        let header = Header {
            seq: self.snd_una,
            ack: self.rcv_nxt,
            control,
            window: window as u16,
            timestamps: self.timestamps(now),
        };
        let scale = self.own_scale(cx) as u8;
        let options = Written::syn_ack(
            cx.own_mss.of(family),
            self.negotiated.scaled().then_some(scale),
            self.negotiated.sack(),
        );
        (header, options)
    }

    /// A SYN-ACK has told a window.
    pub(crate) fn has_told_unscaled(&mut self, window: u16) {
        self.rcv_adv = self.rcv_nxt + u32::from(window);
        self.flags.clear(Flags::ACK);
    }
}
