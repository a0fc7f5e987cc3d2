//! Pending requests. A request is pending while it waits for its body, for the application, or for
//! room in the send stream.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use nmio::Instant;
use tcpip::{ContentId, Part};

use crate::assembled::Piece;
use crate::body::BodyReader;
use crate::date::Stamp;
use crate::disk::DiskFile;
use crate::fields::Fields;

/// Maximum memory for the pending requests of one worker, in bytes. It covers their entries, heads
/// and collected bodies, and responses that wait for room in the send stream.
pub const MAX_PENDING_BYTES: usize = 64 << 20;
/// Maximum size of the buffer that a free place keeps for its next request, in bytes.
const KEPT_BYTES: usize = 2_048;

/// Maximum number of places that one search for memory examines. The next search continues where
/// this one stopped.
const SAMPLE: usize = 128;
type Sample = ArrayVec<PendingPlace, SAMPLE>;
/// One client address may hold 1/`SHARE` of the memory while other addresses need memory.
const SHARE: usize = 8;
/// A request is evicted only if its virtual clock lags by more than this time, unless its address
/// holds more than its share.
const MIN_LAG: Duration = Duration::from_secs(1);
/// Time by which each received body byte advances the request's virtual clock. At 16,000 bytes a
/// second, the virtual clock keeps up with real time.
const PROGRESS_OF_BYTE: Duration = Duration::from_nanos(62_500);
/// Maximum time by which a request's virtual clock may be ahead of real time.
const CREDIT: Duration = Duration::from_secs(2);
/// IPv6 addresses with a common prefix of this length, in bits, count as one client. The length
/// equals the default of [`tcpip::Config::ipv6_prefix`].
const IPV6_PREFIX: u32 = 64;

/// Index of a place in [`Pending`]. Each connection has at most one place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PendingPlace(u32);

impl PendingPlace {
    /// The absence of a place.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

impl Default for PendingPlace {
    fn default() -> Self {
        Self::NONE
    }
}

/// What a pending request waits for.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Waits for the remaining body.
    Body(Body),
    /// Waits for the application's answer, or for the check of its credentials. `serial` is the serial
    /// number of the request.
    Answer {
        serial: u64,
        /// Whether the connection closes after the answer.
        close: bool,
        /// The application's fields for the site's answer after the check. So few requests wait for
        /// their check that the fields have no part in the memory for all requests.
        fields: Fields,
    },
    /// Waits for room in the connection's send stream.
    Room(Outgoing),
    /// A part of a streamed response has been sent, and the request waits for the next piece.
    Stream(Stream),
    /// The request was evicted, and its client has not been informed yet. `Some` says how to answer
    /// it. `None` means that the response is lost and cannot be replaced.
    Evicted(Option<Busy>),
}

/// How to answer an evicted request with 503.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Busy {
    pub(crate) head_only: bool,
    pub(crate) close: bool,
}

/// A request body that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) reader: BodyReader,
    /// Maximum number of bytes that may still arrive.
    pub(crate) remaining: u64,
    /// Whether the application receives the body in pieces.
    pub(crate) in_pieces: bool,
    /// Whether `100 Continue` must still be sent, because the send stream had no room for it.
    pub(crate) owes_continue: bool,
}

/// The part of a response that follows its assembled bytes. Those bytes are in the output buffer,
/// or in the request's entry while they wait for room.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) content: OutgoingContent,
    pub(crate) stamp: Stamp,
    /// If present, the response continues with more pieces.
    pub(crate) stream: Option<Stream>,
}

/// What a response contains beside its assembled bytes.
#[derive(Clone, Debug)]
pub(crate) enum OutgoingContent {
    /// Nothing.
    None,
    /// A range of bytes of a content item follows.
    Slice(ContentId, Range<u32>),
    /// These parts, whose own bytes are the assembled ones, are the whole response.
    Parts(Box<[Part]>),
    /// Pieces of a file on the disk and of the assembled bytes are the whole response.
    Disk(Arc<DiskFile>, Vec<Piece>),
}

impl Outgoing {
    /// Creates the last part of a response, after which no pieces follow.
    pub(crate) fn new(content: OutgoingContent, stamp: Stamp) -> Self {
        Self {
            content,
            stamp,
            stream: None,
        }
    }

    /// Sets the further pieces that follow this part of the response, if there are any.
    pub(crate) fn followed_by(self, stream: Option<Stream>) -> Self {
        Self { stream, ..self }
    }
}

/// A response that is sent in pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The request's serial number.
    pub(crate) serial: u64,
    /// Whether the pieces are sent as chunks.
    pub(crate) chunked: bool,
    /// Whether the connection closes after the response.
    pub(crate) close: bool,
    /// Whether the next piece must wait for a call of [`Clients::resume`](crate::Clients::resume).
    pub(crate) waits: bool,
}

