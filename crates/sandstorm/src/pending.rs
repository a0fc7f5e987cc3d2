//! Requests that are under way between two arrivals of bytes: a body that is not
//! whole, an answer that comes later, an answer that finds no room.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::time::Duration;

use arrayvec::ArrayVec;
use nmio::Instant;
use tcpip::ContentId;

use crate::body::BodyReader;
use crate::date::Stamp;

/// The most bytes of memory for the requests that are under way in one worker: their
/// places, their heads, and bodies that are collected.
pub const MAX_PENDING_BYTES: usize = 64 << 20;
/// The memory that a place keeps for the next request.
const KEPT_BYTES: usize = 2_048;

/// Places that are looked at when the memory runs short; the next time it is the next
/// ones.
const SAMPLE: usize = 128;
type Sample = ArrayVec<Place, SAMPLE>;
/// The part of the memory that one client address may have while others ask for it is
/// one in so many.
const SHARE: usize = 8;
/// A request that lacks less progress than this does not give way to another address
/// within its share.
const MIN_LACK: Duration = Duration::from_secs(1);
/// What a byte of a body adds to its request's progress: 16,000 a second keep up with
/// time.
const PROGRESS_OF_BYTE: Duration = Duration::from_nanos(62_500);
/// Progress may be so far ahead of time.
const CREDIT: Duration = Duration::from_secs(2);
/// Leading bits by which IPv6 addresses count as one, as
/// [`tcpip::Config::ipv6_prefix`] is by default.
const IPV6_PREFIX: u32 = 64;

/// Names a place in [`Pending`]. Each connection has at most one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place(u32);

impl Place {
    /// No place.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

impl Default for Place {
    fn default() -> Self {
        Self::NONE
    }
}

/// What a request under way waits for.
#[derive(Debug)]
pub(crate) enum Phase {
    /// For its body.
    Body(Body),
    /// For the application's answer. The request has this serial number.
    Answer {
        serial: u64,
        /// The body is not read: the connection closes after the answer.
        close: bool,
    },
    /// For room in the connection's stream.
    Room(Outgoing),
    /// For more of a response, of which a part has been sent.
    Stream(Stream),
    /// For nothing: it has given way to others, and its client is to be told so.
    GaveWay(Option<Busy>),
}

/// How a request is answered that has given way. Where there is a response already, which
/// is lost now, nothing can be said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Busy {
    pub(crate) head_only: bool,
    pub(crate) close: bool,
}

/// A body that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) reader: BodyReader,
    /// How many bytes may still come.
    pub(crate) left: u64,
    /// The application gets it in pieces.
    pub(crate) in_pieces: bool,
    /// The client was not yet told to go on, and may wait for that.
    pub(crate) owes_continue: bool,
}

/// What is to be sent beside the bytes that were made.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) content: Option<(ContentId, Range<u32>)>,
    pub(crate) stamp: Stamp,
    /// The response goes on with pieces.
    pub(crate) stream: Option<Stream>,
}

impl Outgoing {
    /// A response that ends here.
    pub(crate) fn new(content: Option<(ContentId, Range<u32>)>, stamp: Stamp) -> Self {
        Self {
            content,
            stamp,
            stream: None,
        }
    }

    /// The same with pieces that follow.
    pub(crate) fn followed_by(self, stream: Option<Stream>) -> Self {
        Self { stream, ..self }
    }
}

/// A response that is made in pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The request's serial number.
    pub(crate) serial: u64,
    /// The pieces are chunks.
    pub(crate) chunked: bool,
    /// The connection closes behind it.
    pub(crate) close: bool,
    /// The application has no more for now.
    pub(crate) waits: bool,
}

/// One request under way.
#[derive(Debug)]
struct Entry {
    /// `None` in a place that is free.
    phase: Option<Phase>,
    /// A moment that bytes of the body move on; time overtakes those that come slowly.
    progress: Instant,
    client: IpAddr,
    /// The head and what was collected of the body; or what was made to be sent.
    bytes: Vec<u8>,
}

/// All requests under way.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    entries: Vec<Entry>,
    free: Vec<Place>,
    /// Bytes of memory that the entries are and have.
    memory: usize,
    /// Where places were looked at last.
    hand: usize,
}

/// There is no memory for a request.
#[derive(Debug)]
pub(crate) struct Exhausted;

