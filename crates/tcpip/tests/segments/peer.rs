//! The peer of a case. Sequence numbers are relative to each side's initial sequence number. Values
//! that a line omits are derived from earlier lines.

use std::time::Duration;

use nmio::Instant;
use testkit::{ACK, Opt, SYN, Segment};

/// State of the TCP timestamps of both sides.
#[derive(Debug, Clone, Copy)]
struct TimestampState {
    /// The peer's latest TSval, and the time when it was sent. The peer's clock ticks every
    /// millisecond.
    peer_tsval: u32,
    peer_tsval_at: Instant,
    /// Our first TSval.
    base: u32,
    /// A known reading of our timestamp clock relative to `base`, and the time of the reading.
    reading: u32,
    read_at: Instant,
    /// Our last TSval, relative to `base`.
    our_tsval: u32,
    /// The TSecr that we must send (RFC 7323, section 4.3).
    our_tsecr: u32,
    /// Whether both sides have sent timestamps in their SYNs.
    agreed: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) port: u16,
    isn: u32,
    /// Our initial sequence number, or `None` until a SYN-ACK has been sent.
    pub(crate) iss: Option<u32>,
    /// End of the data that we have sent, as an absolute sequence number.
    pub(crate) sent_to: u32,
    /// Number of bytes of data in a full segment to this peer.
    pub(crate) seg: u16,
    /// Window field of the peer's last segment.
    pub(crate) window: u16,
    /// Window field that is expected in our next segment.
    pub(crate) our_window: u16,
    /// Size of our receive buffer in bytes.
    recv: u32,
    timestamps: Option<TimestampState>,
    /// Our last acknowledgement number, relative to the peer's initial sequence number.
    last_ack: u32,
}

impl Peer {
    pub(crate) fn new(port: u16, isn: u32, seg: u16, recv: u32) -> Self {
        Self {
            port,
            isn,
            iss: None,
            sent_to: 0,
            seg,
            window: 65_535,
            our_window: unscaled(recv),
            recv,
            timestamps: None,
            last_ack: 0,
        }
    }

    /// Forgets our initial sequence number: the next SYN-ACK sets a new one.
    pub(crate) fn expect_new_iss(&mut self) {
        self.iss = None;
        self.timestamps = None;
        self.our_window = unscaled(self.recv);
    }

    /// Completes a segment from this peer, and records its window. If `plain` is true and
    /// timestamps are negotiated, adds timestamps.
    pub(crate) fn complete_in(&mut self, segment: &mut Segment, plain: bool, now: Instant) {
        let timestamps = self.timestamps.filter(|timestamps| timestamps.agreed);
        if let Some(timestamps) = timestamps
            && plain
        {
            let passed = now.since(timestamps.peer_tsval_at).as_millis() as u32;
            let value = timestamps.peer_tsval.wrapping_add(passed);
            segment
                .options
                .push(Opt::Timestamps(value, timestamps.our_tsval));
        }
        self.window = segment.window;
    }

    /// Updates the timestamps' state for a segment that the peer sends. The segment has relative
    /// numbers.
    pub(crate) fn note_sent(&mut self, segment: &Segment, now: Instant) {
        let peer_tsval = segment.options.iter().find_map(|option| match option {
            Opt::Timestamps(value, _) => Some(*value),
            _ => None,
        });
        let (Some(peer_tsval), starts) = (peer_tsval, segment.bits & (SYN | ACK) == SYN) else {
            return;
        };
        if starts && self.timestamps.is_none() {
            self.timestamps = Some(TimestampState {
                peer_tsval,
                peer_tsval_at: now,
                base: 0,
                reading: 0,
                read_at: now,
                our_tsval: 0,
                our_tsecr: peer_tsval,
                agreed: false,
            });
        }
        let last_ack = self.last_ack;
        if let Some(timestamps) = &mut self.timestamps {
            // A line gives an older timestamp only to test PAWS, so the timestamp is not taken as a
            // reading of the peer's clock.
            if peer_tsval.wrapping_sub(timestamps.peer_tsval).cast_signed() >= 0 {
                (timestamps.peer_tsval, timestamps.peer_tsval_at) = (peer_tsval, now);
            }
            let ahead = peer_tsval.wrapping_sub(timestamps.our_tsecr).cast_signed() >= 0;
            let covers = segment.seq.wrapping_sub(last_ack).cast_signed() <= 0;
            // A segment that lies entirely before the window is dropped, so its timestamp must not
            // be recorded.
            let behind = segment
                .seq
                .wrapping_add(segment.span())
                .wrapping_sub(last_ack);
            let is_new = segment.seq == last_ack || behind.cast_signed() > 0;
            if ahead && covers && is_new {
                timestamps.our_tsecr = peer_tsval;
            }
        }
    }

