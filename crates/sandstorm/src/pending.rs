//! Pending requests: their body is incomplete, their answer comes later, or the send stream has no
//! room for their response.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::time::Duration;

use arrayvec::ArrayVec;
use nmio::Instant;
use tcpip::ContentId;

use crate::body::BodyReader;
use crate::date::Stamp;

/// The most memory for the pending requests of one worker, in bytes. It holds their entries, heads
/// and collected bodies.
pub const MAX_PENDING_BYTES: usize = 64 << 20;
/// The largest buffer that a free place keeps for the next request, in bytes.
const KEPT_BYTES: usize = 2_048;

/// How many places are examined when memory runs short. The next search continues after them.
const SAMPLE: usize = 128;
type Sample = ArrayVec<Place, SAMPLE>;
/// One client address may have 1/`SHARE` of the memory while other addresses ask for memory.
const SHARE: usize = 8;
/// A request whose lag is shorter is not evicted for another address while its own address is
/// within its share.
const MIN_LACK: Duration = Duration::from_secs(1);
/// What each received byte of a body adds to its request's progress. At 16,000 bytes a second,
/// progress keeps up with time.
const PROGRESS_OF_BYTE: Duration = Duration::from_nanos(62_500);
/// How far the progress of a client may be ahead of time.
const CREDIT: Duration = Duration::from_secs(2);
/// The prefix length by which IPv6 addresses count as one client. It equals the default of
/// [`tcpip::Config::ipv6_prefix`].
const IPV6_PREFIX: u32 = 64;

/// Index of a place in [`Pending`]. Each connection has at most one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place(u32);

impl Place {
    /// The index of no place.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

impl Default for Place {
    fn default() -> Self {
        Self::NONE
    }
}

/// What a pending request waits for.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Waits for the rest of its body.
    Body(Body),
    /// Waits for the application's answer. `serial` is the serial number of the request.
    Answer {
        serial: u64,
        /// The body is not read, so the connection closes after the answer.
        close: bool,
    },
    /// Waits for room in the connection's send stream.
    Room(Outgoing),
    /// Waits for more of a streamed response, of which a part has been sent.
    Stream(Stream),
    /// Waits for nothing: it was evicted, and its client must still be told.
    Evicted(Option<Busy>),
}

/// How an evicted request is answered. `None` in [`Phase::Evicted`] means that its response was
/// lost and no other can be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Busy {
    pub(crate) head_only: bool,
    pub(crate) close: bool,
}

/// A request body that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) reader: BodyReader,
    /// The most bytes that the body may still have.
    pub(crate) left: u64,
    /// The application gets the body in pieces.
    pub(crate) in_pieces: bool,
    /// The client has sent `Expect: 100-continue` and was not answered yet.
    pub(crate) owes_continue: bool,
}

/// What is sent after the bytes that were written into the output buffer.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) content: Option<(ContentId, Range<u32>)>,
    pub(crate) stamp: Stamp,
    /// If present, more pieces of the response follow.
    pub(crate) stream: Option<Stream>,
}

impl Outgoing {
    /// Makes the outgoing part of a response that ends here.
    pub(crate) fn new(content: Option<(ContentId, Range<u32>)>, stamp: Stamp) -> Self {
        Self {
            content,
            stamp,
            stream: None,
        }
    }

    /// Returns the same value, followed by more pieces.
    pub(crate) fn followed_by(self, stream: Option<Stream>) -> Self {
        Self { stream, ..self }
    }
}

/// A response that is sent in pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The request's serial number.
    pub(crate) serial: u64,
    /// The pieces are sent as chunks.
    pub(crate) chunked: bool,
    /// The connection closes after the response.
    pub(crate) close: bool,
    /// The application has no more data for now.
    pub(crate) waits: bool,
}