impl Pending {
    /// Takes a place for a request of `peer` that begins with `bytes`.
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

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// What a request waits for; `None` of [`Place::NONE`].
    #[inline]
    pub(crate) fn phase(&mut self, place: Place) -> Option<&mut Phase> {
        let entry = self.entries.get_mut(place.0 as usize)?;
        entry.phase.as_mut()
    }

    /// Adds to its bytes. Others may have to give way.
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

    /// Looks at some places, and frees `needed` bytes for a request that asks for them:
    /// memory that free places keep, and then that of requests which have less right to it.
    ///
    /// The rule is that of the TCP stack. First those give way whose address has more than
    /// its [`SHARE`], and then those that lack most progress: whose body comes slowly, or
    /// whose client reads slowly. Who waits for the application is not to blame for that,
    /// and lacks nothing. An asker whose address has its share takes nothing from others.
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
            freed += self.give_way(place);
        }
        if freed < needed {
            return Err(Exhausted);
        }
        Ok(())
    }

    /// Those of a sample that give way to a request, the first that does first.
    fn ranked(&self, mut sample: Sample, asker: Place, now: Instant) -> Sample {
        let entry = |place: &Place| &self.entries[place.0 as usize];
        let memory = |places: &[Place]| -> usize {
            let each = places.iter().map(|place| entry(place).bytes.capacity());
            each.sum()
        };
        // At least what these would have on average.
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

    /// The next places that are looked at.
    fn sample(&mut self) -> Sample {
        let len = self.entries.len();
        let sample = (0..len.min(SAMPLE)).map(|at| Place(((self.hand + at) % len) as u32));
        let sample = sample.collect();
        self.hand = (self.hand + SAMPLE) % len;
        sample
    }

    /// This request gives its memory to others. How much.
    fn give_way(&mut self, place: Place) -> usize {
        let bytes = self.take_bytes(place);
        let head_only = bytes.starts_with(b"HEAD ");
        let busy = |close| Busy { head_only, close };
        let entry = self.entry(place);
        entry.phase = match entry.phase {
            Some(Phase::Body(_)) => Some(Phase::GaveWay(Some(busy(true)))),
            Some(Phase::Answer { close, .. }) => Some(Phase::GaveWay(Some(busy(close)))),
            _ => Some(Phase::GaveWay(None)),
        };
        bytes.capacity()
    }

    /// Takes its bytes out, to be given back by [`keep`](Self::keep) or dropped.
    pub(crate) fn take_bytes(&mut self, place: Place) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.entry(place).bytes);
        self.memory -= bytes.capacity();
        bytes
    }

    /// Gives bytes to a place that has none.
    fn put_bytes(&mut self, place: Place, bytes: Vec<u8>) {
        self.memory += bytes.capacity();
        self.entry(place).bytes = bytes;
    }

    /// So many bytes of a request's body have come.
    pub(crate) fn update_body(&mut self, place: Place, body: Body, came: usize, now: Instant) {
        let entry = self.entry(place);
        entry.phase = Some(Phase::Body(body));
        let gained = PROGRESS_OF_BYTE.saturating_mul(came as u32);
        entry.progress = (entry.progress + gained).min(now + CREDIT);
    }

    /// The request waits for something else now.
    pub(crate) fn set_phase(&mut self, place: Place, phase: Phase, now: Instant) {
        let entry = self.entry(place);
        entry.phase = Some(phase);
        entry.progress = now;
    }

    /// The request is over.
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

    /// Gives the bytes back that were [taken out](Self::take_bytes) for an answer. They
    /// are kept as long as the request waits for another.
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

    /// Sees to the memory of a place that is free.
    fn tidy(&mut self, place: Place) {
        let memory = self.memory;
        let entry = self.entry(place);
        let before = entry.bytes.capacity();
        entry.bytes.clear();
        // What is kept leaves half of the memory to those under way.
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
    /// How far a request's progress lies behind `now`: that of a client, not of the
    /// application.
    fn lack(&self, now: Instant) -> Duration {
        match self.phase {
            Some(Phase::Body(_) | Phase::Room(_)) => now.since(self.progress),
            _ => Duration::ZERO,
        }
    }
}

/// What counts as one client: an IPv4 address, or an IPv6 network.
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
