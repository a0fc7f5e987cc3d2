//! Processing of the server's segments.

use nmio::{Instant, Port};

use super::client::{Client, RESPONSE_LIMIT};
use super::connection::{Flags, State, WINDOW};
use super::error;
use crate::load::tcp::{ACK, FIN, Fields, Negotiated, RST, SYN, Segment, before, send};

impl Client {
    /// Handles a segment for connection `id` (RFC 9293, section 3.10.7). `payload` begins with the
    /// TCP header.
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
            } else if connection.flags.intersects(Flags::REQUEST) {
                // The segment may have opened the window for which the request waits.
                self.queue(id, Flags::REQUEST);
            }
        } else if before(connection.snd_nxt, segment.ack) {
            // The segment acknowledges data that was never sent. The answer is an ACK (RFC 9293,
            // section 3.10.7.4).
            return self.queue(id, Flags::ACK);
        }
        if segment.len > 0 || segment.has(FIN) {
            let data = &payload[segment.data_at..];
            self.handle_data(port, id, segment, data, now);
        }
        let connection = &self.connections[id as usize];
        if connection.is_over() && !connection.flags.intersects(Flags::ACK) {
            self.release(id);
        }
    }

    /// Handles a segment in SYN-SENT (RFC 9293, section 3.10.7.3).
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
            // The server still has an older connection with this 4-tuple. A reset removes it.
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
            connection.flags.insert(Flags::SCALED);
        }
        if negotiated.sack {
            connection.flags.insert(Flags::SACK);
        }
        if u32::from(negotiated.mss) < self.longest_request {
            return self.fail(port, id, error::SMALL_SEGMENTS);
        }
        connection.state = State::Open;
        self.handle_established(id, now);
    }

    /// Handles a segment with SYN or RST, or without ACK, after the handshake.
    #[cold]
    fn handle_control<P: Port>(&mut self, port: &mut P, id: u32, segment: &Segment) {
        let connection = &self.connections[id as usize];
        let expected = segment.seq == connection.rcv_nxt;
        if segment.has(RST) {
            // RFC 5961, section 3.2: a reset elsewhere in the window gets a challenge ACK.
            if expected {
                self.fail_silently(id, error::RESET);
            } else if segment.seq.wrapping_sub(connection.rcv_nxt) < WINDOW {
                self.acknowledge_now(port, id);
            }
        } else if segment.has(SYN) {
            // Either the server did not get the third segment of the handshake, or the SYN is an
            // attack. An ACK is right in both cases (RFC 5961, section 4).
            self.acknowledge_now(port, id);
        }
    }

    /// Handles data or a FIN.
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
            // All data is duplicate. The client's ACK was probably lost, so the client repeats the
            // ACK.
            return self.acknowledge_now(port, id);
        }
        if connection.flags.intersects(Flags::BUSY) {
            connection.limit_at = limit_at;
        }
        let end = segment.seq.wrapping_add(segment.len);
        let data = &data[known as usize..];
        let alive = if connection.flags.intersects(Flags::TROUBLE) {
            self.fill_hole(port, id, data, now)
        } else {
            data.is_empty() || self.deliver(port, id, data, now)
        };
        let connection = &self.connections[id as usize];
        if alive && fin && connection.state == State::Open && connection.rcv_nxt == end {
            self.handle_fin(id);
        } else if alive {
            self.queue(id, Flags::empty());
        }
    }

    /// Handles data or a FIN of a connection that the client has closed.
    #[cold]
    fn handle_late_data<P: Port>(&mut self, port: &mut P, id: u32, segment: &Segment) {
        let connection = &mut self.connections[id as usize];
        let end = segment.seq.wrapping_add(segment.len);
        let all_known = !before(connection.rcv_nxt, end);
        if connection.flags.intersects(Flags::FIN_RECEIVED) || (all_known && !segment.has(FIN)) {
            self.queue(id, Flags::ACK);
        } else if all_known && end == connection.rcv_nxt {
            self.handle_fin(id);
        } else {
            // The client has closed and cannot take new data. It sends a reset, as if the
            // connection did not exist (RFC 9293, section 3.10.7.1).
            self.reset(port, id);
            self.release(id);
        }
    }

    /// Handles a segment that arrives while earlier data is missing.
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
        // The client can keep a checksum only for data of the current body.
        let fits = connection.flags.intersects(Flags::BODY)
            && start < WINDOW
            && u64::from(start) + u64::from(segment.len) <= u64::from(connection.body_left);
        if fits && let Some(trouble) = self.trouble(id) {
            trouble.ranges.add(segment.seq, data);
            if segment.has(FIN) {
                trouble.fin = Some(segment.seq.wrapping_add(segment.len));
            }
        }
        self.acknowledge_now(port, id);
    }

    /// Handles in-order data of a connection with holes or with an incomplete head. Returns false
    /// if the connection has failed or closed.
    #[cold]
    fn fill_hole<P: Port>(&mut self, port: &mut P, id: u32, mut data: &[u8], now: Instant) -> bool {
        loop {
            let connection = &mut self.connections[id as usize];
            let Some(trouble) = self.troubles.get_mut(&id) else {
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
                // RFC 5681, section 4.2: data that fills a hole is acknowledged immediately.
                connection.flags.insert(Flags::ACK);
                if !self.deliver(port, id, piece, now) {
                    return false;
                }
            }
        }
    }

    /// Removes the additional state if no hole and no partial head remains. Returns false if the
    /// server's FIN followed the last hole, because the connection is closing then.
    fn leave_trouble(&mut self, id: u32) -> bool {
        let connection = &mut self.connections[id as usize];
        let Some(trouble) = self.troubles.get(&id) else {
            return true;
        };
        let rcv_nxt = connection.rcv_nxt;
        let more = trouble.fin.is_some_and(|fin| before(rcv_nxt, fin));
        if more || !trouble.ranges.is_empty() || !trouble.head.is_empty() {
            return true;
        }
        let fin = trouble.fin == Some(rcv_nxt);
        self.troubles.remove(&id);
        connection.flags.remove(Flags::TROUBLE);
        if fin {
            self.handle_fin(id);
        }
        !fin
    }

    /// Handles a segment that belongs to no connection (RFC 9293, section 3.10.7.1). Acknowledges a
    /// FIN, as a client in TIME-WAIT would. Answers other data and SYNs with a reset.
    #[cold]
    pub(super) fn handle_stray<P: Port>(&self, port: &mut P, address: usize, segment: &Segment) {
        let controls = u32::from(segment.has(FIN)) + u32::from(segment.has(SYN));
        let mut fields = Fields {
            src: self.addresses[address],
            src_port: segment.dst_port,
            seq: segment.ack,
            ack: segment.seq.wrapping_add(segment.len + controls),
            window: 0,
        };
        let packet = if segment.control & (FIN | SYN | ACK | RST) == FIN | ACK {
            &self.packets.acks[0]
        } else if segment.has(RST) || (segment.len == 0 && !segment.has(SYN)) {
            return;
        } else if segment.has(ACK) {
            fields.ack = 0;
            &self.packets.reset
        } else {
            fields.seq = 0;
            &self.packets.reset_ack
        };
        send(port, packet, &fields);
    }
}
