//! Responses whose bodies are files on the disk. A response is written chunk by chunk, as the client
//! acknowledges what it has got. Reads are one or two flights ahead of the client, as in the Atlas
//! server (Marinos and others, SIGCOMM 2017).

mod pump;

use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use nmio::Instant;
use tcpip::{ConnectionId, Contents, Info};

use super::shares::{Holding, Shares};
use super::turns::Turns;
use crate::assembled::Piece;
use crate::disk::{CHUNK_LEN, Chunks, InUse, MAX_TOGETHER};
use crate::known_sites::HostedId;
use crate::pending::network;
use crate::status::Status;

/// Time after which a download that waits for memory is tried again.
const RETRY: Duration = Duration::from_millis(10);
/// Maximum number of downloads that are tried again at a time.
const MAX_RETRIES: usize = 128;
/// Maximum number of clients that are examined, and may give way, at a time.
const MAX_LAGGARDS: usize = 64;
/// While others wait for memory, clients are examined in this interval.
const EXAMINED_EACH: Duration = Duration::from_millis(200);
/// A client gives way if it is behind [`MIN_RATE`] by this time and four round-trip times.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes in a second that a client must acknowledge while others wait for memory.
const MIN_RATE: u64 = 16_000;
/// A client is at most so far ahead of [`MIN_RATE`]: this is the time for a chunk. A client that reads
/// seldom acknowledges much at a time.
const MAX_AHEAD_OF_RATE: Duration = Duration::from_millis(CHUNK_LEN as u64 * 1_000 / MIN_RATE);
/// Maximum number of lists whose memory is kept, and the maximum memory of each in bytes.
const MAX_SPARE: usize = 256;
const MAX_SPARE_LEN: usize = 2 << 10;
/// Number of bytes of which a connection keeps a copy when its client does not take what is written. It is
/// enough to keep its zero-window timer running.
const COPIED: usize = 4 << 10;

/// Index of a place in [`Downloads`]. Each connection has at most one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DownloadPlace(u32);

impl DownloadPlace {
    /// The absence of a place.
    const NONE: Self = Self(u32::MAX);

    #[inline(always)]
    pub(super) fn is_some(self) -> bool {
        self != Self::NONE
    }
}

impl Default for DownloadPlace {
    fn default() -> Self {
        Self::NONE
    }
}

/// A response whose body is a file on the disk.
#[derive(Debug)]
pub(super) struct Download {
    pub(super) file: InUse,
    /// The bytes of the response that are not in the file.
    pub(super) own: Vec<u8>,
    /// The pieces of the response. Prepared ones are ranges of the file.
    pub(super) pieces: Vec<Piece>,
    /// The hosted site that answers.
    pub(super) site: HostedId,
    pub(super) status: Status,
    pub(super) body_len: usize,
    /// The head of the request, if it is logged.
    pub(super) request: Option<Box<[u8]>>,
    /// Whether the connection closes after the response.
    pub(super) closes: bool,
}

/// A download, and how far it is.
#[derive(Debug)]
struct Progress {
    download: Download,
    connection: ConnectionId,
    /// The client's address or network.
    client: IpAddr,
    /// Index of the piece to write next, and the number of its bytes that are written.
    next: usize,
    written: usize,
    has_begun: bool,
    waits: Waits,
    /// Number of bytes that the client had to acknowledge when this was last noted. It is 0 if they are in
    /// no chunk.
    owed: u32,
    /// When something was last written, or the client was last examined.
    at: Instant,
    /// The time for which the bytes that it has acknowledged suffice, by [`MIN_RATE`].
    paid_until: Instant,
}

/// What a download waits for, besides the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waits {
    /// For nothing.
    No,
    /// For a chunk that is being read for it.
    ForChunk,
    /// For memory since this time, before a chunk can be read.
    ForMemory(Instant),
    /// For other chunks to be read first.
    ToRead,
}

/// What became of a download when it was continued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pumped {
    /// All of it is written.
    Done,
    /// It waits for the disk, for memory, or for the client.
    Waits,
    /// The connection cannot send any more.
    Ended,
}

/// A connection, and its place in an order: the rank of its client, and a time.
type Ordered = (((bool, u32), Instant), ConnectionId);