/// One pending request.
#[derive(Debug)]
struct Entry {
    /// `None` if the place is free.
    phase: Option<Phase>,
    /// A time that each received byte of the body advances. If bytes arrive slowly, it falls behind
    /// `now`.
    progress: Instant,
    client: IpAddr,
    /// The head and the part of the body collected so far, or the response bytes to be sent.
    bytes: Vec<u8>,
}

/// All pending requests of a worker.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    entries: Vec<Entry>,
    free: Vec<Place>,
    /// The memory that the entries and their buffers use, in bytes.
    memory: usize,
    /// The place at which the next search for memory begins.
    hand: usize,
}

/// There is no memory for the request.
#[derive(Debug)]
pub(crate) struct Exhausted;

impl Pending {
    /// Takes a place for a request of `peer`, and stores `bytes` there.
    pub(crate) fn take(
        &mut self,
        phase: Phase,
        bytes: &[u8],
        peer: IpAddr,
        now: Instant,
    ) -> Result<Place, Exhausted> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.memory += size_of::<Entry>();
            self.entries.push(Entry {
                phase: None,
                progress: now,
                client: peer,
                bytes: Vec::new(),
            });
            Place(self.entries.len() as u32 - 1)
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

    /// Returns what a request waits for. `None` for [`Place::NONE`].
    #[inline]
    pub(crate) fn phase(&mut self, place: Place) -> Option<&mut Phase> {
        let entry = self.entries.get_mut(place.0 as usize)?;
        entry.phase.as_mut()
    }

