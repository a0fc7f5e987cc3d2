//! Making segments: the hot path.
//!
//! What is to be sent is found in the stream by its sequence number, new data
//! and lost data alike. A whole prepared segment leaves by patching: its
//! payload is not read, only copied ([`Mode::MemCopy`]) or not even that
//! ([`Mode::PreCopy`]).

use ip::{Addresses, Ecn, PROTOCOL_TCP, Packet, Sum};
use nmio::{Port, SendError, SuperSegment, super_segment};

use crate::app::Application;
use crate::content::{Contents, MAX_SLOT_LEN, Mode, NO_CLASS, Slot};
use crate::counters::Counters;
use crate::options::{self, Written};
use crate::recv::Buffers;
use crate::segments::payload_sum;
use crate::tcb::{NONE, Place, Tcb};
use crate::wire::{HEADER_LEN, Header, Seq, TIMESTAMPED_HEADER_LEN, TIMESTAMPS_LEN};
use crate::writes::Writes;

/// The ring or the pool has no room: try again later.
#[derive(Debug)]
pub(crate) struct NoRoom;

/// A segment with data, decided upon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    place: Place,
    header: Header,
    ecn: Ecn,
    /// Bytes of data.
    len: u32,
    /// Number of the whole prepared segment that this is, if it is one.
    prepared: Option<u32>,
}

/// What sending needs of the stack, beside the TCB.
pub(crate) struct Sender<'a, A> {
    pub(crate) app: &'a mut A,
    pub(crate) contents: &'a mut Contents,
    pub(crate) writes: &'a Writes,
    pub(crate) counters: &'a mut Counters,
    pub(crate) mode: Mode,
}

/// The window to tell now, in bytes. It never takes back what was told before,
/// and does not open by small steps (RFC 9293, section 3.8.6.2.2).
#[inline(always)]
pub(crate) fn window_to_tell(tcb: &Tcb, buffers: &Buffers) -> u32 {
    let capacity = buffers.capacity();
    let space = if tcb.buffer == NONE {
        capacity
    } else {
        buffers.get(tcb.buffer).space()
    };
    let told = tcb.rcv_adv.since(tcb.rcv_nxt);
    let worth = usize::from(tcb.mss).min(capacity / 2);
    if space < worth {
        told
    } else {
        told.max(space as u32)
    }
}

/// The same as the field of a header has it (RFC 7323, section 2.3), rounded
/// up: what was told stays told, but for less than one unit of the scale
/// (section 2.4).
#[inline(always)]
pub(crate) fn window_field(tcb: &Tcb, buffers: &Buffers) -> u16 {
    let window = window_to_tell(tcb, buffers);
    let scale = tcb.own_scale();
    let field = if scale == 0 {
        window
    } else {
        scaled(tcb, buffers, window, scale)
    };
    field.min(u32::from(u16::MAX)) as u16
}

/// What was told, perhaps rounded up, is no reason to round up again: the
/// space is.
#[cold]
fn scaled(tcb: &Tcb, buffers: &Buffers, window: u32, scale: u32) -> u32 {
    let space = if tcb.buffer == NONE {
        buffers.capacity()
    } else {
        buffers.get(tcb.buffer).space()
    };
    let space = space as u32;
    if window >= space {
        window.min(space).div_ceil(1 << scale)
    } else {
        window.div_ceil(1 << scale)
    }
}

/// Where a segment is cut that begins at some place of the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) place: Place,
    /// Bytes to the next boundary: of a segment of the class, or the entry's
    /// end.
    pub(crate) whole: u32,
    /// Number of the prepared segment that begins here, if one does.
    prepared: Option<u32>,
}

impl Cut {
    /// `None` where the stream ends.
    #[inline(always)]
    pub(crate) fn at(tcb: &Tcb, seq: Seq) -> Option<Self> {
        let place = tcb.locate(seq)?;
        let mss = u32::from(tcb.mss);
        let segment = place.offset / mss;
        let ahead = place.offset - segment * mss;
        let prepared = ahead == 0 && tcb.class != NO_CLASS && place.source.buffer().is_none();
        Some(Self {
            place,
            whole: (mss - ahead).min(place.left),
            prepared: prepared.then_some(segment),
        })
    }