/// The downloads of a worker.
#[derive(Debug, Default)]
pub(super) struct Downloads {
    list: Vec<Option<Progress>>,
    free: Vec<DownloadPlace>,
    chunks: Option<Chunks>,
    /// What each client holds. Clients beyond their share get no further chunks now.
    shares: Shares,
    /// The connections to continue or to examine, with their order. The memory is used again.
    ordered: Vec<Ordered>,
    /// Own bytes and pieces of downloads that have ended. Their memory is used again.
    spare_own: Vec<Vec<u8>>,
    spare_pieces: Vec<Vec<Piece>>,
    /// Length of the own bytes of all downloads.
    own_bytes: usize,
    /// When downloads that wait for memory are tried again.
    retry_at: Option<Instant>,
    /// The downloads that wait for other chunks to be read.
    to_read: Turns<DownloadPlace>,
    /// Number of connections that were reset because others waited for memory.
    gave_way: u64,
}

impl Downloads {
    pub(super) fn set_chunks(&mut self, chunks: Chunks) {
        self.chunks = Some(chunks);
    }

    pub(super) fn chunks(&self) -> Option<&Chunks> {
        self.chunks.as_ref()
    }

    /// Length of the text between parts of files, and of heads, in bytes.
    pub(super) fn own_bytes(&self) -> usize {
        self.own_bytes
    }

    /// Adds a download, which nothing of has been written. `place` is the place of the connection's
    /// last download.
    pub(super) fn add(
        &mut self,
        place: DownloadPlace,
        download: Download,
        (connection, peer): (ConnectionId, IpAddr),
        now: Instant,
    ) -> DownloadPlace {
        self.release(place);
        self.own_bytes += download.own.len();
        let progress = Some(Progress {
            download,
            connection,
            client: network(peer),
            next: 0,
            written: 0,
            has_begun: false,
            waits: Waits::No,
            owed: 0,
            at: now,
            paid_until: now,
        });
        let next = DownloadPlace(self.list.len() as u32);
        let place = self.free.pop().unwrap_or(next);
        match self.list.get_mut(place.0 as usize) {
            Some(free) => *free = progress,
            None => self.list.push(progress),
        }
        place
    }

    /// Frees a place, if there is one.
    pub(super) fn release(&mut self, place: DownloadPlace) {
        if let Some(one) = self.list.get_mut(place.0 as usize)
            && let Some(progress) = one.take()
        {
            let Download { own, pieces, .. } = progress.download;
            self.own_bytes -= own.len();
            keep_spare(&mut self.spare_own, own);
            keep_spare(&mut self.spare_pieces, pieces);
            self.free.push(place);
        }
    }

    /// Returns an empty buffer for the own bytes of a download.
    pub(super) fn spare_own(&mut self) -> Vec<u8> {
        self.spare_own.pop().unwrap_or_default()
    }

    /// Returns an empty list for the pieces of a download.
    pub(super) fn spare_pieces(&mut self) -> Vec<Piece> {
        self.spare_pieces.pop().unwrap_or_default()
    }

    fn get(&self, place: DownloadPlace) -> Option<&Progress> {
        self.list.get(place.0 as usize)?.as_ref()
    }

    pub(super) fn download(&self, place: DownloadPlace) -> Option<&Download> {
        Some(&self.get(place)?.download)
    }

    pub(super) fn download_mut(&mut self, place: DownloadPlace) -> Option<&mut Download> {
        Some(&mut self.list.get_mut(place.0 as usize)?.as_mut()?.download)
    }

    /// Whether something of the response has been written.
    pub(super) fn has_begun(&self, place: DownloadPlace) -> bool {
        self.get(place).is_some_and(|progress| progress.has_begun)
    }

    /// Whether the response needs more of its file, which has changed since it was loaded. While the
    /// connection waits for a chunk, the arrival of the chunk decides. Otherwise the arrival would meet
    /// the next response.
    pub(super) fn is_outdated(&self, place: DownloadPlace) -> bool {
        let needs_file =
            |one: &&Progress| one.waits != Waits::ForChunk && one.next_in_file().is_some();
        let progress = self.get(place).filter(needs_file);
        progress.is_some_and(|one| one.download.file.has_changed())
    }

    /// Whether all of the response is written.
    pub(super) fn is_done(&self, place: DownloadPlace) -> bool {
        self.get(place).is_none_or(Progress::is_done)
    }

    /// When to retry downloads that wait for memory.
    #[inline(always)]
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Returns connections to retry, because they wait for memory. Clients with the fewest downloads come
    /// first, and then the connections that have waited longest. Those of clients beyond their share come
    /// last.
    pub(super) fn take_starved(&mut self, now: Instant) -> Vec<Ordered> {
        let mut ordered = std::mem::take(&mut self.ordered);
        let all = self.list.iter().flatten();
        if !all.clone().any(Progress::is_starved) {
            self.shares.clear();
            self.retry_at = None;
            return ordered;
        }
        let capacity = self.chunks.as_ref().map_or(0, Chunks::capacity);
        self.shares
            .update(all.clone().map(Progress::holding), capacity);
        let waiting = all.filter_map(|one| match one.waits {
            Waits::ForMemory(since) => {
                Some(((self.shares.rank(one.client), since), one.connection))
            }
            Waits::No | Waits::ForChunk | Waits::ToRead => None,
        });
        ordered.extend(waiting);
        keep_first(&mut ordered, MAX_RETRIES);
        // Memory counts as short until no download waits for it.
        self.retry_at = Some(now + RETRY);
        ordered
    }