/// One pending request.
#[derive(Debug)]
struct PendingRequest {
    /// `None` if the place is free.
    phase: Option<Phase>,
    /// A virtual clock, which is set to real time when the phase changes. Each received body byte
    /// advances the clock by [`PROGRESS_OF_BYTE`]. If the client is too slow, the clock lags behind
    /// real time.
    progress: Instant,
    client: IpAddr,
    /// The head and the body bytes collected so far, or the response bytes to send.
    bytes: Vec<u8>,
}

/// All pending requests of a worker.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    entries: Vec<PendingRequest>,
    free: Vec<PendingPlace>,
    /// Memory used by the entries and their buffers, in bytes.
    memory: usize,
    /// Index at which the next search for memory begins.
    next_sample: usize,
}

/// Error: no memory is left for the request.
#[derive(Debug)]
pub(crate) struct Exhausted;

impl Pending {
    /// Allocates a place for a request from `peer`, and stores `bytes` there.
    pub(crate) fn take(
        &mut self,
        phase: Phase,
        bytes: &[u8],
        peer: IpAddr,
        now: Instant,
    ) -> Result<PendingPlace, Exhausted> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.memory += size_of::<PendingRequest>();
            self.entries.push(PendingRequest {
                phase: None,
                progress: now,
                client: peer,
                bytes: Vec::new(),
            });
            PendingPlace(self.entries.len() as u32 - 1)
        });
        self.entry(place).client = network(peer);
        self.entry(place).progress = now;
        if self.append(place, bytes, now).is_err() {
            self.free.push(place);
            return Err(Exhausted);
        }
        self.entry(place).phase = Some(phase);
        Ok(place)
    }

    /// Number of pending requests.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns what a request waits for, or `None` for a free place or [`PendingPlace::NONE`].
    #[inline]
    pub(crate) fn phase(&mut self, place: PendingPlace) -> Option<&mut Phase> {
        let entry = self.entries.get_mut(place.0 as usize)?;
        entry.phase.as_mut()
    }

    /// Appends `bytes` to the request's stored bytes. To find memory, this may evict other
    /// requests.
    pub(crate) fn append(
        &mut self,
        place: PendingPlace,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(), Exhausted> {
        let entry = self.entry(place);
        let before = entry.bytes.capacity();
        let needed = entry.bytes.len() + bytes.len();
        if needed > before {
            let grown = needed.max(2 * before);
            let memory = self.memory + grown - before;
            if memory > MAX_PENDING_BYTES {
                self.free_memory(place, memory - MAX_PENDING_BYTES, now)?;
            }
            let entry = self.entry(place);
            entry.bytes.reserve_exact(grown - entry.bytes.len());
            self.memory += self.entry(place).bytes.capacity() - before;
        }
        self.entry(place).bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Frees at least `needed` bytes for the request at `requester`, or returns an error. Examines
    /// a [`SAMPLE`] of the places: first takes the buffers of free places, and then evicts
    /// requests.
    ///
    /// Requests of other addresses that hold more than their [`SHARE`] are evicted first. Next are
    /// the requests with the largest lag, whose clients send or read too slowly. The TCP stack
    /// evicts connections in the same order. A request that waits for the application does not lag.
    /// If the requester's address holds more than its share, no other address loses a request.
    #[cold]
    fn free_memory(
        &mut self,
        requester: PendingPlace,
        needed: usize,
        now: Instant,
    ) -> Result<(), Exhausted> {
        let sample = self.sample();
        let mut freed = 0;
        for place in &sample {
            let entry = self.entry(*place);
            if entry.phase.is_none() && *place != requester {
                freed += std::mem::take(&mut entry.bytes).capacity();
            }
        }
        self.memory -= freed;
        for place in self.eviction_order(sample, requester, now) {
            if freed >= needed {
                break;
            }
            freed += self.evict(place);
        }
        if freed < needed {
            return Err(Exhausted);
        }
        Ok(())
    }

    /// Returns those requests of a sample that may be evicted for `requester`, in eviction order.
    fn eviction_order(&self, mut sample: Sample, requester: PendingPlace, now: Instant) -> Sample {
        let entry = |place: &PendingPlace| &self.entries[place.0 as usize];
        let memory = |places: &[PendingPlace]| -> usize {
            let each = places.iter().map(|place| entry(place).bytes.capacity());
            each.sum()
        };
        // The share is 1/`SHARE` of the sample's memory, or of an average sample's memory if that
        // is more.
        let average = self.memory / self.entries.len() * sample.len();
        let share = memory(&sample).max(average) / SHARE;
        let client = entry(&requester).client;
        let min_lag = MIN_LAG.max(entry(&requester).lag(now));
        sample.sort_unstable_by_key(|place| entry(place).client);
        let clients = || sample.chunk_by(|a, b| entry(a).client == entry(b).client);
        let is_own = |places: &[PendingPlace]| entry(&places[0]).client == client;
        let requester_over_share = clients().any(|places| is_own(places) && memory(places) > share);
        let mut candidates: ArrayVec<_, SAMPLE> = ArrayVec::new();
        for places in clients() {
            let is_own = is_own(places);
            if requester_over_share && !is_own {
                continue;
            }
            let is_over_share = !is_own && memory(places) > share;
            for place in places {
                let (lag, memory) = (entry(place).lag(now), entry(place).bytes.capacity());
                if *place != requester && memory > 0 && (is_over_share || lag > min_lag) {
                    candidates.push(Reverse((is_over_share, lag, memory, *place)));
                }
            }
        }
        candidates.sort_unstable();
        let places = candidates.into_iter().map(|Reverse((.., place))| place);
        places.collect()
    }

    /// Returns the places to examine next.
    fn sample(&mut self) -> Sample {
        let len = self.entries.len();
        let sample =
            (0..len.min(SAMPLE)).map(|at| PendingPlace(((self.next_sample + at) % len) as u32));
        let sample = sample.collect();
        self.next_sample = (self.next_sample + SAMPLE) % len;
        sample
    }

    /// Evicts a request. Returns the number of bytes that this frees.
    fn evict(&mut self, place: PendingPlace) -> usize {
        let bytes = self.take_bytes(place);
        let head_only = bytes.starts_with(b"HEAD ");
        let busy = |close| Busy { head_only, close };
        let entry = self.entry(place);
        entry.phase = match entry.phase {
            Some(Phase::Body(_)) => Some(Phase::Evicted(Some(busy(true)))),
            Some(Phase::Answer { close, .. }) => Some(Phase::Evicted(Some(busy(close)))),
            _ => Some(Phase::Evicted(None)),
        };
        bytes.capacity()
    }

    /// Removes and returns the request's bytes. The caller sends or drops the bytes, or puts them
    /// back with [`keep`](Self::keep).
    pub(crate) fn take_bytes(&mut self, place: PendingPlace) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.entry(place).bytes);
        self.memory -= bytes.capacity();
        bytes
    }

    /// Stores bytes in a place that currently has none.
    fn put_bytes(&mut self, place: PendingPlace, bytes: Vec<u8>) {
        self.memory += bytes.capacity();
        self.entry(place).bytes = bytes;
    }

    /// Records that `len` more bytes of a request's body have arrived, and stores the state `body`.
    pub(crate) fn update_body(
        &mut self,
        place: PendingPlace,
        body: Body,
        len: usize,
        now: Instant,
    ) {
        let entry = self.entry(place);
        entry.phase = Some(Phase::Body(body));
        let advance = PROGRESS_OF_BYTE.saturating_mul(len as u32);
        entry.progress = (entry.progress + advance).min(now + CREDIT);
    }

    /// Changes what the request waits for, and sets its virtual clock to `now`.
    pub(crate) fn set_phase(&mut self, place: PendingPlace, phase: Phase, now: Instant) {
        let entry = self.entry(place);
        entry.phase = Some(phase);
        entry.progress = now;
    }

    /// Removes a request, and makes its place free.
    pub(crate) fn release(&mut self, place: PendingPlace) {
        let Some(entry) = self.entries.get_mut(place.0 as usize) else {
            return;
        };
        if entry.phase.take().is_none() {
            return;
        }
        self.free.push(place);
        self.shrink(place);
    }

    /// Puts back bytes that were [removed](Self::take_bytes) to make an answer. If the request no
    /// longer waits for an answer, the bytes are discarded, but a free place may keep the buffer.
    pub(crate) fn keep(&mut self, place: PendingPlace, bytes: Vec<u8>) {
        match self.entry(place).phase {
            Some(Phase::Answer { .. }) => self.put_bytes(place, bytes),
            Some(_) => {}
            None => {
                self.put_bytes(place, bytes);
                self.shrink(place);
            }
        }
    }

    /// Frees the memory of a free place, except for a small buffer for the next request.
    fn shrink(&mut self, place: PendingPlace) {
        let memory = self.memory;
        let entry = self.entry(place);
        let before = entry.bytes.capacity();
        entry.bytes.clear();
        // Free places keep buffers only while at most half of the memory is in use.
        if before > KEPT_BYTES || memory > MAX_PENDING_BYTES / 2 {
            entry.bytes = Vec::new();
        }
        let freed = before - entry.bytes.capacity();
        self.memory -= freed;
    }

    fn entry(&mut self, place: PendingPlace) -> &mut PendingRequest {
        &mut self.entries[place.0 as usize]
    }
}

impl PendingRequest {
    /// How far the request's virtual clock is behind `now`. The lag is zero unless the request
    /// waits for its body or for room in the send stream.
    fn lag(&self, now: Instant) -> Duration {
        match self.phase {
            Some(Phase::Body(_) | Phase::Room(_)) => now.since(self.progress),
            _ => Duration::ZERO,
        }
    }
}

/// Returns what counts as one client: an IPv4 address or an IPv6 network.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(address) => {
            let mask = !0 << (128 - IPV6_PREFIX);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;
