//! Segments without data.

use arrayvec::ArrayVec;

use super::{Conn, Context, Flags, NONE, State, Tcb};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::content::Family;
use crate::outcome::ControlSegment;
use crate::wire::{Block, Control, Header, MAX_SACK_BLOCKS, Seq, Written};

impl<C: CongestionControl> Conn<'_, C> {
    /// Returns the header and options of a segment without data.
    #[inline(always)]
    pub(crate) fn control_segment(
        &mut self,
        segment: ControlSegment,
        now: Moment,
    ) -> (Header, Written) {
        if segment == ControlSegment::SynAck {
            return self.tcb.syn_ack(self.cx, now);
        }
        let (mut header, options) = self.acknowledgement(now);
        match segment {
            ControlSegment::SynAck | ControlSegment::Ack => {}
            ControlSegment::KeepAlive => header.seq = header.seq - 1,
            ControlSegment::Fin => {
                header.seq = self.tcb.stream.end();
                header.control = Control::FIN | Control::ACK;
            }
            ControlSegment::Reset => {
                header.seq = self.tcb.reset_at();
                header.control = Control::RST | Control::ACK;
                header.window = 0;
                return (header, Written::default());
            }
        }
        (header, options)
    }

    /// Records that the port has accepted a segment without data.
    #[inline(always)]
    pub(crate) fn has_sent_control(&mut self, segment: ControlSegment, header: &Header) {
        match segment {
            ControlSegment::Ack => self.has_advertised(header.window),
            ControlSegment::KeepAlive => {
                self.tcb.retries += 1;
                self.cx.counters.keep_alives += 1;
            }
            ControlSegment::SynAck => {
                // A SYN-ACK's window is not scaled.
                self.tcb.rcv_adv = self.tcb.rcv_nxt + u32::from(header.window);
                self.tcb.flags -= Flags::ACK_PENDING;
            }
            ControlSegment::Fin => {}
            ControlSegment::Reset => self.cx.counters.resets_sent += 1,
        }
    }

    /// Returns the header and options of an ACK without data. If both sides use SACK, the options
    /// may contain SACK blocks.
    #[inline(always)]
    fn acknowledgement(&mut self, now: Moment) -> (Header, Written) {
        let tcb = &*self.tcb;
        let header = self.header(tcb.snd_nxt, now);
        let nothing = tcb.buffer == NONE && self.cx.dsack.is_none();
        let options = if nothing || !tcb.negotiated.sack() {
            Written::default()
        } else {
            self.selective()
        };
        (header, options)
    }

    /// Returns true if some written data is not acknowledged yet, or if the application waits to
    /// write more.
    fn is_incomplete(&self) -> bool {
        let tcb = &*self.tcb;
        !tcb.stream.is_empty() || tcb.flags.intersects(Flags::WANTS_ROOM)
    }

    /// Returns the last segment to send when the stack shuts down, or `None` if the peer has
    /// acknowledged our FIN. The segment is a FIN if the peer has acknowledged all data and the
    /// application does not wait to write more. Otherwise, and for a half-open connection, it is a
    /// RST.
    pub(crate) fn closing_segment(&self) -> Option<ControlSegment> {
        let tcb = &*self.tcb;
        let has_all = tcb.snd_una == tcb.limit() && tcb.state.fin_sent();
        if tcb.state == State::TimeWait || has_all {
            None
        } else if tcb.state == State::SynReceived || self.is_incomplete() {
            Some(ControlSegment::Reset)
        } else {
            Some(ControlSegment::Fin)
        }
    }

    /// Returns the SACK option for data received out of order (RFC 2018) or twice (DSACK, RFC
    /// 2883).
    #[cold]
    fn selective(&mut self) -> Written {
        let tcb = &*self.tcb;
        let dsack = self.cx.dsack.take();
        let mut blocks: ArrayVec<Block, MAX_SACK_BLOCKS> = dsack.into_iter().collect();
        if tcb.buffer != NONE {
            let ranges = self.cx.buffers[tcb.buffer].out_of_order();
            let room = blocks.remaining_capacity();
            let block = |(start, end): (usize, usize)| {
                (tcb.rcv_nxt + start as u32, tcb.rcv_nxt + end as u32)
            };
            blocks.extend(ranges.into_iter().take(room).map(block));
        }
        Written::sack(&blocks, tcb.negotiated.timestamps())
    }
}

impl Tcb {
    /// Returns the sequence number of a RST: the number after all data that the peer may have
    /// received, so that the RST is in order. The byte of a zero-window probe does not count,
    /// because the peer has most likely dropped it.
    fn reset_at(&self) -> Seq {
        if self.probes_window() {
            self.snd_una
        } else {
            self.snd_nxt
        }
    }

    /// Returns the SYN-ACK of a half-open connection, with our MSS and the negotiated options.
    #[inline(always)]
    pub(crate) fn syn_ack<C>(&self, cx: &Context<C>, now: Moment) -> (Header, Written) {
        let family = Family::of(&self.path.addresses);
        let mut control = Control::SYN | Control::ACK;
        if self.negotiated.ecn() {
            control = control | Control::ECE;
        }
        // A SYN-ACK's window is never scaled (RFC 7323, section 2.2).
        let window = self.window_to_advertise(cx).min(u32::from(u16::MAX));
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
}