    /// Lets a download wait until fewer chunks are being read.
    fn wait_to_read(&mut self, place: DownloadPlace) {
        if self.to_read.len() > 2 * self.list.len() {
            // Most of them no longer wait, or are in it twice.
            self.to_read.clear();
            let places = (0..).map(DownloadPlace);
            for (place, one) in places.zip(&self.list) {
                if let Some(one) = one.as_ref().filter(|one| one.waits == Waits::ToRead) {
                    self.to_read.add(one.client, place);
                }
            }
        } else if let Some(client) = self.get(place).map(|one| one.client) {
            self.to_read.add(client, place);
        }
    }

    /// Returns the connection whose chunk can be read next, because other chunks have arrived.
    pub(super) fn next_to_read(&mut self) -> Option<ConnectionId> {
        let chunks = self.chunks.as_mut()?;
        chunks.keep_places(false);
        if self.to_read.is_empty() || chunks.is_full() {
            return None;
        }
        let list = &self.list;
        let waits = |client, place: DownloadPlace| {
            let one = list.get(place.0 as usize).and_then(Option::as_ref);
            one.is_some_and(|one| one.waits == Waits::ToRead && one.client == client)
        };
        let place = self
            .to_read
            .take(|client| !chunks.is_busy_for(client), waits)?;
        let one = self.list.get_mut(place.0 as usize)?.as_mut()?;
        one.waits = Waits::No;
        Some(one.connection)
    }

    /// Takes a list back, to use its memory again.
    pub(super) fn reuse(&mut self, mut ordered: Vec<Ordered>) {
        ordered.clear();
        self.ordered = ordered;
    }

    /// Whether a download waits for memory.
    pub(super) fn is_starved(&self, place: DownloadPlace) -> bool {
        self.get(place).is_some_and(Progress::is_starved)
    }

    /// Takes the chunks that have arrived. Returns the connections that have waited for them, each with
    /// whether its chunk is here. Until [`next_to_read`](Self::next_to_read), their places are kept for those
    /// who wait to read.
    pub(super) fn take_arrived(&mut self, contents: &mut Contents) -> Vec<(ConnectionId, bool)> {
        let Some(chunks) = &mut self.chunks else {
            return Vec::new();
        };
        let arrived = chunks.take_arrived(contents);
        chunks.keep_places(!self.to_read.is_empty());
        arrived
    }

    /// Notes that the chunk that a download has waited for has arrived.
    pub(super) fn note_arrival(&mut self, place: DownloadPlace) {
        if let Some(Some(progress)) = self.list.get_mut(place.0 as usize) {
            progress.waits = Waits::No;
        }
    }

    /// Number of connections that were reset because others waited for memory.
    pub(super) fn gave_way(&self) -> u64 {
        self.gave_way
    }

    /// Counts a connection that is reset because others wait for memory.
    pub(super) fn count_gave_way(&mut self) {
        self.gave_way += 1;
    }

    /// Returns connections that may have to give way, because downloads wait for memory. Downloads of
    /// clients beyond their share come first, and then the downloads that are furthest behind.
    pub(super) fn late(&mut self, now: Instant) -> Vec<Ordered> {
        let mut ordered = std::mem::take(&mut self.ordered);
        let all = self.list.iter().flatten();
        if self.retry_at.is_some() && all.clone().any(Progress::is_starved) {
            let late = all.filter(|one| one.owed > 0 && one.at + EXAMINED_EACH < now);
            let order = |one: &Progress| ((!self.shares.is_beyond(one.client), 0), one.paid_until);
            ordered.extend(late.map(|one| (order(one), one.connection)));
            keep_first(&mut ordered, MAX_LAGGARDS);
        }
        ordered
    }

    /// Examines how much a client has acknowledged. Returns true if it is slower than [`MIN_RATE`].
    pub(super) fn is_too_slow(&mut self, place: DownloadPlace, info: &Info, now: Instant) -> bool {
        let Some(Some(progress)) = self.list.get_mut(place.0 as usize) else {
            return false;
        };
        progress.examine(owed(info), now);
        progress.paid_until + PATIENCE + 4 * info.srtt < now
    }
}