    /// Bytes of the run of segments that begins here, as long as may be sent:
    /// `usable` bytes, in one packet of at most `most` bytes of data. 0: it
    /// would be no more than a segment, or not be cut as the class is.
    #[inline(always)]
    pub(crate) fn run(&self, mss: u32, usable: u32, most: u32) -> u32 {
        let left = self.place.left;
        let bytes = left.min(usable).min(most);
        if bytes <= mss || self.prepared.is_none() {
            return 0;
        }
        let run = if bytes == left {
            left
        } else {
            bytes - bytes % mss
        };
        if run > mss { run } else { 0 }
    }

    /// The first `len` bytes: at most `whole`, or those of a run.
    #[inline(always)]
    pub(crate) fn take(self, len: u32, header: Header, ecn: Ecn) -> Outgoing {
        Outgoing {
            place: self.place,
            header,
            ecn,
            len,
            prepared: self.prepared.filter(|_| len == self.whole),
        }
    }
}

/// What the segment at `seq` of the stream takes of sequence space: its bytes
/// of data, or the FIN's one.
pub(crate) fn segment_len_at(tcb: &Tcb, seq: Seq) -> u32 {
    Cut::at(tcb, seq).map_or(1, |cut| cut.whole)
}

/// Where the last segment that was sent begins; something is in flight.
pub(crate) fn last_segment(tcb: &Tcb) -> Seq {
    // Data that a FIN went with, or might have, goes again with it.
    let last = if tcb.snd_nxt == tcb.snd_end + 1 {
        tcb.snd_end
    } else {
        tcb.snd_nxt
    };
    let last = Seq(last.0.wrapping_sub(1));
    if last.before(tcb.snd_una) {
        return tcb.snd_una;
    }
    let Some(place) = tcb.locate(last) else {
        return tcb.snd_una;
    };
    let ahead = place.offset % u32::from(tcb.mss);
    Seq(last.0.wrapping_sub(ahead)).later(tcb.snd_una)
}

/// The whole checksum of a segment of `tcb` with `more` bytes of options
/// behind the header; `rest` is the sum of these and the data.
#[inline(always)]
fn checksum(tcb: &Tcb, header: &Header, more: usize, len: usize, rest: Sum) -> u16 {
    Sum::from_folded(tcb.sum)
        .word((header.len() + more + len) as u16)
        .add(header.sum(more))
        .add(rest)
        .finish()
}

/// Renders the part of a slot that lies in `start..` of its content into
/// `payload`, which begins there, and sums it.
#[inline(always)]
fn render<A: Application>(
    app: &mut A,
    slot: Option<Slot>,
    stamp: u32,
    start: usize,
    payload: &mut [u8],
) -> Sum {
    let Some(slot) = slot else {
        return Sum::ZERO;
    };
    let Some((from, to)) = slot.within(start, start + payload.len()) else {
        return Sum::ZERO;
    };
    let part = &mut payload[from - start..to - start];
    render_at(app, slot, stamp, from, part);
    Sum::ZERO.add_at(Sum::of(part), from - start)
}

/// Renders the part of a slot that begins at `from` of its content.
#[inline(always)]
fn render_at<A: Application>(app: &mut A, slot: Slot, stamp: u32, from: usize, part: &mut [u8]) {
    if part.len() == slot.len as usize {
        app.render(stamp, part);
    } else {
        render_part(app, slot, stamp, from, part);
    }
}

/// The same of less than the whole slot.
#[cold]
fn render_part<A: Application>(app: &mut A, slot: Slot, stamp: u32, from: usize, part: &mut [u8]) {
    let mut rendered = [0; MAX_SLOT_LEN];
    app.render(stamp, &mut rendered[..slot.len as usize]);
    part.copy_from_slice(&rendered[from - slot.offset as usize..][..part.len()]);
}

