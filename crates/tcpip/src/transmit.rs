//! What is sent when: new data as far as the windows allow, lost data,
//! acknowledgements, probes.

use arrayvec::ArrayVec;
use ip::{Addresses, Ecn, Packet};
use nmio::Port;
use nmio::super_segment::MAX_OVER_V6;

use crate::app::Application;
use crate::congestion::CongestionControl;
use crate::options::{Block, MAX_SACK_BLOCKS, Written};
use crate::output::{
    Cut, NoRoom, Outgoing, Sender, send_control, turn_round, window_field, window_to_tell,
};
use crate::pacing::{budget, pacing_rate, spend};
use crate::recovery::event;
use crate::segments::Family;
use crate::stack::Stack;
use crate::tcb::{Flags, Moment, NONE, Record, Tcb};
use crate::wire::{Control, Header, Seq, TIMESTAMPED_HEADER_LEN};

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Sends what is lost and what is new, as far as the congestion window,
    /// the peer's window and the TX ring allow.
    #[inline(always)]
    pub(crate) fn transmit<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        if tcb.recovery != NONE {
            self.retransmit(port, id, now);
        }
        let tcb = &self.records[id as usize].tcb;
        if tcb.snd_nxt != tcb.limit() {
            if tcb.flags.has(Flags::NARROW) {
                self.probe_size(port, id, now);
            }
            self.send_new(port, id, now);
        }
    }

    /// Sends one segment that was decided upon, and counts it.
    pub(crate) fn send_one<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        out: Outgoing,
    ) -> Result<(), NoRoom> {
        let mut sender = Sender {
            app: &mut self.app,
            contents: &mut self.contents,
            writes: &self.writes,
            counters: &mut self.counters,
            mode: self.settings.mode,
        };
        sender.send(port, &self.records[id as usize].tcb, out)?;
        self.counters.segments_sent += 1;
        self.counters.bytes_sent += u64::from(out.len());
        Ok(())
    }

    /// How far from SND.UNA the congestion window reaches, while something is
    /// out of order: what is in the network no longer does not count.
    #[cold]
    fn reach_in_disorder(&self, id: u32) -> u32 {
        let Record { tcb, congestion } = &self.records[id as usize];
        let recovery = self.recoveries.get(tcb.recovery);
        if recovery.lost_goes_first() {
            // There was no room for a whole segment of it.
            return tcb.flight();
        }
        recovery
            .window(congestion)
            .saturating_add(recovery.gone(tcb))
    }

    /// Sends from `snd_nxt` on.
    #[inline(always)]
    fn send_new<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let Record { tcb, congestion } = &self.records[id as usize];
        let reach = if tcb.recovery == NONE {
            congestion.window()
        } else {
            self.reach_in_disorder(id)
        };
        let Record { tcb, congestion } = &mut self.records[id as usize];
        let una = tcb.snd_una;
        let first = tcb.snd_nxt;
        let open = tcb.snd_wnd.min(reach);
        let paced = self.settings.pacing || tcb.flags.has(Flags::SPREAD);
        let rate = pacing_rate(tcb, congestion, paced);
        let usable = match rate {
            None => open,
            Some(rate) => open.min(first.since(una).saturating_add(budget(tcb, rate, now))),
        };
        let window = window_field(tcb, &self.buffers);
        let (ecn, always) = marks(tcb);
        let mut sender = Sender {
            app: &mut self.app,
            contents: &mut self.contents,
            writes: &self.writes,
            counters: &mut self.counters,
            mode: self.settings.mode,
        };
        let most_run = most_run(port.capabilities().segmentation, tcb);
        let (mut room, mut blocked) = (port.room(), false);
        let limit = tcb.limit();
        let mut seq = first;
        while seq != limit {
            let flight = seq.since(una);
            let cut = Cut::at(tcb, seq);
            let mut control = always;
            let mut len = 0;
            if let Some(cut) = &cut {
                let Some(bytes) = bytes_to_send(tcb, cut, flight, usable, most_run) else {
                    break;
                };
                len = bytes;
                if len == cut.place.left || fills_window(tcb, flight + len) {
                    control = control | Control::PSH;
                }
            }
            // A FIN needs its place in the peer's window, as data does.
            let ends = seq + len == tcb.snd_end && limit != tcb.snd_end;
            let fin = u32::from(ends && flight + len < tcb.snd_wnd);
            if fin == 1 {
                control = control | Control::FIN;
            } else if len == 0 {
                break;
            }
            if room == 0 {
                blocked = true;
                break;
            }
            if len > 0 && tcb.flags.has(Flags::REDUCED) {
                control = control | tcb.tell_reduction();
            }
            let header = Header {
                seq,
                ack: tcb.rcv_nxt,
                control,
                window,
                timestamps: tcb.timestamps(now),
            };
            if sender.send_new(port, tcb, cut, len, header, ecn).is_err() {
                blocked = true;
                break;
            }
            room -= 1;
            if !tcb.flags.has(Flags::TIMING) && may_time(tcb) {
                tcb.flags.set(Flags::TIMING);
                // Of a run, its first segment.
                let mss = u32::from(tcb.mss);
                tcb.rtt_seq = seq + if len > mss { mss } else { len + fin };
                tcb.rtt_at = now.micros;
            }
            seq = seq + len + fin;
        }
        if seq != first {
            if tcb.flags.has(Flags::PERSIST) {
                tcb.stop_probing();
            }
            congestion.on_send(seq.since(first), &event(tcb, first.since(una), 0, now));
            if let Some(rate) = rate {
                spend(tcb, rate, seq.since(first), now);
            }
            tcb.has_told(window);
            tcb.has_sent_to(seq);
            let flight = first.since(una);
            if flight <= u32::from(tcb.mss) || tcb.recovery != NONE {
                self.has_sent(id, flight, seq.since(first), now);
            }
        }
        let held_back = usable < open && seq != limit;
        if paced && !held_back {
            // Acknowledgements are the clock again.
            self.records[id as usize].tcb.flags.clear(Flags::SPREAD);
        }
        if blocked || held_back || seq == una {
            self.wait_for_more(id, blocked, held_back, now);
        }
    }

    /// What is left to send waits for the ring, for the next tick of pacing,
    /// or for the peer's window.
    fn wait_for_more(&mut self, id: u32, blocked: bool, held_back: bool, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        if blocked {
            self.block(id);
        } else if held_back {
            if tcb.flags.has(Flags::PERSIST) {
                // It is not the window any more.
                tcb.stop_probing();
            }
            tcb.flags.clear(Flags::PROBE_TAIL);
            tcb.flags.set(Flags::PACED);
            self.arm(id, now, 1);
        } else if !tcb.flags.has(Flags::PERSIST) {
            // Shut or too small, and nothing in flight whose ACK could tell
            // of it opening.
            self.start_probing(id, now);
        }
    }

    /// `bytes` have been sent behind `flight` in flight: little or none, or
    /// something of it is out of order.
    #[inline(always)]
    fn has_sent(&mut self, id: u32, flight: u32, bytes: u32, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        if flight == 0 {
            // RFC 6298, 5.1.
            let timeout = self.timeout(id);
            self.arm(id, now, timeout);
        } else if flight <= u32::from(tcb.mss) && tcb.flags.has(Flags::PROBE_TAIL) {
            self.hasten_probe(id, now);
        } else if tcb.recovery != NONE {
            self.recoveries.get_mut(tcb.recovery).has_sent(bytes);
        }
    }

    /// The ACK of a lone segment might have been held back; that of more will
    /// not be, and the tail is probed sooner (RFC 8985, section 7.2). Never
    /// later: what waits for longest is not to wait for what comes after it.
    #[cold]
    fn hasten_probe(&mut self, id: u32, now: Moment) {
        let timeout = self.timeout(id);
        let tcb = &self.records[id as usize].tcb;
        let left = tcb.deadline.wrapping_sub(now.millis).cast_signed();
        let is_sooner = i64::from(timeout) < i64::from(left);
        if is_sooner || !tcb.flags.has(Flags::PROBE_TAIL) {
            self.arm(id, now, timeout);
        }
    }

    /// Sends again what is lost, as far as the window allows.
    #[cold]
    #[inline(never)]
    fn retransmit<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let index = self.recovery_of(id, 0);
        loop {
            let Record { tcb, congestion } = &mut self.records[id as usize];
            let recovery = self.recoveries.get(index);
            let Some((start, end)) = recovery.next_lost() else {
                return;
            };
            let most = end.since(start).min(u32::from(tcb.mss));
            let pipe = recovery.pipe(tcb);
            let window = recovery.window(congestion);
            // At least one segment, whatever its size.
            if pipe > 0 && pipe.saturating_add(most) > window {
                return;
            }
            if start.since(tcb.snd_una) >= tcb.snd_wnd {
                // The window was shut on it: the timer probes.
                return;
            }
            let late = recovery.lateness(tcb);
            let Ok(taken) = self.send_range(port, id, start, most, late, now) else {
                self.block(id);
                return;
            };
            let Record { tcb, congestion } = &mut self.records[id as usize];
            congestion.on_send(taken, &event(tcb, pipe, 0, now));
            let recovery = self.recoveries.get_mut(index);
            recovery.has_resent(start, start + taken, tcb, now);
            let is_timed = !(start + taken).before(tcb.rtt_seq);
            if is_timed || !tcb.flags.has(Flags::SACK) {
                tcb.flags.clear(Flags::TIMING);
            }
            self.counters.retransmits += 1;
            let impatient = !tcb.flags.has(Flags::SACK) && recovery.is_impatient();
            if start == tcb.snd_una && !impatient {
                let rto = self.rto(id).min(self.user_time_left(id, now));
                self.arm_timeout(id, now, rto);
            }
        }
    }

    /// Sends at most `most` bytes from `seq` on, or the FIN that is there, with a
    /// timestamp of `late` milliseconds ago. Returns what that takes of sequence
    /// space.
    pub(crate) fn send_range<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        seq: Seq,
        most: u32,
        late: u32,
        now: Moment,
    ) -> Result<u32, NoRoom> {
        if port.room() == 0 {
            return Err(NoRoom);
        }
        let tcb = &mut self.records[id as usize].tcb;
        let window = window_field(tcb, &self.buffers);
        let (_, control) = marks(tcb);
        let mut header = Header {
            seq,
            ack: tcb.rcv_nxt,
            control,
            window,
            timestamps: tcb.timestamps(now),
        };
        if let Some(timestamps) = &mut header.timestamps {
            timestamps.value = timestamps.value.wrapping_sub(late);
        }
        let fin_sent = tcb.snd_nxt == tcb.snd_end + 1;
        let mut len = 0;
        if let Some(cut) = Cut::at(tcb, seq) {
            len = cut.whole.min(most);
            if len == cut.place.left {
                header.control = header.control | Control::PSH;
            }
            // A FIN that was sent with this segment goes with it again.
            if seq + len == tcb.snd_end && fin_sent {
                header.control = header.control | Control::FIN;
            }
            // RFC 3168, section 6.1.5: what is sent again takes no part.
            self.send_one(port, id, cut.take(len, header, Ecn::NotEct))?;
        } else {
            debug_assert!(tcb.flags.has(Flags::CLOSE), "the stream ends here");
            header.control = header.control | Control::FIN;
            send_control(port, tcb, &header, &Written::default())?;
            self.counters.segments_sent += 1;
        }
        self.records[id as usize].tcb.has_told(window);
        Ok(len + u32::from(header.control.has(Control::FIN)))
    }

    /// The peer's window has no place for what is to be sent (RFC 9293,
    /// section 3.8.6.1).
    #[cold]
    fn start_probing(&mut self, id: u32, now: Moment) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags.set(Flags::PERSIST);
        tcb.flags.clear(Flags::TIMING);
        tcb.rtt_at = now.micros;
        tcb.retries = 0;
        tcb.backoff = 0;
        let rto = self.rto(id);
        self.arm_timeout(id, now, rto);
    }

    /// Sets the timer to something else than the probe of a tail.
    pub(crate) fn arm_timeout(&mut self, id: u32, now: Moment, after: u32) {
        let tcb = &mut self.records[id as usize].tcb;
        tcb.flags
            .clear(Flags::PROBE_TAIL | Flags::AWAIT_LATE | Flags::PACED);
        self.arm(id, now, after);
    }

    /// Sends as much as the window has place for; one octet, or the FIN, when
    /// it is shut. Without room in the ring it goes as soon as there is some:
    /// that is not the peer's silence, which the interval is doubled for.
    pub(crate) fn probe<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        let most = tcb.snd_wnd.clamp(1, u32::from(tcb.mss));
        let seq = tcb.snd_una;
        let sent = self.send_range(port, id, seq, most, 0, now);
        let tcb = &mut self.records[id as usize].tcb;
        if let Ok(taken) = sent {
            tcb.has_sent_to(seq + taken);
            tcb.retries = tcb.retries.saturating_add(1);
            tcb.backoff = tcb.backoff.saturating_add(1);
            self.counters.window_probes += 1;
        } else {
            tcb.flags.set(Flags::OWES_PROBE);
            self.block(id);
        }
        let tcb = &self.records[id as usize].tcb;
        let left = self.settings.persist_time_left(tcb, now);
        let most = self.settings.most_probe_interval_ms;
        let interval = self.rto(id).min(most).min(left.max(1));
        self.arm_timeout(id, now, interval);
    }

    /// A header without data that acknowledges what has come, and what has
    /// come out of order.
    #[inline(always)]
    pub(crate) fn acknowledgement(&mut self, id: u32, now: Moment) -> (Header, Written) {
        let tcb = &self.records[id as usize].tcb;
        let (_, control) = marks(tcb);
        let header = Header {
            seq: tcb.snd_nxt,
            ack: tcb.rcv_nxt,
            control,
            window: window_field(tcb, &self.buffers),
            timestamps: tcb.timestamps(now),
        };
        let nothing = tcb.buffer == NONE && self.twice.is_none();
        let options = if nothing || !tcb.flags.has(Flags::SACK) {
            Written::default()
        } else {
            self.selective(id)
        };
        (header, options)
    }

    /// What has come out of order (RFC 2018), or twice (RFC 2883), as options.
    #[cold]
    fn selective(&mut self, id: u32) -> Written {
        let tcb = &self.records[id as usize].tcb;
        let mut blocks: ArrayVec<Block, MAX_SACK_BLOCKS> = self.twice.take().into_iter().collect();
        if tcb.buffer != NONE {
            let ranges = self.buffers.get(tcb.buffer).out_of_order();
            let room = blocks.remaining_capacity();
            let block = |(start, end): (usize, usize)| {
                (tcb.rcv_nxt + start as u32, tcb.rcv_nxt + end as u32)
            };
            blocks.extend(ranges.into_iter().take(room).map(block));
        }
        Written::sack(&blocks, tcb.flags.has(Flags::TIMESTAMPS))
    }

    /// See [`keep_alive`](Self::keep_alive).
    #[cold]
    pub(crate) fn send_keep_alive<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let (mut header, options) = self.acknowledgement(id, now);
        header.seq = Seq(header.seq.0.wrapping_sub(1));
        let tcb = &mut self.records[id as usize].tcb;
        if send_control(port, tcb, &header, &options).is_ok() {
            tcb.retries += 1;
            self.counters.segments_sent += 1;
            self.counters.keep_alives += 1;
        }
    }

    /// Acknowledges with the received frame itself.
    #[inline(always)]
    pub(crate) fn acknowledge<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        packet: Packet,
        now: Moment,
    ) {
        let (header, options) = self.acknowledgement(id, now);
        let tcb = &mut self.records[id as usize].tcb;
        let fits = packet.payload_capacity() >= header.len() + options.bytes().len();
        if fits && turn_round(port, packet, &header, &options, tcb.ports()).is_ok() {
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
    pub(crate) fn acknowledge_from_scratch<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let (header, options) = self.acknowledgement(id, now);
        let tcb = &mut self.records[id as usize].tcb;
        if send_control(port, tcb, &header, &options).is_ok() {
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
            self.acknowledge_from_scratch(port, id, now);
        }
    }

    /// The SYN-ACK of a half-open connection: our MSS, and what the SYN has
    /// offered.
    pub(crate) fn syn_ack(&self, tcb: &Tcb, now: Moment) -> (Header, Written) {
        let family = Family::of(&tcb.path.addresses);
        let mut control = Control::SYN | Control::ACK;
        if tcb.flags.has(Flags::ECN) {
            control = control | Control::ECE;
        }
        // Never scaled (RFC 7323, section 2.2).
        let window = window_to_tell(tcb, &self.buffers).min(u32::from(u16::MAX));
        let header = Header {
            seq: tcb.snd_una,
            ack: tcb.rcv_nxt,
            control,
            window: window as u16,
            timestamps: tcb.timestamps(now),
        };
        let scaled = tcb.flags.has(Flags::SCALED);
        let options = Written::syn_ack(
            self.own_mss.of(family),
            scaled.then(|| tcb.own_scale() as u8),
            tcb.flags.has(Flags::SACK),
        );
        (header, options)
    }

    /// Resets a connection, without waiting for room.
    #[cold]
    pub(crate) fn send_reset<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let tcb = &self.records[id as usize].tcb;
        let header = Header {
            seq: tcb.reset_at(),
            ack: tcb.rcv_nxt,
            control: Control::RST | Control::ACK,
            window: 0,
            timestamps: tcb.timestamps(now),
        };
        if send_control(port, tcb, &header, &Written::default()).is_ok() {
            self.counters.segments_sent += 1;
            self.counters.resets_sent += 1;
        } else {
            self.counters.ring_full += 1;
        }
    }
}

