//! Builds and sends segments. This is the hot path.
//!
//! A [`Plan`] describes the next packet: its header fields, and a range of new or retransmitted
//! data in the send stream. If the range is a whole prepared segment, its payload checksum is
//! computed only once and stored. The payload of a prepared segment is copied to a frame
//! ([`SendMode::MemCopy`]) or sent in place ([`SendMode::PreCopy`]). A run of segments is sent as
//! one super-segment.
//!
//! If the port supports super-segments, several short stream entries in a row are sent as one run,
//! too. Their bytes are copied to a buffer, or to a frame if one segment holds them. Otherwise, each
//! entry would be a packet of its own.

use std::ops::Range;
use std::sync::Arc;

use ip::{Addresses, PROTOCOL_TCP, Packet, Sum};
use nmio::super_segment::{GsoType, MAX_OVER_V6};
use nmio::{Port, SendError, SuperSegment};

use crate::connection::conn::Context;
use crate::connection::{Plan, Tcb};
use crate::content::{Contents, MAX_SLOT_LEN, SendMode, Slot, payload_sum};
use crate::counters::Counters;
use crate::pools::LendingPool;
use crate::stream::Slice;
use crate::wire::{HEADER_LEN, Header, TIMESTAMPED_HEADER_LEN, TIMESTAMPS_LEN, Written};

/// No-operation options. They fill the space for timestamps in a resident packet if the connection
/// does not use timestamps.
const NO_OPERATIONS: [u8; TIMESTAMPS_LEN] = [1; TIMESTAMPS_LEN];
/// The checksum of [`NO_OPERATIONS`].
const NO_OPERATIONS_SUM: Sum = Sum::from_folded(0x0101 * (TIMESTAMPS_LEN / 2) as u16);

/// Maximum number of buffers for runs of several stream entries. They then occupy 4 MiB. An XDP port
/// passes as many super-segments to the kernel in one system call.
const MAX_JOIN_BUFFERS: usize = 64;

/// Writes the bytes of a slot: see [`Application::render`](crate::Application::render).
pub(crate) trait Render {
    fn render(&mut self, params: u64, slot: &mut [u8]);
}

/// Error: the segment was not sent, because the TX ring is full or the frame pool is empty.
#[derive(Debug)]
pub(crate) struct NoRoom;

/// The parts of the stack, other than the connection, that are needed to send a segment.
pub(crate) struct Emitter<'a, R> {
    app: &'a mut R,
    contents: &'a mut Contents,
    writes: &'a LendingPool<Vec<u8>>,
    /// Buffers for runs of several stream entries. A buffer is in use while a super-segment shares
    /// it. The number of buffers grows to its greatest use so far.
    buffers: &'a mut Vec<Arc<[u8]>>,
    mode: SendMode,
}

/// Returns the checksum of a segment of `tcb`. `options_len` is the length of the options that
/// follow `header`, and `len` is the length of the data. `rest` is the sum of the options and the
/// data.
#[inline(always)]
fn checksum(tcb: &Tcb, header: &Header, options_len: usize, len: usize, rest: Sum) -> u16 {
    let (sum, ..) = tcb.ends();
    sum.word((header.len() + options_len + len) as u16)
        .add(header.sum(options_len))
        .add(rest)
        .finish()
}

/// Renders the part of the slot that overlaps `payload`, and returns the checksum of the rendered
/// bytes. The first byte of `payload` is at offset `start` of the content item.
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

/// Like [`render`], for a resident packet, most of which have the rendered bytes already. Returns the
/// folded checksum.
#[inline(never)]
fn render_anew<R: Render>(
    app: &mut R,
    slot: Option<Slot>,
    params: [u32; 2],
    start: usize,
    payload: &mut [u8],
) -> u16 {
    render(app, slot, params, start, payload).fold()
}

/// Joins the upper and the lower half of a response's parameters.
#[inline(always)]
fn join_params([upper, lower]: [u32; 2]) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}

/// Renders the part of a slot that starts at offset `from` of the content item.
#[inline(always)]
fn render_at<R: Render>(app: &mut R, slot: Slot, params: [u32; 2], from: usize, part: &mut [u8]) {
    if part.len() == slot.len as usize {
        app.render(join_params(params), part);
    } else {
        render_part(app, slot, params, from, part);
    }
}

/// Renders the whole slot to a temporary buffer, and copies the requested part.
#[cold]
fn render_part<R: Render>(app: &mut R, slot: Slot, params: [u32; 2], from: usize, part: &mut [u8]) {
    let mut rendered = [0; MAX_SLOT_LEN];
    app.render(join_params(params), &mut rendered[..slot.len as usize]);
    part.copy_from_slice(&rendered[from - slot.offset as usize..][..part.len()]);
}

