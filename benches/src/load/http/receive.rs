//! Segments of the server.

use nmio::{Instant, Port};

use super::client::{Client, RESPONSE_LIMIT, send};
use super::connection::{Flags, State, WINDOW};
use super::error;
use crate::load::tcp::{ACK, FIN, Fields, NOBODY, Negotiated, RST, SYN, Segment, before};

impl Client {
    /// A segment to connection `id` (RFC 9293, section 3.10.7); `payload`
    /// begins with its header.
    #[inline(always)]
    pub(super) fn handle_segment<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        segment: &Segment,
        payload: &[u8],
        now: Instant,
    ) {
        let connection = &mut self.connections[id as usize];
        if connection.state == State::Opening {
            return self.handle_opening(port, id, segment, &payload[..segment.data_at], now);
        }
        if segment.control & (ACK | SYN | RST) != ACK {
            return self.handle_control(port, id, segment);
        }
        let in_flight = connection.snd_nxt.wrapping_sub(connection.snd_una);
        let acked = segment.ack.wrapping_sub(connection.snd_una);
        if acked <= in_flight {
            connection.snd_una = segment.ack;
            connection.snd_wnd = u32::from(segment.window) << connection.window_scale;
            if acked > 0 {
                connection.tries = 0;
            } else if connection.flags.has(Flags::REQUEST) {
                // Perhaps the window that it waits for.
                self.queue(id, Flags::REQUEST);
            }
        } else if before(connection.snd_nxt, segment.ack) {
            // It acknowledges what was never sent.
            return self.queue(id, Flags::ACK);
        }
        if segment.len > 0 || segment.has(FIN) {
            let data = &payload[segment.data_at..];
            self.handle_data(port, id, segment, data, now);
        }
        let connection = &self.connections[id as usize];
        if connection.is_over() && !connection.flags.has(Flags::ACK) {
            self.release(id);
        }
    }

    /// SYN-SENT (RFC 9293, section 3.10.7.3).
    fn handle_opening<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        segment: &Segment,
        header: &[u8],
        now: Instant,
    ) {
        let connection = &mut self.connections[id as usize];
        if segment.has(ACK) && segment.ack != connection.snd_nxt {
            // The server still has a connection that we have forgotten.
            if !segment.has(RST) {
                let mut fields = connection.fields(&self.addresses, segment.ack);
                fields.ack = 0;
                send(port, &self.packets.reset, &fields);
            }
            return;
        }
        if segment.has(RST) {
            if segment.has(ACK) {
                self.fail_silently(id, error::REFUSED);
            }
            return;
        }
        if segment.control & (SYN | ACK) != SYN | ACK {
            return;
        }
        let negotiated = Negotiated::read(header);
        connection.tries = 0;
        connection.snd_una = segment.ack;
        connection.snd_wnd = u32::from(segment.window);
        connection.rcv_nxt = segment.seq.wrapping_add(1);
        connection.rcv_acked = connection.rcv_nxt;
        if let Some(shift) = negotiated.window_scale {
            connection.window_scale = shift;
            connection.flags.set(Flags::SCALED);
        }
        if negotiated.sack {
            connection.flags.set(Flags::SACK);
        }
        if u32::from(negotiated.mss) < self.longest_request {
            return self.fail(port, id, error::SMALL_SEGMENTS);
        }
        connection.state = State::Open;
        self.handle_established(id, now);
    }

    /// A segment with SYN or RST, or without ACK, to an open connection.
    #[cold]
    fn handle_control<P: Port>(&mut self, port: &mut P, id: u32, segment: &Segment) {
        let connection = &self.connections[id as usize];
        let expected = segment.seq == connection.rcv_nxt;
        if segment.has(RST) {
            // RFC 5961, section 3.2: any other place in the window is asked
            // about.
            if expected {
                self.fail_silently(id, error::RESET);
            } else if segment.seq.wrapping_sub(connection.rcv_nxt) < WINDOW {
                self.acknowledge_now(port, id);
            }
        } else if segment.has(SYN) {
            // Our acknowledgement of the SYN was lost (or RFC 5961, section 4).
            self.acknowledge_now(port, id);
        }
    }

    /// Data, or a FIN.
    #[inline(always)]
    fn handle_data<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        segment: &Segment,
        data: &[u8],
        now: Instant,
    ) {
        let limit_at = self.now_ms + RESPONSE_LIMIT;
        let connection = &mut self.connections[id as usize];
        if connection.state == State::Closing {
            return self.handle_late_data(port, id, segment);
        }
        let known = connection.rcv_nxt.wrapping_sub(segment.seq);
        if known.cast_signed() < 0 {
            return self.handle_out_of_order(port, id, segment, data);
        }
        let fin = segment.has(FIN);
        if known > segment.len || (known == segment.len && !fin) {
            // All of it is known: our acknowledgement was lost.
            return self.acknowledge_now(port, id);
        }
        if connection.flags.has(Flags::BUSY) {
            connection.limit_at = limit_at;
        }
        let end = segment.seq.wrapping_add(segment.len);
        let data = &data[known as usize..];
        let alive = if connection.trouble == NOBODY {
            data.is_empty() || self.deliver(port, id, data, now)
        } else {
            self.fill_hole(port, id, data, now)
        };
        let connection = &self.connections[id as usize];
        if alive && fin && connection.state == State::Open && connection.rcv_nxt == end {
            self.handle_fin(id);
        } else if alive {
            self.queue(id, 0);
        }
    }

    /// Data or a FIN when nobody waits for it any more.
    #[cold]
    fn handle_late_data<P: Port>(&mut self, port: &mut P, id: u32, segment: &Segment) {
        let connection = &mut self.connections[id as usize];
        let end = segment.seq.wrapping_add(segment.len);
        let all_known = !before(connection.rcv_nxt, end);
        if connection.flags.has(Flags::FIN_RECEIVED) || (all_known && !segment.has(FIN)) {
            self.queue(id, Flags::ACK);
        } else if all_known && end == connection.rcv_nxt {
            self.handle_fin(id);
        } else {
            // RFC 9293, section 3.10.7.1: as if there were no connection.
            self.reset(port, id);
            self.release(id);
        }
    }

    /// Something before this segment is missing.
    #[cold]
    fn handle_out_of_order<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        segment: &Segment,
        data: &[u8],
    ) {
        let connection = &mut self.connections[id as usize];
        let start = segment.seq.wrapping_sub(connection.rcv_nxt);
        // Only what belongs to the body that is being received can be kept by
        // its checksum.
        let fits = connection.flags.has(Flags::BODY)
            && start < WINDOW
            && u64::from(start) + u64::from(segment.len) <= u64::from(connection.body_left);
        if fits && let Some(trouble) = self.troubles.enter(&mut connection.trouble) {
            trouble.ranges.add(segment.seq, data);
            if segment.has(FIN) {
                trouble.fin = Some(segment.seq.wrapping_add(segment.len));
            }
        }
        self.acknowledge_now(port, id);
    }

    /// Data in order on a connection that has holes, or a part of a head.
    /// False when the connection has ended.
    #[cold]
    fn fill_hole<P: Port>(&mut self, port: &mut P, id: u32, mut data: &[u8], now: Instant) -> bool {
        loop {
            let connection = &mut self.connections[id as usize];
            let Some(trouble) = self.troubles.get_mut(connection.trouble) else {
                return data.is_empty() || self.deliver(port, id, data, now);
            };
            let rcv_nxt = connection.rcv_nxt;
            if let Some((len, crc)) = trouble.ranges.take_at(rcv_nxt) {
                if !self.deliver_range(port, id, len, crc, now) {
                    return false;
                }
                data = data.get(len as usize..).unwrap_or(&[]);
            } else if data.is_empty() {
                return self.leave_trouble(id);
            } else {
                let hole = (trouble.ranges.first()).map_or(u32::MAX, |at| at.wrapping_sub(rcv_nxt));
                let (piece, rest) = data.split_at(data.len().min(hole as usize));
                data = rest;
                // RFC 5681, section 4.2: what fills a hole is acknowledged at
                // once.
                connection.flags.set(Flags::ACK);
                if !self.deliver(port, id, piece, now) {
                    return false;
                }
            }
        }
    }

    /// Leaves the side table when there are no holes any more. False when the
    /// server has closed behind them.
    fn leave_trouble(&mut self, id: u32) -> bool {
        let connection = &mut self.connections[id as usize];
        let Some(trouble) = self.troubles.get(connection.trouble) else {
            return true;
        };
        let rcv_nxt = connection.rcv_nxt;
        let more = trouble.fin.is_some_and(|fin| before(rcv_nxt, fin));
        if more || !trouble.ranges.is_empty() || !trouble.head.is_empty() {
            return true;
        }
        let fin = trouble.fin == Some(rcv_nxt);
        self.troubles.leave(&mut connection.trouble);
        if fin {
            self.handle_fin(id);
        }
        !fin
    }

    /// A segment to no connection (RFC 9293, section 3.10.7.1): to a FIN the
    /// answer is what TIME-WAIT's would be, as this client has no such state.
    #[cold]
    pub(super) fn handle_stray<P: Port>(&self, port: &mut P, address: usize, segment: &Segment) {
        let fields = Fields {
            src: self.addresses[address],
            src_port: segment.dst_port,
            seq: segment.ack,
            ack: (segment.seq)
                .wrapping_add(segment.len)
                .wrapping_add(u32::from(segment.has(FIN)))
                .wrapping_add(u32::from(segment.has(SYN))),
            window: 0,
        };
        if segment.has(RST) {
            return;
        }
        let packet = if segment.control & (FIN | SYN | ACK) == FIN | ACK {
            &self.packets.ack
        } else if segment.len == 0 && !segment.has(SYN) {
            return;
        } else if segment.has(ACK) {
            let fields = Fields { ack: 0, ..fields };
            send(port, &self.packets.reset, &fields);
            return;
        } else {
            &self.packets.reset_ack
        };
        let seq = if segment.has(ACK) { fields.seq } else { 0 };
        send(port, packet, &Fields { seq, ..fields });
    }
}