/// Bytes of data that a super-segment to this peer may have, of `segmentation`
/// bytes in all over IPv4; 0: none. On tagged links every segment is a frame,
/// as not all that cut look behind a tag.
#[inline(always)]
fn most_run(segmentation: usize, tcb: &Tcb) -> u32 {
    if segmentation == 0 || tcb.path.link.vlan.is_some() {
        return 0;
    }
    let most = match tcb.path.addresses {
        Addresses::V4 { .. } => segmentation,
        Addresses::V6 { .. } => segmentation.min(MAX_OVER_V6),
    };
    let headers = tcb.path.addresses.header_len() + TIMESTAMPED_HEADER_LEN;
    most.saturating_sub(headers) as u32
}

/// Whether a segment that ends `end` bytes behind SND.UNA fills a peer's window of
/// a few segments. It is pushed: Linux then acknowledges it once it is read,
/// instead of holding the ACK back for a segment that cannot come. Wider windows
/// gain nothing by it, and cost an ACK for every segment.
#[inline(always)]
fn fills_window(tcb: &Tcb, end: u32) -> bool {
    const FEW: u32 = 16;
    let mss = u32::from(tcb.mss);
    tcb.snd_wnd < FEW * mss && end + mss > tcb.snd_wnd
}

/// How much may be sent from a place in the stream, behind `flight` in flight,
/// of which `usable` are allowed: a segment, or a run of segments of at most
/// `most_run` bytes.
#[inline(always)]
fn bytes_to_send(tcb: &Tcb, cut: &Cut, flight: u32, usable: u32, most_run: u32) -> Option<u32> {
    if flight.saturating_add(cut.whole) <= usable {
        // Not every device cuts what has CWR set: that segment goes alone.
        let tells = tcb.flags.has(Flags::REDUCED) && tcb.flags.has(Flags::ECN);
        if most_run > 0 && !tells {
            let run = cut.run(tcb.mss.into(), usable - flight, most_run);
            return Some(cut.whole.max(run));
        }
        return Some(cut.whole);
    }
    // RFC 9293, section 3.8.6.2.1: a part of a segment only to a peer whose
    // window was never wide, and only when nothing else is in flight. To others
    // the timer sends it, if the window stays as it is.
    let alone = flight == 0 && tcb.snd_wnd > 0 && !tcb.flags.has(Flags::WIDE);
    alone.then(|| cut.whole.min(usable))
}

/// Whether the peer's window, which is open, lets the segment at SND.UNA go
/// when nothing is in flight, see [`bytes_to_send`].
pub(crate) fn fits_window(tcb: &Tcb, cut: &Cut) -> bool {
    cut.whole <= tcb.snd_wnd || !tcb.flags.has(Flags::WIDE)
}

/// Whether a round trip may be timed: while a gap holds up what is
/// acknowledged it seems longer, unless it is acknowledged selectively.
#[inline(always)]
fn may_time(tcb: &Tcb) -> bool {
    tcb.recovery == NONE || tcb.flags.has(Flags::SACK) || !tcb.flags.has(Flags::TIMESTAMPS)
}

/// The marks of a segment with new data in the IP header, and the control bits
/// of every segment (RFC 3168, section 6.1).
#[inline(always)]
pub(crate) fn marks(tcb: &Tcb) -> (Ecn, Control) {
    let ecn = if tcb.flags.has(Flags::ECN) {
        Ecn::Ect0
    } else {
        Ecn::NotEct
    };
    let control = if tcb.flags.has(Flags::ECHO) {
        Control::ACK | Control::ECE
    } else {
        Control::ACK
    };
    (ecn, control)
}