/// Returns the bytes and the slot of a slice's content item or write buffer.
#[inline(always)]
fn source<'a>(
    contents: &'a Contents,
    writes: &'a LendingPool<Vec<u8>>,
    slice: &Slice,
) -> (&'a [u8], Option<Slot>) {
    if let Some(buffer) = slice.source.buffer() {
        (&*writes[buffer], None)
    } else {
        let (bytes, slot) = contents.get(slice.source.content_index());
        (&**bytes, slot)
    }
}

/// Returns a buffer that is not in use, or `None` if all [`MAX_JOIN_BUFFERS`] are in use.
fn unused_buffer(buffers: &mut Vec<Arc<[u8]>>) -> Option<&mut Arc<[u8]>> {
    let is_unused = |buffer: &Arc<[u8]>| Arc::strong_count(buffer) == 1;
    let index = buffers.iter().position(is_unused);
    let index = index.unwrap_or(buffers.len());
    if index == buffers.len() && index < MAX_JOIN_BUFFERS {
        buffers.push(Arc::from(vec![0; MAX_OVER_V6]));
    }
    buffers.get_mut(index)
}

impl<'a, R: Render> Emitter<'a, R> {
    #[inline(always)]
    pub(crate) fn new(
        app: &'a mut R,
        contents: &'a mut Contents,
        writes: &'a LendingPool<Vec<u8>>,
        buffers: &'a mut Vec<Arc<[u8]>>,
        mode: SendMode,
    ) -> Self {
        Self {
            app,
            contents,
            writes,
            buffers,
            mode,
        }
    }