impl Outgoing {
    /// Bytes of data.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}

impl Cut {
    /// `len` bytes of the entry, though they be more than a segment of the
    /// class.
    pub(crate) fn take_more(self, len: u32, header: Header, ecn: Ecn) -> Outgoing {
        Outgoing {
            place: self.place,
            header,
            ecn,
            len,
            prepared: None,
        }
    }
}

impl<A: Application> Sender<'_, A> {
    /// Sends new data, `len` bytes from a place in the stream: a segment or a
    /// run of them; or what has no data. Counts it.
    #[inline(always)]
    pub(crate) fn send_new<P: Port>(
        &mut self,
        port: &mut P,
        tcb: &Tcb,
        cut: Option<Cut>,
        len: u32,
        header: Header,
        ecn: Ecn,
    ) -> Result<(), NoRoom> {
        match cut {
            Some(cut) if len > cut.whole => self.send_run(port, tcb, cut.take(len, header, ecn))?,
            Some(cut) => self.send(port, tcb, cut.take(len, header, ecn))?,
            None => send_control(port, tcb, &header, &Written::default())?,
        }
        self.counters.segments_sent += 1;
        self.counters.bytes_sent += u64::from(len);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn send<P: Port>(
        &mut self,
        port: &mut P,
        tcb: &Tcb,
        out: Outgoing,
    ) -> Result<(), NoRoom> {
        if let Some(segment) = out.prepared {
            let index = out.place.source.index();
            let sum = match self.contents.get(index).sum(tcb.class, segment) {
                Some(sum) => Some(sum),
                None => self.first_sum(index, tcb.class, segment),
            };
            if let Some(sum) = sum {
                let sum = Sum::from_folded(sum);
                // Prepared packets have no place for a tag.
                if self.mode == Mode::PreCopy && tcb.path.link.vlan.is_none() {
                    return self.send_resident(port, tcb, out, segment, sum);
                }
                return self.send_copy(port, tcb, out, sum);
            }
        }
        self.send_assembled(port, tcb, out)
    }

    /// Sends a run of segments as one packet. Its payload is neither read nor
    /// copied here.
    #[inline(never)]
    pub(crate) fn send_run<P: Port>(
        &mut self,
        port: &mut P,
        tcb: &Tcb,
        out: Outgoing,
    ) -> Result<(), NoRoom> {
        let content = self.contents.get(out.place.source.index());
        let (start, len) = (out.place.offset as usize, out.len as usize);
        let (at, header_len) = (tcb.path.header_len(), out.header.len());
        let cut = match tcb.path.addresses {
            Addresses::V4 { .. } => super_segment::Cut::TcpV4,
            Addresses::V6 { .. } => super_segment::Cut::TcpV6,
        };
        let headers = (at + header_len, at);
        let range = start..start + len;
        let mut packet = SuperSegment::new(cut, tcb.mss, headers, &content.bytes, range);
        let header = packet.headers_mut();
        let tcp_len = header_len + len;
        tcb.path
            .write_marked(header, PROTOCOL_TCP, tcp_len, out.ecn);
        let pseudo = tcb.path.addresses.pseudo_sum(PROTOCOL_TCP, tcp_len).fold();
        out.header.write(&mut header[at..], tcb.ports(), pseudo, 0);
        if let Some(slot) = content.slot
            && let Some((from, to)) = slot.within(start, start + len)
        {
            let part = packet.patch_mut(from - start, to - from);
            render_at(self.app, slot, out.place.stamp, from, part);
        }
        let segments = packet.segments() as u64;
        port.send_super(packet).map_err(|_| NoRoom)?;
        self.counters.sent_runs += 1;
        // The run itself is counted as a segment, as all that is sent.
        self.counters.segments_sent += segments - 1;
        Ok(())
    }

    /// Sums a segment that is sent for the first time in its class.
    #[cold]
    fn first_sum(&mut self, index: u32, class: u8, segment: u32) -> Option<u16> {
        self.contents
            .ensure_segments(index, class)
            .then(|| self.contents.sum(index, class, segment))
    }

    #[inline(always)]
    fn send_resident<P: Port>(
        &mut self,
        port: &mut P,
        tcb: &Tcb,
        out: Outgoing,
        segment: u32,
        sum: Sum,
    ) -> Result<(), NoRoom> {
        let index = out.place.source.index();
        let resident = self
            .contents
            .resident(index, tcb.class, segment, port.pool());
        let Some((resident, slot)) = resident else {
            self.counters.resident_fallbacks += 1;
            return self.send_copy(port, tcb, out, sum);
        };
        let len = out.len as usize;
        let packet = resident.bytes_mut().ok_or(NoRoom)?;
        let tcp_len = TIMESTAMPED_HEADER_LEN + len;
        tcb.path
            .patch_marked(packet, PROTOCOL_TCP, tcp_len, out.ecn);
        let tcp = &mut packet[tcb.path.header_len()..];
        let (header, payload) = tcp.split_at_mut(TIMESTAMPED_HEADER_LEN);
        let start = out.place.offset as usize;
        let mut sum = sum.add(render(self.app, slot, out.place.stamp, start, payload));
        // Without timestamps their place is filled with no-operations.
        let mut more = 0;
        if out.header.timestamps.is_none() {
            more = TIMESTAMPS_LEN;
            header[HEADER_LEN..].copy_from_slice(&options::NO_OPERATIONS);
            sum = sum.add(options::NO_OPERATIONS_SUM);
        }
        let checksum = checksum(tcb, &out.header, more, len, sum);
        out.header.write(header, tcb.ports(), checksum, more);
        port.send_resident(resident).map_err(|_| NoRoom)?;
        self.counters.sent_resident += 1;
        Ok(())
    }

    #[inline(always)]
    fn send_copy<P: Port>(
        &mut self,
        port: &mut P,
        tcb: &Tcb,
        out: Outgoing,
        sum: Sum,
    ) -> Result<(), NoRoom> {
        let len = out.len as usize;
        let mut frame = port.pool().take().ok_or(NoRoom)?;
        let header_len = out.header.len();
        frame.set_len(tcb.path.header_len() + header_len + len);
        let path = &tcb.path;
        let at = path.write_marked(&mut frame, PROTOCOL_TCP, header_len + len, out.ecn);
        let (header, payload) = frame[at..].split_at_mut(header_len);
        let content = self.contents.get(out.place.source.index());
        let start = out.place.offset as usize;
        payload.copy_from_slice(&content.bytes[start..start + len]);
        let sum = sum.add(render(
            self.app,
            content.slot,
            out.place.stamp,
            start,
            payload,
        ));
        let checksum = checksum(tcb, &out.header, 0, len, sum);
        out.header.write(header, tcb.ports(), checksum, 0);
        port.send(frame).map_err(|_| NoRoom)?;
        self.counters.sent_copied += 1;
        Ok(())
    }

    /// The general path: any range of any source, on any link.
    #[inline(never)]
    fn send_assembled<P: Port>(
        &mut self,
        port: &mut P,
        tcb: &Tcb,
        out: Outgoing,
    ) -> Result<(), NoRoom> {
        let (bytes, slot) = if let Some(buffer) = out.place.source.buffer() {
            (self.writes.get(buffer), None)
        } else {
            let content = self.contents.get(out.place.source.index());
            (&*content.bytes, content.slot)
        };
        let (start, len) = (out.place.offset as usize, out.len as usize);
        let mut frame = port.pool().take().ok_or(NoRoom)?;
        let header_len = out.header.len();
        frame.set_len(tcb.path.header_len() + header_len + len);
        let path = &tcb.path;
        let at = path.write_marked(&mut frame, PROTOCOL_TCP, header_len + len, out.ecn);
        let (header, payload) = frame[at..].split_at_mut(header_len);
        payload.copy_from_slice(&bytes[start..start + len]);
        let sum = payload_sum(bytes, slot, start, start + len).add(render(
            self.app,
            slot,
            out.place.stamp,
            start,
            payload,
        ));
        let checksum = checksum(tcb, &out.header, 0, len, sum);
        out.header.write(header, tcb.ports(), checksum, 0);
        port.send(frame).map_err(|_| NoRoom)?;
        self.counters.sent_assembled += 1;
        Ok(())
    }
}

/// Sends a segment without data, made in a scratch frame.
pub(crate) fn send_control<P: Port>(
    port: &mut P,
    tcb: &Tcb,
    header: &Header,
    options: &Written,
) -> Result<(), NoRoom> {
    let mut frame = port.pool().take().ok_or(NoRoom)?;
    let more = options.bytes();
    let len = header.len() + more.len();
    frame.set_len(tcb.path.header_len() + len);
    let at = tcb.path.write(&mut frame, PROTOCOL_TCP, len);
    let checksum = checksum(tcb, header, more.len(), 0, Sum::of(more));
    header.write(&mut frame[at..], tcb.ports(), checksum, more.len());
    frame[at + header.len()..].copy_from_slice(more);
    port.send(frame).map_err(|_| NoRoom)
}

/// Turns a received segment round into one without data.
#[inline(always)]
pub(crate) fn turn_round<P: Port>(
    port: &mut P,
    mut packet: Packet,
    header: &Header,
    options: &Written,
    (own_port, peer_port): (u16, u16),
) -> Result<(), SendError> {
    let more = options.bytes();
    let len = header.len() + more.len();
    let mut sum = packet
        .addresses()
        .pseudo_sum(PROTOCOL_TCP, len)
        .word(own_port)
        .word(peer_port)
        .add(header.sum(more.len()));
    packet.set_payload_len(len);
    let payload = packet.payload_mut();
    if !more.is_empty() {
        sum = sum.add(Sum::of(more));
        payload[header.len()..].copy_from_slice(more);
    }
    header.write(payload, (own_port, peer_port), sum.finish(), more.len());
    port.send(packet.turn_round(PROTOCOL_TCP))
}
