//! Transmission: the hot path.
//!
//! What is to be sent is found in the stream by its sequence number, new data
//! and lost data alike. A whole prepared segment leaves by patching: its
//! payload is not read, only copied ([`Mode::MemCopy`]) or not even that
//! ([`Mode::PreCopy`]).

use ip::{PROTOCOL_TCP, Packet, Sum};
use nmio::{Port, SendError};

use crate::app::Application;
use crate::congestion::CongestionControl;
use crate::content::{Contents, MAX_SLOT_LEN, Mode, NO_CLASS, Slot};
use crate::counters::Counters;
use crate::recv::Buffers;
use crate::segments::{Family, payload_sum};
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, NONE, Place, Record, Tcb};
use crate::wire::{Control, HEADER_LEN, Header, Seq};
use crate::writes::Writes;

/// The ring or the pool has no room: try again later.
#[derive(Debug)]
pub(crate) struct NoRoom;

/// A segment with data, decided upon.
#[derive(Clone, Copy, Debug)]
struct Outgoing {
    place: Place,
    header: Header,
    /// Bytes of data.
    len: u32,
    /// Number of the whole prepared segment that this is, if it is one.
    prepared: Option<u32>,
}

/// What sending needs of the stack, beside the TCB.
struct Sender<'a, A> {
    app: &'a mut A,
    contents: &'a mut Contents,
    writes: &'a Writes,
    counters: &'a mut Counters,
    mode: Mode,
}

/// The window to tell now. It never takes back what was told before, and does
/// not open by small steps (RFC 9293, section 3.8.6.2.2).
#[inline(always)]
pub(crate) fn window_to_tell(tcb: &Tcb, buffers: &Buffers) -> u16 {
    let capacity = buffers.capacity();
    let space = if tcb.buffer == NONE {
        capacity
    } else {
        buffers.get(tcb.buffer).space()
    };
    let told = tcb.rcv_adv.since(tcb.rcv_nxt);
    let worth = usize::from(tcb.mss).min(capacity / 2);
    let window = if space < worth {
        told
    } else {
        told.max(space as u32)
    };
    window.min(u32::from(u16::MAX)) as u16
}

/// Where a segment is cut that begins at some place of the stream.
#[derive(Clone, Copy, Debug)]
struct Cut {
    place: Place,
    /// Bytes to the next boundary: of a segment of the class, or the entry's
    /// end.
    whole: u32,
    /// Number of the prepared segment that begins here, if one does.
    prepared: Option<u32>,
}

impl Cut {
    /// `None` where the stream ends.
    #[inline(always)]
    fn at(tcb: &Tcb, seq: Seq) -> Option<Self> {
        let place = tcb.locate(seq)?;
        if place.left == 0 {
            return None;
        }
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

    /// The first `len` bytes, at most `whole`.
    #[inline(always)]
    fn take(self, len: u32, header: Header) -> Outgoing {
        Outgoing {
            place: self.place,
            header,
            len,
            prepared: self.prepared.filter(|_| len == self.whole),
        }
    }
}

/// The whole checksum of a segment of `tcb`.
#[inline(always)]
fn checksum(tcb: &Tcb, header: &Header, len: usize, payload: Sum) -> u16 {
    Sum::from_folded(tcb.sum)
        .word((header.len() + len) as u16)
        .add(header.sum())
        .add(payload)
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
    if part.len() == slot.len as usize {
        app.render(stamp, part);
    } else {
        render_part(app, slot, stamp, from, part);
    }
    Sum::ZERO.add_at(Sum::of(part), from - start)
}

/// Renders the part of a slot that begins at `from` of its content.
#[cold]
fn render_part<A: Application>(app: &mut A, slot: Slot, stamp: u32, from: usize, part: &mut [u8]) {
    let mut rendered = [0; MAX_SLOT_LEN];
    app.render(stamp, &mut rendered[..slot.len as usize]);
    part.copy_from_slice(&rendered[from - slot.offset as usize..][..part.len()]);
}

impl<A: Application> Sender<'_, A> {
    #[inline(always)]
    fn send<P: Port>(&mut self, port: &mut P, tcb: &Tcb, out: &Outgoing) -> Result<(), NoRoom> {
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
        out: &Outgoing,
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
        tcb.path.patch(packet, PROTOCOL_TCP, HEADER_LEN + len);
        let (header, payload) = packet[tcb.path.header_len()..].split_at_mut(HEADER_LEN);
        let start = out.place.offset as usize;
        let sum = sum.add(render(self.app, slot, out.place.stamp, start, payload));
        let checksum = checksum(tcb, &out.header, len, sum);
        out.header
            .write(header, tcb.own_port, tcb.peer_port, checksum);
        port.send_resident(resident).map_err(|_| NoRoom)?;
        self.counters.sent_resident += 1;
        Ok(())
    }

