//! Making segments: the hot path.
//!
//! A [`Plan`] names a place of the stream, for new data and lost data alike. A
//! whole prepared segment leaves by patching: its payload is not read, only
//! copied ([`Mode::MemCopy`]) or not even that ([`Mode::PreCopy`]).

use ip::{Addresses, PROTOCOL_TCP, Packet, Sum};
use nmio::{Port, SendError, SuperSegment, super_segment};

use crate::connection::{Plan, Tcb};
use crate::content::{Contents, MAX_SLOT_LEN, Mode, Slot, payload_sum};
use crate::counters::Counters;
use crate::wire::{HEADER_LEN, Header, TIMESTAMPED_HEADER_LEN, TIMESTAMPS_LEN, Written};
use crate::writes::Writes;

/// What fills the place of timestamps in a prepared segment where there are
/// none: no-operations.
const NO_OPERATIONS: [u8; TIMESTAMPS_LEN] = [1; TIMESTAMPS_LEN];
/// What they add to a checksum.
const NO_OPERATIONS_SUM: Sum = Sum::from_folded(0x0101 * (TIMESTAMPS_LEN / 2) as u16);

/// What writes the bytes of a slot: see
/// [`Application::render`](crate::Application::render).
pub(crate) trait Render {
    fn render(&mut self, params: u64, slot: &mut [u8]);
}

/// The ring or the pool has no room: try again later.
#[derive(Debug)]
pub(crate) struct NoRoom;

/// What sending needs of the stack, beside the connection.
pub(crate) struct Emitter<'a, R> {
    app: &'a mut R,
    contents: &'a mut Contents,
    writes: &'a Writes,
    mode: Mode,
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
fn render<R: Render>(
    app: &mut R,
    slot: Option<Slot>,
    params: [u32; 2],
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
    render_at(app, slot, params, from, part);
    Sum::ZERO.add_at(Sum::of(part), from - start)
}

/// Parameters of a response, from their upper half and their lower.
#[inline(always)]
fn whole([upper, lower]: [u32; 2]) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}

/// Renders the part of a slot that begins at `from` of its content.
#[inline(always)]
fn render_at<R: Render>(app: &mut R, slot: Slot, params: [u32; 2], from: usize, part: &mut [u8]) {
    if part.len() == slot.len as usize {
        app.render(whole(params), part);
    } else {
        render_part(app, slot, params, from, part);
    }
}

/// The same of less than the whole slot.
#[cold]
fn render_part<R: Render>(app: &mut R, slot: Slot, params: [u32; 2], from: usize, part: &mut [u8]) {
    let mut rendered = [0; MAX_SLOT_LEN];
    app.render(whole(params), &mut rendered[..slot.len as usize]);
    part.copy_from_slice(&rendered[from - slot.offset as usize..][..part.len()]);
}

impl<'a, R: Render> Emitter<'a, R> {
    #[inline(always)]
    pub(crate) fn new(
        app: &'a mut R,
        contents: &'a mut Contents,
        writes: &'a Writes,
        mode: Mode,
    ) -> Self {
        Self {
            app,
            contents,
            writes,
            mode,
        }
    }