    /// Appends to the request's bytes. Other requests may be evicted for this.
    pub(crate) fn append(
        &mut self,
        place: Place,
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
                self.make_way(place, memory - MAX_PENDING_BYTES, now)?;
            }
            let entry = self.entry(place);
            entry.bytes.reserve_exact(grown - entry.bytes.len());
            self.memory += self.entry(place).bytes.capacity() - before;
        }
        self.entry(place).bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Examines some places and frees `needed` bytes for the request at `asker`. It first takes the
    /// buffers that free places keep, and then evicts requests.
    ///
    /// The order is that of the TCP stack. Requests of an address that holds more than its
    /// [`SHARE`] go first, then the requests that lag most because their client sends or reads
    /// slowly. A request that waits for the application does not lag. If the asker's address
    /// already holds its share, no other address loses a request.
    #[cold]
    fn make_way(&mut self, asker: Place, needed: usize, now: Instant) -> Result<(), Exhausted> {
        let sample = self.sample();
        let mut freed = 0;
        for place in &sample {
            let entry = self.entry(*place);
            if entry.phase.is_none() && *place != asker {
                freed += std::mem::take(&mut entry.bytes).capacity();
            }
        }
        self.memory -= freed;
        for place in self.ranked(sample, asker, now) {
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

    /// Returns the requests of a sample that may be evicted for `asker`, in the order of eviction.
    fn ranked(&self, mut sample: Sample, asker: Place, now: Instant) -> Sample {
        let entry = |place: &Place| &self.entries[place.0 as usize];
        let memory = |places: &[Place]| -> usize {
            let each = places.iter().map(|place| entry(place).bytes.capacity());
            each.sum()
        };
        // The memory of the sample, but not less than an average sample has.
        let average = self.memory / self.entries.len() * sample.len();
        let share = memory(&sample).max(average) / SHARE;
        let client = entry(&asker).client;
        let least = MIN_LACK.max(entry(&asker).lack(now));
        sample.sort_unstable_by_key(|place| entry(place).client);
        let clients = || sample.chunk_by(|a, b| entry(a).client == entry(b).client);
        let is_own = |places: &[Place]| entry(&places[0]).client == client;
        let asks_beyond = clients().any(|places| is_own(places) && memory(places) > share);
        let mut ranked: ArrayVec<_, SAMPLE> = ArrayVec::new();
        for places in clients() {
            let is_own = is_own(places);
            if asks_beyond && !is_own {
                continue;
            }
            let is_beyond = !is_own && memory(places) > share;
            for place in places {
                let (lack, memory) = (entry(place).lack(now), entry(place).bytes.capacity());
                if *place != asker && memory > 0 && (is_beyond || lack > least) {
                    ranked.push(Reverse((is_beyond, lack, memory, *place)));
                }
            }
        }
        ranked.sort_unstable();
        let places = ranked.into_iter().map(|Reverse((.., place))| place);
        places.collect()
    }

    /// Returns the places to be examined next.
    fn sample(&mut self) -> Sample {
        let len = self.entries.len();
        let sample = (0..len.min(SAMPLE)).map(|at| Place(((self.hand + at) % len) as u32));
        let sample = sample.collect();
        self.hand = (self.hand + SAMPLE) % len;
        sample
    }

    /// Evicts a request and returns how many bytes this frees.
    fn evict(&mut self, place: Place) -> usize {
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

    /// Takes the request's bytes out. The caller drops them, or returns them with
    /// [`keep`](Self::keep).
    pub(crate) fn take_bytes(&mut self, place: Place) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.entry(place).bytes);
        self.memory -= bytes.capacity();
        bytes
    }

    /// Stores bytes in a place that has none.
    fn put_bytes(&mut self, place: Place, bytes: Vec<u8>) {
        self.memory += bytes.capacity();
        self.entry(place).bytes = bytes;
    }

    /// Records that `came` more bytes of a request's body have arrived.
    pub(crate) fn update_body(&mut self, place: Place, body: Body, came: usize, now: Instant) {
        let entry = self.entry(place);
        entry.phase = Some(Phase::Body(body));
        let gained = PROGRESS_OF_BYTE.saturating_mul(came as u32);
        entry.progress = (entry.progress + gained).min(now + CREDIT);
    }

    /// Makes the request wait for something else.
    pub(crate) fn set_phase(&mut self, place: Place, phase: Phase, now: Instant) {
        let entry = self.entry(place);
        entry.phase = Some(phase);
        entry.progress = now;
    }

    /// Removes a request that is finished.
    pub(crate) fn release(&mut self, place: Place) {
        let Some(entry) = self.entries.get_mut(place.0 as usize) else {
            return;
        };
        if entry.phase.take().is_none() {
            return;
        }
        self.free.push(place);
        self.tidy(place);
    }

    /// Returns bytes that were [taken out](Self::take_bytes) for an answer. They are stored only if
    /// the request still waits for an answer.
    pub(crate) fn keep(&mut self, place: Place, bytes: Vec<u8>) {
        match self.entry(place).phase {
            Some(Phase::Answer { .. }) => self.put_bytes(place, bytes),
            Some(_) => {}
            None => {
                self.put_bytes(place, bytes);
                self.tidy(place);
            }
        }
    }

    /// Frees the memory of a free place, except for a small buffer that the next request can use.
    fn tidy(&mut self, place: Place) {
        let memory = self.memory;
        let entry = self.entry(place);
        let before = entry.bytes.capacity();
        entry.bytes.clear();
        // Buffers of free places may take at most half of the memory.
        if before > KEPT_BYTES || memory > MAX_PENDING_BYTES / 2 {
            entry.bytes = Vec::new();
        }
        let given = before - entry.bytes.capacity();
        self.memory -= given;
    }

    fn entry(&mut self, place: Place) -> &mut Entry {
        &mut self.entries[place.0 as usize]
    }
}

impl Entry {
    /// How far a client's progress lies behind `now`. Zero while the request waits for the
    /// application.
    fn lack(&self, now: Instant) -> Duration {
        match self.phase {
            Some(Phase::Body(_) | Phase::Room(_)) => now.since(self.progress),
            _ => Duration::ZERO,
        }
    }
}

/// Returns what counts as one client: an IPv4 address or an IPv6 network.
fn network(peer: IpAddr) -> IpAddr {
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