    /// Reborrows the emitter for a call that is not inlined, so that `self` can stay in registers.
    #[inline(always)]
    fn reborrow(&mut self) -> Emitter<'_, R> {
        Emitter {
            app: self.app,
            contents: self.contents,
            writes: self.writes,
            buffers: self.buffers,
            mode: self.mode,
        }
    }

    /// Sends the planned segment or run of segments, and updates the counters.
    ///
    /// Functions that are not inlined get a copy of the plan, so that the plan itself can stay in
    /// registers.
    #[inline(always)]
    pub(crate) fn send<P: Port, C>(
        &mut self,
        port: &mut P,
        tcb: &Tcb,
        plan: Plan,
        cx: &mut Context<C>,
    ) -> Result<(), NoRoom> {
        if plan.len == 0 {
            let header = plan.header;
            send_control(port, tcb, &header, &Written::default())?;
        } else if plan.is_run {
            let run = plan;
            self.reborrow().send_run(port, tcb, &run, cx)?;
        } else {
            self.send_segment(port, tcb, plan, &mut cx.counters)?;
        }
        cx.counters.segments_sent += 1;
        cx.counters.bytes_sent += u64::from(plan.len);
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
                // Resident packets have no room for a VLAN tag.
                if self.mode == SendMode::PreCopy && tcb.path.link.vlan.is_none() {
                    return self.send_resident(port, tcb, plan, (segment, sum), counters);
                }
                return self.send_copy(port, tcb, plan, sum, counters);
            }
        }
        let assembled = plan;
        self.reborrow().send_assembled(port, tcb, &assembled)?;
        counters.sent_assembled += 1;
        Ok(())
    }

    /// Sends a run of segments as one super-segment. The bytes of a content item are not copied.
    #[inline(never)]
    fn send_run<P: Port, C>(
        self,
        port: &mut P,
        tcb: &Tcb,
        plan: &Plan,
        cx: &mut Context<C>,
    ) -> Result<(), NoRoom> {
        if plan.len > plan.slice.len {
            return self.send_joined(port, tcb, plan, cx);
        }
        let (bytes, slot) = self.contents.get(plan.slice.source.content_index());
        let (start, len) = (plan.slice.from as usize, plan.len as usize);
        let mut packet = super_segment(tcb, plan, bytes, start..start + len);
        if let Some(slot) = slot
            && let Some((from, to)) = slot.within(start, start + len)
        {
            let part = packet.patch_mut(from - start, to - from);
            render_at(self.app, slot, plan.slice.params, from, part);
        }
        send_super(port, packet, &mut cx.counters)
    }

    /// Sends a run of several whole stream entries.
    fn send_joined<P: Port, C>(
        self,
        port: &mut P,
        tcb: &Tcb,
        plan: &Plan,
        cx: &mut Context<C>,
    ) -> Result<(), NoRoom> {
        let (app, contents, writes) = (self.app, &*self.contents, self.writes);
        let mut join = |payload: &mut [u8]| {
            let (mut rest, mut seq) = (payload, plan.header.seq);
            while !rest.is_empty() {
                let slice = tcb.stream.locate(seq, &cx.lists);
                let slice = slice.expect("the stream contains the whole run");
                let (part, after) = rest.split_at_mut(slice.len as usize);
                let (bytes, slot) = source(contents, writes, &slice);
                let start = slice.from as usize;
                part.copy_from_slice(&bytes[start..start + part.len()]);
                render(app, slot, slice.params, start, part);
                (rest, seq) = (after, seq + slice.len);
            }
        };
        let len = plan.len as usize;
        if len <= usize::from(tcb.mss) {
            send_frame(port, tcb, plan, |payload| {
                join(payload);
                Sum::of(payload)
            })?;
            cx.counters.sent_assembled += 1;
            return Ok(());
        }
        let buffer = unused_buffer(self.buffers).ok_or(NoRoom)?;
        join(&mut Arc::get_mut(buffer).ok_or(NoRoom)?[..len]);
        let packet = super_segment(tcb, plan, buffer, 0..len);
        send_super(port, packet, &mut cx.counters)
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
        let Some((mut packet, rendered, slot)) = resident else {
            counters.resident_fallbacks += 1;
            return self.send_copy(port, tcb, plan, sum, counters);
        };
        let len = plan.len as usize;
        let tcp_len = TIMESTAMPED_HEADER_LEN + len;
        let path = &tcb.path;
        let bytes: &mut [u8] = &mut packet;
        let at = path.patch_marked(bytes, PROTOCOL_TCP, tcp_len, plan.ecn);
        let tcp = &mut bytes[at..];
        let (header, payload) = tcp
            .split_first_chunk_mut::<TIMESTAMPED_HEADER_LEN>()
            .expect("a resident packet holds its header");
        let (params, start) = (plan.slice.params, plan.slice.from as usize);
        let part = match *rendered {
            // The slot still has these bytes.
            Some((last, sum)) if last == params => sum,
            _ => {
                let sum = render_anew(self.app, slot, params, start, payload);
                *rendered = Some((params, sum));
                sum
            }
        };
        let mut sum = sum.add(Sum::from_folded(part));
        // Without timestamps, no-operation options fill the reserved space.
        let mut options_len = 0;
        if plan.header.timestamps.is_none() {
            options_len = TIMESTAMPS_LEN;
            header[HEADER_LEN..].copy_from_slice(&NO_OPERATIONS);
            sum = sum.add(NO_OPERATIONS_SUM);
        }
        let checksum = checksum(tcb, &plan.header, options_len, len, sum);
        plan.header
            .write(header, tcb.ports(), checksum, options_len);
        port.send_resident(packet).map_err(|_| NoRoom)?;
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
        let (start, len) = (plan.slice.from as usize, plan.len as usize);
        let (bytes, slot) = self.contents.get(plan.slice.source.content_index());
        let bytes = &bytes[start..start + len];
        let mut frame = port.pool().take().ok_or(NoRoom)?;
        let header_len = plan.header.len();
        frame.set_len(tcb.path.header_len() + header_len + len);
        let (path, packet): (_, &mut [u8]) = (&tcb.path, &mut frame);
        let at = path.write_marked(packet, PROTOCOL_TCP, header_len + len, plan.ecn);
        let (header, payload) = packet[at..].split_at_mut(header_len);
        payload.copy_from_slice(bytes);
        let sum = sum.add(render(self.app, slot, plan.slice.params, start, payload));
        let checksum = checksum(tcb, &plan.header, 0, len, sum);
        plan.header.write(header, tcb.ports(), checksum, 0);
        port.send(frame).map_err(|_| NoRoom)?;
        counters.sent_copied += 1;
        Ok(())
    }

    /// Assembles and sends a segment from any range of a content item or write buffer.
    #[inline(never)]
    fn send_assembled<P: Port>(self, port: &mut P, tcb: &Tcb, plan: &Plan) -> Result<(), NoRoom> {
        let (bytes, slot) = source(self.contents, self.writes, &plan.slice);
        let (start, end) = (
            plan.slice.from as usize,
            (plan.slice.from + plan.len) as usize,
        );
        send_frame(port, tcb, plan, |payload| {
            payload.copy_from_slice(&bytes[start..end]);
            let rendered = render(self.app, slot, plan.slice.params, start, payload);
            payload_sum(bytes, slot, start, end).add(rendered)
        })
    }
}