/// Keeps the memory of a list, unless it is long, or there is enough.
fn keep_spare<T>(spare: &mut Vec<Vec<T>>, mut list: Vec<T>) {
    if spare.len() < MAX_SPARE && list.capacity() * size_of::<T>() <= MAX_SPARE_LEN {
        list.clear();
        spare.push(list);
    }
}

/// Keeps the first entries of a list, in their order.
fn keep_first(list: &mut Vec<Ordered>, most: usize) {
    if list.len() > most {
        list.select_nth_unstable_by_key(most, |one| one.0);
        list.truncate(most);
    }
    list.sort_unstable_by_key(|one| one.0);
}

/// Returns the number of bytes that the client has to acknowledge.
pub(super) fn owed(info: &Info) -> u32 {
    info.unacked + info.unsent
}

impl Progress {
    fn is_done(&self) -> bool {
        self.next >= self.download.pieces.len()
    }

    /// Notes that the client has yet to acknowledge `owed` bytes.
    fn examine(&mut self, owed: u32, now: Instant) {
        let acked = u64::from(self.owed.saturating_sub(owed));
        let paid = self.paid_until + Duration::from_micros(acked * 1_000_000 / MIN_RATE);
        self.paid_until = paid.min(now + MAX_AHEAD_OF_RATE);
        (self.owed, self.at) = (self.owed.min(owed), now);
    }

    /// Notes that more is written, and that the client has to acknowledge `owed` bytes.
    fn note_written(&mut self, owed: u32, now: Instant) {
        (self.owed, self.at) = (owed, now);
        // The client is judged by what it does with this chunk.
        self.paid_until = self.paid_until.max(now);
    }

    /// Number of bytes of the response that are written.
    fn all_written(&self) -> usize {
        let whole = self.download.pieces[..self.next].iter().map(Piece::len);
        whole.sum::<usize>() + self.written
    }

    /// Notes that the last `len` bytes must be written again.
    fn unwrite(&mut self, len: usize) {
        let mut left = len;
        while left > 0 {
            if self.written == 0 {
                let Some(last) = self.next.checked_sub(1) else {
                    return;
                };
                self.next = last;
                self.written = self.download.pieces[last].len();
            }
            let part = left.min(self.written);
            self.written -= part;
            left -= part;
        }
    }

    fn is_starved(&self) -> bool {
        matches!(self.waits, Waits::ForMemory(_))
    }

    /// Notes that the download waits for memory, if it has not waited before.
    fn wait_for_memory(&mut self, now: Instant) {
        if !self.is_starved() {
            self.waits = Waits::ForMemory(now);
        }
    }

    /// What the client holds.
    fn holding(&self) -> Holding {
        let unacknowledged = (self.owed as usize).div_ceil(CHUNK_LEN);
        let arriving = usize::from(self.waits == Waits::ForChunk);
        Holding {
            client: self.client,
            held: (unacknowledged + arriving) * CHUNK_LEN.min(self.download.file.len()),
            is_starved: self.is_starved(),
        }
    }

    /// Returns the chunk that is needed next, and the part of it.
    fn next_in_file(&self) -> Option<(u32, Range<usize>)> {
        let mut pieces = self.download.pieces[self.next..].iter().enumerate();
        pieces.find_map(|(at, piece)| {
            let Piece::Prepared(range) = piece else {
                return None;
            };
            let from = range.start + if at == 0 { self.written } else { 0 };
            let chunk = from / CHUNK_LEN;
            let base = chunk * CHUNK_LEN;
            let end = range.end.min(base + CHUNK_LEN);
            (from < range.end).then_some((chunk as u32, from - base..end - base))
        })
    }

    /// Returns the chunks to be read from `chunk` on. They have `read_ahead` bytes behind it, and end where
    /// chunks that are read together end. There are none behind what is sent of the file.
    fn soon(&self, chunk: u32, read_ahead: usize) -> Range<u32> {
        if read_ahead == 0 {
            return chunk..chunk + 1;
        }
        let pieces = &self.download.pieces[self.next..];
        let end = pieces.iter().find_map(|piece| match piece {
            Piece::Prepared(range) => Some(range.end.div_ceil(CHUNK_LEN) as u32),
            Piece::Assembled(_) => None,
        });
        let last = chunk + 1 + read_ahead.div_ceil(CHUNK_LEN) as u32;
        let last = last.next_multiple_of(MAX_TOGETHER as u32);
        chunk..end.unwrap_or(0).clamp(chunk + 1, last)
    }
}