    /// The same for a call that is not inlined, so that this one can stay in
    /// registers.
    #[inline(always)]
    fn reborrow(&mut self) -> Emitter<'_, R> {
        Emitter {
            app: self.app,
            contents: self.contents,
            writes: self.writes,
            mode: self.mode,
        }
    }

    /// Sends what is planned, and counts it.
    #[inline(always)]
    pub(crate) fn send<P: Port>(
        &mut self,
        port: &mut P,
        tcb: &Tcb,
        plan: Plan,
        counters: &mut Counters,
    ) -> Result<(), NoRoom> {
        if plan.len == 0 {
            send_control(port, tcb, &plan.header, &Written::default())?;
        } else if plan.is_run {
            self.reborrow().send_run(port, tcb, plan, counters)?;
        } else {
            self.send_segment(port, tcb, plan, counters)?;
        }
        counters.segments_sent += 1;
        counters.bytes_sent += u64::from(plan.len);
        Ok(())
    }

    #[inline(always)]
    fn send_segment<P: Port>(
        &mut self,
        port: &mut P,
        tcb: &Tcb,
        plan: Plan,
        counters: &mut Counters,
    ) -> Result<(), NoRoom> {
        if let Some(segment) = plan.prepared {
            let index = plan.slice.source.content_index();
            let sum = self.contents.sum(index, tcb.class, segment);
            if let Some(sum) = sum {
                let sum = Sum::from_folded(sum);
                // Prepared packets have no place for a tag.
                if self.mode == Mode::PreCopy && tcb.path.link.vlan.is_none() {
                    return self.send_resident(port, tcb, plan, (segment, sum), counters);
                }
                return self.send_copy(port, tcb, plan, sum, counters);
            }
        }
        self.reborrow().send_assembled(port, tcb, plan)?;
        counters.sent_assembled += 1;
        Ok(())
    }

    /// Sends a run of segments as one packet. Its payload is neither read nor
    /// copied here.
    #[inline(never)]
    fn send_run<P: Port>(
        self,
        port: &mut P,
        tcb: &Tcb,
        plan: Plan,
        counters: &mut Counters,
    ) -> Result<(), NoRoom> {
        let (bytes, slot) = self.contents.get(plan.slice.source.content_index());
        let (start, len) = (plan.slice.from as usize, plan.len as usize);
        let (at, header_len) = (tcb.path.header_len(), plan.header.len());
        let cut = match tcb.path.addresses {
            Addresses::V4 { .. } => super_segment::Cut::TcpV4,
            Addresses::V6 { .. } => super_segment::Cut::TcpV6,
        };
        let headers = (at + header_len, at);
        let range = start..start + len;
        let mut packet = SuperSegment::new(cut, tcb.mss, headers, bytes, range);
        let header = packet.headers_mut();
        let tcp_len = header_len + len;
        tcb.path
            .write_marked(header, PROTOCOL_TCP, tcp_len, plan.ecn);
        let pseudo = tcb.path.addresses.pseudo_sum(PROTOCOL_TCP, tcp_len).fold();
        plan.header.write(&mut header[at..], tcb.ports(), pseudo, 0);
        if let Some(slot) = slot
            && let Some((from, to)) = slot.within(start, start + len)
        {
            let part = packet.patch_mut(from - start, to - from);
            render_at(self.app, slot, plan.slice.params, from, part);
        }
        let segments = packet.segments() as u64;
        port.send_super(packet).map_err(|_| NoRoom)?;
        counters.sent_runs += 1;
        // The run itself is counted as a segment, as all that is sent.
        counters.segments_sent += segments - 1;
        Ok(())
    }

    #[inline(always)]
    fn send_resident<P: Port>(
        &mut self,
        port: &mut P,
        tcb: &Tcb,
        plan: Plan,
        (segment, sum): (u32, Sum),
        counters: &mut Counters,
    ) -> Result<(), NoRoom> {
        let index = plan.slice.source.content_index();
        let resident = self
            .contents
            .resident(index, tcb.class, segment, port.pool());
        let Some((resident, slot)) = resident else {
            counters.resident_fallbacks += 1;
            return self.send_copy(port, tcb, plan, sum, counters);
        };
        let len = plan.len as usize;
        let packet = resident.bytes_mut().ok_or(NoRoom)?;
        let tcp_len = TIMESTAMPED_HEADER_LEN + len;
        tcb.path
            .patch_marked(packet, PROTOCOL_TCP, tcp_len, plan.ecn);
        let tcp = &mut packet[tcb.path.header_len()..];
        let (header, payload) = tcp.split_at_mut(TIMESTAMPED_HEADER_LEN);
        let start = plan.slice.from as usize;
        let mut sum = sum.add(render(self.app, slot, plan.slice.params, start, payload));
        // Without timestamps their place is filled with no-operations.
        let mut more = 0;
        if plan.header.timestamps.is_none() {
            more = TIMESTAMPS_LEN;
            header[HEADER_LEN..].copy_from_slice(&NO_OPERATIONS);
            sum = sum.add(NO_OPERATIONS_SUM);
        }
        let checksum = checksum(tcb, &plan.header, more, len, sum);
        plan.header.write(header, tcb.ports(), checksum, more);
        port.send_resident(resident).map_err(|_| NoRoom)?;
        counters.sent_resident += 1;
        Ok(())
    }

    #[inline(always)]
    fn send_copy<P: Port>(
        &mut self,
        port: &mut P,
        tcb: &Tcb,
        plan: Plan,
        sum: Sum,
        counters: &mut Counters,
    ) -> Result<(), NoRoom> {
        let len = plan.len as usize;
        let mut frame = port.pool().take().ok_or(NoRoom)?;
        let header_len = plan.header.len();
        frame.set_len(tcb.path.header_len() + header_len + len);
        let path = &tcb.path;
        let at = path.write_marked(&mut frame, PROTOCOL_TCP, header_len + len, plan.ecn);
        let (header, payload) = frame[at..].split_at_mut(header_len);
        let (bytes, slot) = self.contents.get(plan.slice.source.content_index());
        let start = plan.slice.from as usize;
        payload.copy_from_slice(&bytes[start..start + len]);
        let sum = sum.add(render(self.app, slot, plan.slice.params, start, payload));
        let checksum = checksum(tcb, &plan.header, 0, len, sum);
        plan.header.write(header, tcb.ports(), checksum, 0);
        port.send(frame).map_err(|_| NoRoom)?;
        counters.sent_copied += 1;
        Ok(())
    }

    /// The general path: any range of any source, on any link.
    #[inline(never)]
    fn send_assembled<P: Port>(self, port: &mut P, tcb: &Tcb, plan: Plan) -> Result<(), NoRoom> {
        let (bytes, slot) = if let Some(buffer) = plan.slice.source.buffer() {
            (&*self.writes[buffer], None)
        } else {
            let (bytes, slot) = self.contents.get(plan.slice.source.content_index());
            (&**bytes, slot)
        };
        let (start, len) = (plan.slice.from as usize, plan.len as usize);
        let mut frame = port.pool().take().ok_or(NoRoom)?;
        let header_len = plan.header.len();
        frame.set_len(tcb.path.header_len() + header_len + len);
        let path = &tcb.path;
        let at = path.write_marked(&mut frame, PROTOCOL_TCP, header_len + len, plan.ecn);
        let (header, payload) = frame[at..].split_at_mut(header_len);
        payload.copy_from_slice(&bytes[start..start + len]);
        let sum = payload_sum(bytes, slot, start, start + len).add(render(
            self.app,
            slot,
            plan.slice.params,
            start,
            payload,
        ));
        let checksum = checksum(tcb, &plan.header, 0, len, sum);
        plan.header.write(header, tcb.ports(), checksum, 0);
        port.send(frame).map_err(|_| NoRoom)?;
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