    #[inline(always)]
    fn send_copy<P: Port>(
        &mut self,
        port: &mut P,
        tcb: &Tcb,
        out: &Outgoing,
        sum: Sum,
    ) -> Result<(), NoRoom> {
        let len = out.len as usize;
        let mut frame = port.pool().take().ok_or(NoRoom)?;
        frame.set_len(tcb.path.header_len() + HEADER_LEN + len);
        let at = tcb.path.write(&mut frame, PROTOCOL_TCP, HEADER_LEN + len);
        let (header, payload) = frame[at..].split_at_mut(HEADER_LEN);
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
        let checksum = checksum(tcb, &out.header, len, sum);
        out.header
            .write(header, tcb.own_port, tcb.peer_port, checksum);
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
        out: &Outgoing,
    ) -> Result<(), NoRoom> {
        let (bytes, slot) = if let Some(buffer) = out.place.source.buffer() {
            (self.writes.get(buffer), None)
        } else {
            let content = self.contents.get(out.place.source.index());
            (&*content.bytes, content.slot)
        };
        let (start, len) = (out.place.offset as usize, out.len as usize);
        let mut frame = port.pool().take().ok_or(NoRoom)?;
        frame.set_len(tcb.path.header_len() + HEADER_LEN + len);
        let at = tcb.path.write(&mut frame, PROTOCOL_TCP, HEADER_LEN + len);
        let (header, payload) = frame[at..].split_at_mut(HEADER_LEN);
        payload.copy_from_slice(&bytes[start..start + len]);
        let sum = payload_sum(bytes, slot, start, start + len).add(render(
            self.app,
            slot,
            out.place.stamp,
            start,
            payload,
        ));
        let checksum = checksum(tcb, &out.header, len, sum);
        out.header
            .write(header, tcb.own_port, tcb.peer_port, checksum);
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
) -> Result<(), NoRoom> {
    let mut frame = port.pool().take().ok_or(NoRoom)?;
    frame.set_len(tcb.path.header_len() + header.len());
    let at = tcb.path.write(&mut frame, PROTOCOL_TCP, header.len());
    let checksum = checksum(tcb, header, 0, Sum::ZERO);
    header.write(&mut frame[at..], tcb.own_port, tcb.peer_port, checksum);
    port.send(frame).map_err(|_| NoRoom)
}

/// Turns a received segment round into one without data.
#[inline(always)]
pub(crate) fn turn_round<P: Port>(
    port: &mut P,
    mut packet: Packet,
    header: &Header,
    (own_port, peer_port): (u16, u16),
) -> Result<(), SendError> {
    let sum = packet
        .addresses()
        .pseudo_sum(PROTOCOL_TCP, header.len())
        .word(own_port)
        .word(peer_port)
        .add(header.sum());
    packet.set_payload_len(header.len());
    header.write(packet.payload_mut(), own_port, peer_port, sum.finish());
    port.send(packet.turn_round(PROTOCOL_TCP))
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Sends what is lost and what is new, as far as the congestion window,
    /// the peer's window and the TX ring allow.
    #[inline(always)]
    pub(crate) fn transmit<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        if tcb.flags.has(Flags::RETRANSMIT) {
            self.retransmit(port, id, now);
        }
        let tcb = &self.records[id as usize].tcb;
        if tcb.snd_nxt != tcb.limit() {
            self.send_new(port, id, now);
        }
    }