/// Makes a super-segment with the headers of the planned run and the payload `bytes[range]`.
#[inline(always)]
fn super_segment(tcb: &Tcb, plan: &Plan, bytes: &Arc<[u8]>, range: Range<usize>) -> SuperSegment {
    let (at, header_len) = (tcb.path.header_len(), plan.header.len());
    let gso_type = match tcb.path.addresses {
        Addresses::V4 { .. } => GsoType::TcpV4,
        Addresses::V6 { .. } => GsoType::TcpV6,
    };
    let tcp_len = header_len + range.len();
    let mut packet = SuperSegment::new(gso_type, tcb.mss, (at + header_len, at), bytes, range);
    let header = packet.headers_mut();
    tcb.path
        .write_marked(header, PROTOCOL_TCP, tcp_len, plan.ecn);
    let pseudo = tcb.path.addresses.pseudo_sum(PROTOCOL_TCP, tcp_len).fold();
    plan.header.write(&mut header[at..], tcb.ports(), pseudo, 0);
    packet
}

/// Sends a super-segment and counts it.
#[inline(always)]
fn send_super<P: Port>(
    port: &mut P,
    packet: SuperSegment,
    counters: &mut Counters,
) -> Result<(), NoRoom> {
    let segments = packet.segments() as u64;
    port.send_super(packet).map_err(|_| NoRoom)?;
    counters.super_segments_sent += 1;
    counters.sent_in_super_segments += segments;
    // `send` counts the run as one segment, so this function counts the other segments.
    counters.segments_sent += segments - 1;
    Ok(())
}

/// Takes a frame from the pool, and sends a data segment in it. `fill` writes the data, and returns
/// its checksum. [`Emitter::send_copy`] does the same with a plan that stays in registers.
fn send_frame<P: Port>(
    port: &mut P,
    tcb: &Tcb,
    plan: &Plan,
    fill: impl FnOnce(&mut [u8]) -> Sum,
) -> Result<(), NoRoom> {
    let (header_len, len) = (plan.header.len(), plan.len as usize);
    let mut frame = port.pool().take().ok_or(NoRoom)?;
    frame.set_len(tcb.path.header_len() + header_len + len);
    let (path, packet): (_, &mut [u8]) = (&tcb.path, &mut frame);
    let at = path.write_marked(packet, PROTOCOL_TCP, header_len + len, plan.ecn);
    let (header, payload) = packet[at..].split_at_mut(header_len);
    let sum = fill(payload);
    let checksum = checksum(tcb, &plan.header, 0, len, sum);
    plan.header.write(header, tcb.ports(), checksum, 0);
    port.send(frame).map_err(|_| NoRoom)
}

/// Takes a frame from the pool, and sends a segment without data in it.
pub(crate) fn send_control<P: Port>(
    port: &mut P,
    tcb: &Tcb,
    header: &Header,
    options: &Written,
) -> Result<(), NoRoom> {
    let mut frame = port.pool().take().ok_or(NoRoom)?;
    let len = header.len() + options.len();
    frame.set_len(tcb.path.header_len() + len);
    let at = tcb.path.write(&mut frame, PROTOCOL_TCP, len);
    let sum = options.write(&mut frame[at + header.len()..]);
    let checksum = checksum(tcb, header, options.len(), 0, sum);
    header.write(&mut frame[at..], tcb.ports(), checksum, options.len());
    port.send(frame).map_err(|_| NoRoom)
}

/// Writes a segment without data into the received frame, and sends the frame back. The addresses
/// and ports come from the sent segment. `sum` is their sum and the protocol's, as in [`Tcb`].
#[inline(always)]
pub(crate) fn turn_around<P: Port>(
    port: &mut P,
    mut packet: Packet,
    header: &Header,
    options: &Written,
    (sum, addresses, ports): (Sum, Addresses, (u16, u16)),
) -> Result<(), SendError> {
    let len = header.len() + options.len();
    let mut sum = sum.word(len as u16).add(header.sum(options.len()));
    packet.set_payload_len(len);
    let payload = packet.payload_mut();
    if !options.is_empty() {
        sum = sum.add(options.write(&mut payload[header.len()..]));
    }
    header.write(payload, ports, sum.finish(), options.len());
    port.send(packet.turn_around_to(addresses, PROTOCOL_TCP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_when_its_super_segment_is_gone() {
        let mut buffers = Vec::new();
        let first = unused_buffer(&mut buffers).unwrap().clone();
        let second = unused_buffer(&mut buffers).unwrap().clone();
        assert!(!Arc::ptr_eq(&first, &second));
        let address = first.as_ptr();
        drop(first);
        for _ in 0..2 {
            assert_eq!(unused_buffer(&mut buffers).unwrap().as_ptr(), address);
        }
        assert_eq!(buffers.len(), 2);
    }

    #[test]
    fn the_number_of_buffers_is_bounded() {
        let mut buffers = Vec::new();
        let in_use: Vec<_> = (0..MAX_JOIN_BUFFERS)
            .map(|_| unused_buffer(&mut buffers).unwrap().clone())
            .collect();
        assert!(unused_buffer(&mut buffers).is_none());
        drop(in_use);
        assert!(unused_buffer(&mut buffers).is_some());
    }
}
