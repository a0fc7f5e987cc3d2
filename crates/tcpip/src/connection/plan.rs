//! What a segment is to be: where it is cut out of the stream, and its header.

use arrayvec::ArrayVec;
use ip::Ecn;

use super::{Conn, Context, Cut, Flags, NONE, Tcb};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::recv::Buffers;
use crate::segments::Family;
use crate::stream::Slice;
use crate::wire::{Block, Control, Header, MAX_SACK_BLOCKS, Seq, Written};

/// Why a segment is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// For the first time.
    New,
    /// It was lost.
    Lost,
    /// It probes the tail (RFC 8985, section 7.3); `again`: it is no new data.
    TailProbe { again: bool },
    /// It probes a window that is shut or too small.
    WindowProbe,
    /// It probes the path MTU (RFC 4821, RFC 8899).
    SizeProbe,
}

/// A segment, or a run of segments, to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) header: Header,
    pub(crate) ecn: Ecn,
    /// Where its data begins, to the entry's end; `None`: it is a FIN alone.
    pub(crate) place: Option<Slice>,
    /// Bytes of data.
    pub(crate) len: u32,
    /// Number of the prepared segment that it begins with, if it is that one
    /// or a run of such.
    pub(crate) prepared: Option<u32>,
    /// It is more than one segment.
    pub(crate) is_run: bool,
}

impl Plan {
    /// What it takes of sequence space: from its first number to behind the
    /// last.
    #[inline(always)]
    pub(crate) fn range(&self) -> (Seq, Seq) {
        let fin = u32::from(self.header.control.has(Control::FIN));
        (self.header.seq, self.header.seq + self.len + fin)
    }
}

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
            place: Some(cut.place),
            len,
            prepared: cut.prepared.filter(|_| len == cut.whole),
            is_run: false,
        }
    }

    /// The window to tell now, in bytes. It never takes back what was told
    /// before, and does not open by small steps (RFC 9293, section 3.8.6.2.2).
    #[inline(always)]
    pub(crate) fn window_to_tell(&self) -> u32 {
        window_to_tell(self.tcb, &self.cx.buffers)
    }

    /// The same as the field of a header has it (RFC 7323, section 2.3), rounded
    /// up: what was told stays told, but for less than one unit of the scale
    /// (section 2.4).
    #[inline(always)]
    pub(crate) fn window_field(&self) -> u16 {
        let window = self.window_to_tell();
        let field = match self.own_scale() {
            0 => window,
            scale => scaled(self.tcb, &self.cx.buffers, window, scale),
        };
        field.min(u32::from(u16::MAX)) as u16
    }

    /// How our windows are shifted.
    #[inline(always)]
    pub(crate) fn own_scale(&self) -> u32 {
        self.tcb.own_scale(self.cx)
    }

    /// A segment has told all that has come, and a window by its field.
    #[inline(always)]
    pub(crate) fn has_told(&mut self, window: u16) {
        let window = u32::from(window) << self.own_scale();
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
            selective(tcb, &self.cx.buffers, &mut self.cx.twice)
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

impl Plan {
    /// A segment without data.
    #[inline(always)]
    fn of_control(kind: Kind, header: Header) -> Self {
        Self {
            kind,
            header,
            ecn: Ecn::NotEct,
            place: None,
            len: 0,
            prepared: None,
            is_run: false,
        }
    }
}

impl Tcb {
    /// How our windows are shifted.
    #[inline(always)]
    pub(crate) fn own_scale<C>(&self, cx: &Context<C>) -> u32 {
        if self.negotiated.scaled() {
            cx.window_scale.into()
        } else {
            0
        }
    }

    /// The control bits of every segment (RFC 3168, section 6.1).
    #[inline(always)]
    pub(crate) fn control(&self) -> Control {
        if self.flags.has(Flags::ECHO) {
            Control::ACK | Control::ECE
        } else {
            Control::ACK
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
        let window = window_to_tell(self, &cx.buffers).min(u32::from(u16::MAX));
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

/// Bytes that a connection has place for.
#[inline(always)]
fn space(tcb: &Tcb, buffers: &Buffers) -> usize {
    if tcb.buffer == NONE {
        buffers.capacity()
    } else {
        buffers.get(tcb.buffer).space()
    }
}

#[inline(always)]
fn window_to_tell(tcb: &Tcb, buffers: &Buffers) -> u32 {
    let space = space(tcb, buffers);
    let told = tcb.rcv_adv.since(tcb.rcv_nxt);
    let worth = usize::from(tcb.mss).min(buffers.capacity() / 2);
    if space < worth {
        told
    } else {
        told.max(space as u32)
    }
}

/// What was told, perhaps rounded up, is no reason to round up again: the
/// space is.
#[cold]
fn scaled(tcb: &Tcb, buffers: &Buffers, window: u32, scale: u32) -> u32 {
    let space = space(tcb, buffers) as u32;
    if window >= space {
        window.min(space).div_ceil(1 << scale)
    } else {
        window.div_ceil(1 << scale)
    }
}

/// What has come out of order (RFC 2018), or `twice` (RFC 2883), as options.
#[cold]
fn selective(tcb: &Tcb, buffers: &Buffers, twice: &mut Option<Block>) -> Written {
    let mut blocks: ArrayVec<Block, MAX_SACK_BLOCKS> = twice.take().into_iter().collect();
    if tcb.buffer != NONE {
        let ranges = buffers.get(tcb.buffer).out_of_order();
        let room = blocks.remaining_capacity();
        let block =
            |(start, end): (usize, usize)| (tcb.rcv_nxt + start as u32, tcb.rcv_nxt + end as u32);
        blocks.extend(ranges.into_iter().take(room).map(block));
    }
    Written::sack(&blocks, tcb.negotiated.timestamps())
}