    /// Sends from `snd_nxt` on.
    #[inline(always)]
    fn send_new<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let Record { tcb, congestion } = &mut self.records[id as usize];
        let una = tcb.snd_una;
        let first = tcb.snd_nxt;
        let peer_window = tcb.snd_wnd;
        let usable = peer_window.min(congestion.window());
        let window = window_to_tell(tcb, &self.buffers);
        let mut sender = Sender {
            app: &mut self.app,
            contents: &mut self.contents,
            writes: &self.writes,
            counters: &mut self.counters,
            mode: self.settings.mode,
        };
        let mut room = port.room();
        let mut blocked = false;
        let limit = tcb.limit();
        let mut seq = first;
        while seq != limit {
            let flight = seq.since(una);
            let cut = Cut::at(tcb, seq);
            let mut control = Control::ACK;
            let mut len = 0;
            if let Some(cut) = &cut {
                len = cut.whole;
                if flight.saturating_add(len) > usable {
                    // RFC 9293, section 3.8.6.2.1: a part of a segment only
                    // to a peer whose window was never wide, and only when
                    // nothing else is in flight. To others the timer sends
                    // it, if the window stays as it is.
                    if flight > 0 || peer_window == 0 || tcb.flags.has(Flags::WIDE) {
                        break;
                    }
                    len = len.min(usable);
                }
                if len == cut.place.left {
                    control = control | Control::PSH;
                }
            }
            // A FIN needs its place in the peer's window, as data does.
            let mut fin = 0;
            if seq + len == tcb.snd_end && limit != tcb.snd_end && flight + len < peer_window {
                control = control | Control::FIN;
                fin = 1;
            } else if len == 0 {
                break;
            }
            if room == 0 {
                blocked = true;
                break;
            }
            let header = Header {
                seq,
                ack: tcb.rcv_nxt,
                control,
                window,
                mss: None,
            };
            let sent = match cut {
                Some(cut) => sender.send(port, tcb, &cut.take(len, header)),
                None => send_control(port, tcb, &header),
            };
            if sent.is_err() {
                blocked = true;
                break;
            }
            room -= 1;
            sender.counters.segments_sent += 1;
            sender.counters.bytes_sent += u64::from(len);
            if seq.before(tcb.snd_max) {
                sender.counters.retransmits += 1;
            } else if !tcb.flags.has(Flags::TIMING) {
                // Only what is sent for the first time is timed (Karn).
                tcb.flags.set(Flags::TIMING);
                tcb.rtt_seq = seq + len + fin;
                tcb.rtt_at = now.micros;
            }
            seq = seq + len + fin;
        }
        if seq != first {
            if tcb.flags.has(Flags::PERSIST) {
                tcb.flags.clear(Flags::PERSIST);
                (tcb.retries, tcb.backoff) = (0, 0);
            }
            self.commit(id, seq, window, now);
        }
        let tcb = &mut self.records[id as usize].tcb;
        if blocked {
            self.block(id);
        } else if tcb.snd_nxt == tcb.snd_una && !tcb.flags.has(Flags::PERSIST) {
            // Shut or too small, and nothing in flight whose ACK could tell
            // of it opening.
            self.start_probing(id, now);
        }
    }

    /// Everything before `seq` has been sent.
    #[inline(always)]
    fn commit(&mut self, id: u32, seq: Seq, window: u16, now: Moment) {
        let Record { tcb, congestion } = &mut self.records[id as usize];
        let was_idle = tcb.snd_nxt == tcb.snd_una;
        congestion.on_send(seq.since(tcb.snd_nxt), &tcb.event(now));
        tcb.has_told(window);
        tcb.has_sent_to(seq);
        if was_idle {
            // RFC 6298, 5.1.
            let rto = Self::rto(tcb);
            self.arm(id, now, rto);
        }
    }

    /// Sends the first unacknowledged segment again.
    #[cold]
    fn retransmit<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        let most = tcb.snd_max.since(tcb.snd_una).min(u32::from(tcb.mss));
        if most == 0 {
            tcb.flags.clear(Flags::RETRANSMIT);
            return;
        }
        if self.send_range(port, id, most).is_err() {
            self.block(id);
            return;
        }
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.clear(Flags::RETRANSMIT);
        tcb.flags.clear(Flags::TIMING);
        self.counters.retransmits += 1;
        let rto = Self::rto(&self.records[id as usize].tcb);
        self.arm(id, now, rto);
    }

    /// Sends at most `most` bytes from `snd_una` on, or the FIN that is
    /// there. Returns what that takes of sequence space.
    fn send_range<P: Port>(&mut self, port: &mut P, id: u32, most: u32) -> Result<u32, NoRoom> {
        if port.room() == 0 {
            return Err(NoRoom);
        }
        let tcb = &mut self.records[id as usize].tcb;
        let seq = tcb.snd_una;
        let window = window_to_tell(tcb, &self.buffers);
        let mut header = Header {
            seq,
            ack: tcb.rcv_nxt,
            control: Control::ACK,
            window,
            mss: None,
        };
        let mut len = 0;
        if let Some(cut) = Cut::at(tcb, seq) {
            len = cut.whole.min(most);
            if len == cut.place.left {
                header.control = header.control | Control::PSH;
            }
            // A FIN that was sent with this segment goes with it again.
            if seq + len == tcb.snd_end && tcb.snd_max == tcb.snd_end + 1 {
                header.control = header.control | Control::FIN;
            }
            let mut sender = Sender {
                app: &mut self.app,
                contents: &mut self.contents,
                writes: &self.writes,
                counters: &mut self.counters,
                mode: self.settings.mode,
            };
            sender.send(port, tcb, &cut.take(len, header))?;
        } else {
            debug_assert!(tcb.flags.has(Flags::CLOSE), "the stream ends here");
            header.control = header.control | Control::FIN;
            send_control(port, tcb, &header)?;
        }
        tcb.has_told(window);
        self.counters.segments_sent += 1;
        self.counters.bytes_sent += u64::from(len);
        Ok(len + u32::from(header.control.has(Control::FIN)))
    }

    /// The peer's window has no place for what is to be sent (RFC 9293,
    /// section 3.8.6.1).
    #[cold]
    fn start_probing(&mut self, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.set(Flags::PERSIST);
        tcb.flags.clear(Flags::TIMING);
        tcb.retries = 0;
        tcb.backoff = 0;
        let rto = Self::rto(tcb);
        self.arm(id, now, rto);
    }

    /// Sends as much as the window has place for; one octet, or the FIN, when
    /// it is shut.
    pub(crate) fn probe<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.retries = tcb.retries.saturating_add(1);
        tcb.backoff = tcb.backoff.saturating_add(1);
        let most = tcb.snd_wnd.max(1);
        let rto = Self::rto(tcb);
        self.arm(id, now, rto);
        // Without room the next timeout probes again.
        let Ok(taken) = self.send_range(port, id, most) else {
            return;
        };
        self.counters.window_probes += 1;
        let tcb = &mut self.records[id as usize].tcb;
        tcb.has_sent_to(tcb.snd_una + taken);
    }

    /// A header without data that acknowledges what has come.
    #[inline(always)]
    fn ack_header(&self, id: u32) -> Header {
        let tcb = &self.records[id as usize].tcb;
        let window = window_to_tell(tcb, &self.buffers);
        Header {
            seq: tcb.snd_max,
            ack: tcb.rcv_nxt,
            control: Control::ACK,
            window,
            mss: None,
        }
    }

    /// Acknowledges with the received frame itself.
    #[inline(always)]
    pub(crate) fn acknowledge<P: Port>(&mut self, port: &mut P, id: u32, packet: Packet) {
        let header = self.ack_header(id);
        let tcb = &mut self.records[id as usize].tcb;
        let ports = (tcb.own_port, tcb.peer_port);
        if turn_round(port, packet, &header, ports).is_ok() {
            tcb.has_told(header.window);
            self.counters.segments_sent += 1;
            self.counters.turned_round += 1;
        } else {
            tcb.flags.set(Flags::ACK);
            self.block(id);
        }
    }

    /// Acknowledges when no received frame is in hand.
    #[cold]
    pub(crate) fn acknowledge_from_scratch<P: Port>(&mut self, port: &mut P, id: u32) {
        let header = self.ack_header(id);
        let tcb = &mut self.records[id as usize].tcb;
        if send_control(port, tcb, &header).is_ok() {
            tcb.has_told(header.window);
            self.counters.segments_sent += 1;
        } else {
            tcb.flags.set(Flags::ACK);
            self.block(id);
        }
    }

    /// Sends what a full ring has held up.
    pub(crate) fn resume<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        self.transmit(port, id, now);
        if self.records[id as usize].tcb.flags.has(Flags::ACK) {
            self.acknowledge_from_scratch(port, id);
        }
    }

    /// The SYN-ACK of a half-open connection, which tells our MSS.
    pub(crate) fn syn_ack_header(&self, id: u32) -> Header {
        let tcb = &self.records[id as usize].tcb;
        let window = window_to_tell(tcb, &self.buffers);
        let family = Family::of(&tcb.path.addresses);
        Header {
            seq: tcb.snd_una,
            ack: tcb.rcv_nxt,
            control: Control::SYN | Control::ACK,
            window,
            mss: Some(self.own_mss.of(family)),
        }
    }

    /// Resets a connection, without waiting for room.
    #[cold]
    pub(crate) fn send_reset<P: Port>(&mut self, port: &mut P, id: u32) {
        let tcb = &self.records[id as usize].tcb;
        // Behind all that the peer may have received, so that it is in order
        // when that has arrived.
        let header = Header {
            seq: tcb.snd_max,
            ack: tcb.rcv_nxt,
            control: Control::RST | Control::ACK,
            window: 0,
            mss: None,
        };
        if send_control(port, tcb, &header).is_ok() {
            self.counters.segments_sent += 1;
            self.counters.resets_sent += 1;
        } else {
            self.counters.ring_full += 1;
        }
    }
}