    /// Completes an expected segment. If `plain` is true and timestamps are negotiated, adds
    /// timestamps. Also predicts the window field of our next segment.
    pub(crate) fn complete_out(&mut self, segment: &mut Segment, plain: bool, now: Instant) {
        if let Some(timestamps) = self.timestamps.filter(|timestamps| timestamps.agreed)
            && plain
        {
            let passed = now.since(timestamps.read_at).as_millis() as u32;
            let value = timestamps.reading.wrapping_add(passed);
            segment
                .options
                .push(Opt::Timestamps(value, timestamps.our_tsecr));
        }
        segment.options.sort();
        self.our_window = segment.window;
        let scale = segment.options.iter().find_map(|option| match option {
            Opt::Scale(shift) => Some(*shift),
            _ => None,
        });
        if let Some(shift) = scale {
            // The window of a SYN is not scaled, but the window of our next segment is.
            self.our_window = (self.recv >> shift).min(u32::from(u16::MAX)) as u16;
        }
    }

    /// Converts a segment from this peer to absolute numbers.
    pub(crate) fn absolute(&self, segment: &Segment) -> Segment {
        let our_tsval = |number: u32| number.wrapping_add(self.iss.unwrap_or(0));
        let mut out = segment.clone();
        out.seq = self.isn.wrapping_add(segment.seq);
        if segment.has(ACK) {
            out.ack = our_tsval(segment.ack);
        }
        let base = self.timestamps.map_or(0, |timestamps| timestamps.base);
        for option in &mut out.options {
            match option {
                Opt::Sack(blocks) => {
                    for (left, right) in blocks {
                        (*left, *right) = (our_tsval(*left), our_tsval(*right));
                    }
                }
                Opt::Timestamps(_, echo) if !segment.has(SYN) => {
                    *echo = echo.wrapping_add(base);
                }
                _ => {}
            }
        }
        out
    }

    /// Converts a segment of ours to this peer to relative numbers.
    pub(crate) fn relative(&mut self, segment: &Segment, at: Instant) -> Segment {
        if segment.has(SYN) && self.iss.is_none() {
            self.iss = Some(segment.seq);
            self.sent_to = segment.seq;
        }
        let end = segment.seq.wrapping_add(segment.span());
        if end.wrapping_sub(self.sent_to).cast_signed() > 0 {
            self.sent_to = end;
        }
        let mut out = segment.clone();
        out.seq = segment.seq.wrapping_sub(self.iss.unwrap_or(0));
        out.ack = if segment.has(ACK) {
            segment.ack.wrapping_sub(self.isn)
        } else {
            0
        };
        if segment.has(ACK) {
            self.last_ack = out.ack;
        }
        for option in &mut out.options {
            match option {
                Opt::Sack(blocks) => {
                    for (left, right) in blocks {
                        (*left, *right) =
                            (left.wrapping_sub(self.isn), right.wrapping_sub(self.isn));
                    }
                }
                Opt::Timestamps(value, _) => {
                    let Some(timestamps) = &mut self.timestamps else {
                        continue;
                    };
                    if !timestamps.agreed {
                        timestamps.agreed = true;
                        timestamps.base = *value;
                        (timestamps.reading, timestamps.read_at) = (0, at);
                    }
                    *value = value.wrapping_sub(timestamps.base);
                    timestamps.our_tsval = *value;
                }
                _ => {}
            }
        }
        out
    }

    /// Returns our last TSval, relative to our first TSval.
    pub(crate) fn last_timestamp(&self) -> u32 {
        self.timestamps.map_or(0, |timestamps| timestamps.our_tsval)
    }

    /// Sets the reading of our timestamp clock to `value`, relative to our first TSval.
    pub(crate) fn set_our_tsval(&mut self, value: u32, at: Instant) {
        if let Some(timestamps) = &mut self.timestamps {
            (timestamps.reading, timestamps.read_at) = (value, at);
        }
    }

    pub(crate) fn icmp_about(&self, seq: u32) -> u32 {
        seq.wrapping_add(self.iss.unwrap_or(0))
    }
}

/// Returns the window field for a window of `recv` bytes that is not scaled.
fn unscaled(recv: u32) -> u16 {
    recv.min(u32::from(u16::MAX)) as u16
}

/// Formats the time since a case began, in seconds.
pub(crate) fn seconds(time: Duration) -> String {
    let text = format!("{}.{:06}", time.as_secs(), time.subsec_micros());
    match text.strip_suffix("000") {
        Some(short) => short.to_owned(),
        None => text,
    }
}
