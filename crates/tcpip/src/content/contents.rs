//! The contents of a stack, and the client classes for which they are cut into segments.

use std::sync::Arc;

use nmio::{IdleResident, Pool};

use super::{
    Class, Family, MAX_SLOT_LEN, Rendered, ResidentCopies, Segments, SendMode, Slot, UNKNOWN,
    segment_sum,
};

/// Maximum length of a content item in bytes. Offsets in a send stream have 32 bits. The limit
/// leaves 1 MiB for other data in the same stream, for example the response's header.
pub const MAX_CONTENT_LEN: usize = (u32::MAX - (1 << 20)) as usize;
/// Maximum number of content items in one stack. The index of a content item has 30 bits.
pub const MAX_CONTENTS: usize = 1 << 30;
/// Maximum number of classes that exist at the same time. A class is all connections with the same
/// IP family and maximum segment size. For a client that finds no class free, the stack assembles
/// segments when it sends them.
pub const MAX_CLASSES: usize = 32;
/// Number of permanent classes: one for IPv4 and one for IPv6, each with our own MSS.
const PINNED_CLASSES: usize = 2;

/// Number of resident packets that one pass of the event loop frees, so that received packets need
/// not wait long.
const FREED_IN_A_PASS: usize = 256;

const _: () = assert!(MAX_CLASSES < Contents::NO_CLASS as usize);

/// Identifies a content item within one [`Contents`] collection. A collection never reuses an id,
/// but two collections may assign the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId {
    index: u32,
    generation: u32,
}

/// Why a content item could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The content is longer than [`MAX_CONTENT_LEN`].
    #[error("a content of {len} bytes is longer than {MAX_CONTENT_LEN}; serve it in parts")]
    TooLong {
        /// Length of the rejected content in bytes.
        len: usize,
    },
    /// The slot is empty, longer than [`MAX_SLOT_LEN`], or not within the content item.
    #[error(
        "the slot of {} bytes at {} is empty, longer than {MAX_SLOT_LEN}, or not within the content's {len} bytes",
        slot.len, slot.offset
    )]
    BadSlot {
        /// The rejected slot.
        slot: Slot,
        /// Length of the content item in bytes.
        len: usize,
    },
    /// There are already [`MAX_CONTENTS`] content items, including removed ones that send streams
    /// still contain.
    #[error("there are {MAX_CONTENTS} contents already; remove some")]
    TooMany,
}

/// Number and size of all content items, their segments and their resident packets, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of content items, including removed ones that send streams still contain.
    pub contents: u64,
    /// Total length of these content items in bytes. Bytes that several items share count once for
    /// each item.
    pub bytes: u64,
    /// Total length of the temporary ones among these content items, in bytes. They belong to one
    /// connection each: see [`Connection::write_once`](crate::Connection::write_once).
    pub temporary_bytes: u64,
    /// Number of prepared segments, including those whose checksum is not yet computed.
    pub packets: u64,
    /// Number of resident packets in the port's memory.
    pub residents: u64,
    /// Memory for the checksums and bookkeeping of segments, in bytes. Excludes the content items
    /// with their bytes, and resident packets in the port's memory. The checksum of a single segment
    /// is part of its item.
    pub memory: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Live,
    /// The content item was removed, but send streams still contain slices of it.
    Leaving,
    Free,
}

/// A content item and its segments in each class.
#[derive(Debug)]
struct Content {
    bytes: Arc<[u8]>,
    slot: Option<Slot>,
    /// Checksums for the permanent classes in which the item is [single](Contents::is_single).
    single_sums: [u16; PINNED_CLASSES],
    /// Segments of the content item, indexed by class. The list ends with the highest class for
    /// which the item was ever cut into segments.
    segments: Box<[Segments]>,
    /// Number of stream entries that hold a slice of the content item.
    refs: u32,
    generation: u32,
    life: Life,
    is_temporary: bool,
}

/// All contents of one [`Stack`](crate::Stack), with their segments.
///
/// The stacks of several cores can share the bytes of content items ([`Arc`]). Each stack has its
/// own checksums, and its own resident packets in its port's memory.
#[derive(Debug)]
pub struct Contents {
    mode: SendMode,
    list: Vec<Content>,
    free: Vec<u32>,
    /// Resident packets of items that are gone.
    leaving: Leaving,
    classes: Vec<Class>,
    /// Logical clock that ticks when a connection joins or leaves a class, to find the least
    /// recently used class.
    uses: u64,
    /// Maximum memory for segments of on-demand classes (all but the two permanent ones), in bytes.
    /// `on_demand` is the memory that these segments use now.
    budget: usize,
    on_demand: usize,
    totals: Totals,
    /// Buffer in which a packet is assembled before it becomes resident.
    workbench: Vec<u8>,
}

impl Contents {
    /// Class index of a connection that belongs to no class.
    pub(crate) const NO_CLASS: u8 = u8::MAX;

    /// Creates an empty collection. `mss_v4` and `mss_v6` are the payload lengths of our own full
    /// segments. `budget` limits the memory for segments of other lengths, in bytes.
    pub(crate) fn new(mode: SendMode, mss_v4: u16, mss_v6: u16, budget: usize) -> Self {
        Self {
            mode,
            list: Vec::new(),
            free: Vec::new(),
            leaving: Leaving::default(),
            classes: vec![
                Class::new(Family::V4, mss_v4),
                Class::new(Family::V6, mss_v6),
            ],
            uses: 0,
            budget,
            on_demand: 0,
            totals: Totals::default(),
            workbench: Vec::new(),
        }
    }

    /// Makes room in the tables for `additional` content items, so that adding and removing them
    /// later moves no table.
    ///
    /// # Panics
    /// If the system has no address space for it.
    pub fn reserve(&mut self, additional: usize) {
        self.list.reserve(additional);
        self.free.reserve(self.list.len() + additional);
    }

    /// Adds a content item. For each class, the item is cut into segments by
    /// [`prepare`](Self::prepare), or else when it is first sent.
    ///
    /// # Errors
    ///
    /// Returns a [`ContentError`] if the content item cannot be added. The collection is then
    /// unchanged.
    pub fn add(&mut self, bytes: Arc<[u8]>, slot: Option<Slot>) -> Result<ContentId, ContentError> {
        let len = bytes.len();
        if len > MAX_CONTENT_LEN {
            return Err(ContentError::TooLong { len });
        }
        if let Some(slot) = slot {
            let end = u64::from(slot.offset) + u64::from(slot.len);
            if slot.len == 0 || slot.len as usize > MAX_SLOT_LEN || end > len as u64 {
                return Err(ContentError::BadSlot { slot, len });
            }
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.list.len() < MAX_CONTENTS => {
                self.list.push(Content {
                    bytes: Arc::new([]),
                    slot: None,
                    single_sums: [UNKNOWN; PINNED_CLASSES],
                    segments: Box::default(),
                    refs: 0,
                    generation: 0,
                    life: Life::Free,
                    is_temporary: false,
                });
                self.list.len() as u32 - 1
            }
            None => return Err(ContentError::TooMany),
        };
        let content = &mut self.list[index as usize];
        content.bytes = bytes;
        content.slot = slot;
        content.life = Life::Live;
        self.totals.contents += 1;
        self.totals.bytes += len as u64;
        Ok(ContentId {
            index,
            generation: content.generation,
        })
    }

    /// Cuts a content item into segments in advance, for clients of one IP family, so that the
    /// first client need not wait. Computes the checksum of every segment. In
    /// [`SendMode::PreCopy`], also makes a resident packet of each segment, until the port has no
    /// more memory for resident packets. Returns the number of resident packets made.
    ///
    /// The segments have our own maximum segment size, which nearly all clients accept. Segments
    /// for the remaining clients are prepared when they are first sent.
    pub fn prepare(&mut self, id: ContentId, pool: &Pool, family: Family) -> u32 {
        let Some((index, len)) = self.lookup(id) else {
            return 0;
        };
        let class = match family {
            Family::V4 => 0,
            Family::V6 => 1,
        };
        if len == 0 {
            return 0;
        }
        if self.is_single(index, class) {
            self.add_single_sum(index, class);
            return 0;
        }
        if !self.ensure_segments(index, class) {
            return 0;
        }
        let mss = u32::from(self.classes[usize::from(class)].mss);
        let before = self.totals.residents;
        for segment in 0..len.div_ceil(mss) {
            self.add_sum(index, class, segment);
            let segments = &mut self.list[index as usize].segments[usize::from(class)];
            if segments.copies(segment).is_some_and(|c| c.is_empty()) {
                self.resident(index, class, segment, pool);
            }
        }
        (self.totals.residents - before) as u32
    }

    /// [Prepares](Self::prepare) all content items for clients of one IP family.
    pub fn prepare_all(&mut self, pool: &Pool, family: Family) {
        for index in 0..self.list.len() as u32 {
            let generation = self.list[index as usize].generation;
            // `prepare` ignores the id of a removed content item.
            self.prepare(ContentId { index, generation }, pool, family);
        }
    }

    /// Removes a content item, so that it can no longer be written to a stream. Its memory is freed
    /// when no stream contains a slice of it. If it has many resident packets, the stack frees a part
    /// of them in each pass of the event loop. Those of a [temporary](Self::add_temporary) item are
    /// freed at once. Returns `false` if the item was already removed.
    pub fn remove(&mut self, id: ContentId) -> bool {
        let Some((index, _)) = self.lookup(id) else {
            return false;
        };
        let content = &mut self.list[index as usize];
        content.life = Life::Leaving;
        if content.refs == 0 {
            self.free(index);
        }
        true
    }

    /// Returns true if a send stream contains a slice of the content item, so that removing the item
    /// would free no memory yet.
    pub fn is_in_use(&self, id: ContentId) -> bool {
        let found = self.lookup(id);
        found.is_some_and(|(index, _)| self.list[index as usize].refs > 0)
    }

    /// Returns true if resident packets of content items that are gone are not freed yet.
    #[inline(always)]
    pub fn is_freeing(&self) -> bool {
        self.leaving.is_pending()
    }

    /// Frees some resident packets of content items that are gone. The stack does so once in each pass
    /// of the event loop, so an application need not.
    #[inline(always)]
    pub fn free_some(&mut self) {
        if self.leaving.needs_pass() {
            self.totals.residents -= self.leaving.free_some();
        }
    }

    /// Adds a content item for one connection. [`Totals::temporary_bytes`] counts its bytes, so that
    /// an application can limit what slow clients hold. It must be [removed](Self::remove) when it is
    /// written.
    ///
    /// # Errors
    /// Same as [`add`](Self::add).
    pub fn add_temporary(&mut self, bytes: Arc<[u8]>) -> Result<ContentId, ContentError> {
        let len = bytes.len() as u64;
        let id = self.add(bytes, None)?;
        self.list[id.index as usize].is_temporary = true;
        self.totals.temporary_bytes += len;
        Ok(id)
    }

    /// Returns the totals of the collection.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns a content item's bytes, or `None` if the item was removed.
    pub fn bytes(&self, id: ContentId) -> Option<&Arc<[u8]>> {
        let (index, _) = self.lookup(id)?;
        Some(&self.list[index as usize].bytes)
    }

    /// Returns the index and length of a content item, or `None` if the item was removed.
    #[inline(always)]
    pub(crate) fn lookup(&self, id: ContentId) -> Option<(u32, u32)> {
        let content = self.list.get(id.index as usize)?;
        let live = content.generation == id.generation && content.life == Life::Live;
        live.then_some((id.index, content.bytes.len() as u32))
    }

    /// Returns the bytes and the slot of the content item at this index.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> (&Arc<[u8]>, Option<Slot>) {
        let content = &self.list[index as usize];
        (&content.bytes, content.slot)
    }

    /// Counts a new stream entry that holds a slice of the content item.
    #[inline(always)]
    pub(crate) fn acquire(&mut self, index: u32) {
        self.list[index as usize].refs += 1;
    }

    /// Counts a stream entry as gone. If the content item was removed and this was its last stream
    /// entry, frees the item.
    #[inline(always)]
    pub(crate) fn release(&mut self, index: u32) {
        let content = &mut self.list[index as usize];
        content.refs -= 1;
        if content.refs == 0 && content.life == Life::Leaving {
            self.free(index);
        }
    }

    #[cold]
    fn free(&mut self, index: u32) {
        for class in 0..self.list[index as usize].segments.len() {
            let place = self.list[index as usize].segments[class].place;
            if self.drop_segments(index, class) && class >= PINNED_CLASSES {
                self.unlist(class, place);
            }
        }
        let content = &mut self.list[index as usize];
        self.totals.contents -= 1;
        self.totals.bytes -= content.bytes.len() as u64;
        if std::mem::take(&mut content.is_temporary) {
            self.totals.temporary_bytes -= content.bytes.len() as u64;
        }
        content.bytes = Arc::new([]);
        content.slot = None;
        let single_sums = std::mem::take(&mut content.single_sums);
        self.totals.packets -= single_sums.iter().filter(|sum| **sum != UNKNOWN).count() as u64;
        content.segments = Box::default();
        content.life = Life::Free;
        // Ids must not be reused, so an index is retired when its generation counter would
        // overflow.
        if let Some(next) = content.generation.checked_add(1) {
            content.generation = next;
            self.free.push(index);
        }
    }

    /// Adds a connection to the class of `family` and `mss`, and returns the class. If the class
    /// does not exist, creates it in an unused place, or else in place of a class without
    /// connections. Returns [`Self::NO_CLASS`] if neither is possible.
    pub(crate) fn acquire_class(&mut self, family: Family, mss: u16) -> u8 {
        self.uses += 1;
        let known = self
            .classes
            .iter()
            .position(|class| class.family == family && class.mss == mss);
        let Some(number) = known.or_else(|| self.create_class(family, mss)) else {
            return Self::NO_CLASS;
        };
        let class = &mut self.classes[number];
        class.connections += 1;
        class.used = self.uses;
        number as u8
    }

    /// Creates a class in an unused place, or else in place of a class without connections. Returns
    /// its place, or `None` if neither is possible.
    #[cold]
    fn create_class(&mut self, family: Family, mss: u16) -> Option<usize> {
        if self.classes.len() < MAX_CLASSES {
            self.classes.push(Class::new(family, mss));
            return Some(self.classes.len() - 1);
        }
        let idle = self.idle_class()?;
        self.empty_class(idle);
        self.classes[idle] = Class::new(family, mss);
        Some(idle)
    }

    /// Removes a connection from its class.
    #[inline]
    pub(crate) fn release_class(&mut self, class: u8) {
        if class != Self::NO_CLASS {
            self.uses += 1;
            let class = &mut self.classes[usize::from(class)];
            class.connections -= 1;
            class.used = self.uses;
        }
    }

    /// Returns the least recently used on-demand class that has no connections.
    fn idle_class(&self) -> Option<usize> {
        (PINNED_CLASSES..self.classes.len())
            .filter(|class| self.classes[*class].connections == 0)
            .min_by_key(|class| self.classes[*class].used)
    }

    /// Frees all segments of a class.
    fn empty_class(&mut self, class: usize) {
        while let Some(index) = self.classes[class].contents.pop() {
            self.drop_segments(index, class);
        }
    }

    /// Frees a content item's segments in one class, and its resident packets now or later. Returns
    /// `false` if it had no segments in the class.
    fn drop_segments(&mut self, index: u32, class: usize) -> bool {
        let content = &mut self.list[index as usize];
        let segments = std::mem::take(&mut content.segments[class]);
        if segments.len() == 0 {
            return false;
        }
        self.totals.packets -= segments.len() as u64;
        self.totals.memory -= segments.memory() as u64;
        if class >= PINNED_CLASSES {
            self.on_demand -= segments.memory();
        }
        self.totals.residents -= if content.is_temporary {
            // More segments of such items may leave in each pass than a pass frees.
            segments.copies.iter().map(|one| one.len() as u64).sum()
        } else {
            self.leaving.add(segments.copies)
        };
        true
    }

    /// Removes the entry at index `place` from an on-demand class's list of content items.
    fn unlist(&mut self, class: usize, place: usize) {
        let list = &mut self.classes[class].contents;
        list.swap_remove(place);
        if let Some(moved) = list.get(place) {
            self.list[*moved as usize].segments[class].place = place;
        }
    }

    /// Allocates the segments of a content item in a class if they do not exist yet, without
    /// computing checksums. To stay within the memory budget, frees the segments of classes without
    /// connections. Returns `false` for [`Self::NO_CLASS`], or if the budget does not suffice.
    #[cold]
    fn ensure_segments(&mut self, index: u32, class: u8) -> bool {
        if class == Self::NO_CLASS {
            return false;
        }
        let at = usize::from(class);
        let mss = u32::from(self.classes[at].mss);
        let content = &self.list[index as usize];
        if content.segments.get(at).is_some_and(|s| s.len() > 0) {
            return true;
        }
        let count = (content.bytes.len() as u32).div_ceil(mss) as usize;
        let memory = Segments::memory_of(count, self.mode);
        let mut place = 0;
        if at >= PINNED_CLASSES {
            while self.on_demand + memory > self.budget {
                let idle = (PINNED_CLASSES..self.classes.len())
                    .filter(|class| {
                        let class = &self.classes[*class];
                        class.connections == 0 && !class.contents.is_empty()
                    })
                    .min_by_key(|class| self.classes[*class].used);
                let Some(idle) = idle else {
                    return false;
                };
                self.empty_class(idle);
            }
            self.on_demand += memory;
            place = self.classes[at].contents.len();
            self.classes[at].contents.push(index);
        }
        self.totals.packets += count as u64;
        self.totals.memory += memory as u64;
        let content = &mut self.list[index as usize];
        if content.segments.len() <= at {
            let mut segments = std::mem::take(&mut content.segments).into_vec();
            segments.reserve_exact(at + 1 - segments.len());
            segments.resize_with(at + 1, Segments::default);
            content.segments = segments.into_boxed_slice();
        }
        content.segments[at] = Segments::new(count, self.mode, place);
        true
    }

    /// Returns true if a content item has a single segment in a permanent class, and no resident
    /// packets. Then the item itself holds the checksum of the segment, because most items of a
    /// large collection are short.
    fn is_single(&self, index: u32, class: u8) -> bool {
        let at = usize::from(class);
        self.mode == SendMode::MemCopy
            && at < PINNED_CLASSES
            && self.list[index as usize].bytes.len() <= usize::from(self.classes[at].mss)
    }

    /// Computes and stores the checksum of a [single](Self::is_single) segment.
    fn add_single_sum(&mut self, index: u32, class: u8) -> u16 {
        let content = &mut self.list[index as usize];
        let sum = segment_sum(&content.bytes, content.slot, 0, content.bytes.len());
        let stored = &mut content.single_sums[usize::from(class)];
        self.totals.packets += u64::from(*stored == UNKNOWN);
        *stored = sum;
        sum
    }

    /// Returns the payload checksum of a segment, counting the slot's bytes as zeros. Returns
    /// `None` if the segments of the class cannot be allocated.
    #[inline(always)]
    pub(crate) fn sum(&mut self, index: u32, class: u8, segment: u32) -> Option<u16> {
        let (content, at) = (&self.list[index as usize], usize::from(class));
        if let Some(segments) = content.segments.get(at)
            && let Some(sum) = segments.sum(segment)
        {
            return Some(sum);
        }
        match content.single_sums.get(at) {
            Some(&sum) if sum != UNKNOWN => Some(sum),
            _ => self.first_sum(index, class, segment),
        }
    }

    /// Computes the checksum of a segment when it is first sent in its class.
    #[cold]
    fn first_sum(&mut self, index: u32, class: u8, segment: u32) -> Option<u16> {
        if self.is_single(index, class) {
            return Some(self.add_single_sum(index, class));
        }
        self.ensure_segments(index, class)
            .then(|| self.add_sum(index, class, segment))
    }

    /// Computes and stores the checksum of a segment that is already allocated.
    fn add_sum(&mut self, index: u32, class: u8, segment: u32) -> u16 {
        let mss = u32::from(self.classes[usize::from(class)].mss);
        let content = &mut self.list[index as usize];
        content.segments[usize::from(class)].add_sum(&content.bytes, content.slot, mss, segment)
    }

    /// Returns a resident packet of a segment, what its slot contains, and the content item's slot.
    /// The packet is not in the TX ring, so the caller can patch and send it. If all packets of the
    /// segment are in the TX ring, makes another one. Returns `None` in memcopy mode, or if the port has no memory for
    /// another packet. The segment must already be allocated.
    #[inline(always)]
    pub(crate) fn resident(
        &mut self,
        index: u32,
        class: u8,
        segment: u32,
        pool: &Pool,
    ) -> Option<(IdleResident<'_>, &mut Rendered, Option<Slot>)> {
        let content = &mut self.list[index as usize];
        let copies = content.segments[usize::from(class)].copies(segment)?;
        let (classes, bytes) = (&self.classes, &content.bytes);
        let (workbench, residents) = (&mut self.workbench, &mut self.totals.residents);
        let (resident, rendered) = copies.free(|| {
            let class = &classes[usize::from(class)];
            let packet = class.write_packet(workbench, bytes, segment);
            let resident = pool.make_resident(packet)?;
            *residents += 1;
            Some(resident)
        })?;
        Some((resident, rendered, content.slot))
    }
}

/// The resident packets that are to be freed, and how many of them this pass may still free.
///
/// A content item that leaves with few packets is freed at once. If there are more packets, each
/// [pass](Self::free_some) frees some of them.
#[derive(Debug)]
struct Leaving {
    /// Copies of the resident packets. Each element has the segments of one content item in one
    /// class.
    queue: Vec<Vec<ResidentCopies>>,
    /// Number of packets that may still be freed in this pass. A segment without packets counts as
    /// one.
    left: usize,
}

impl Default for Leaving {
    fn default() -> Self {
        Self {
            queue: Vec::new(),
            left: FREED_IN_A_PASS,
        }
    }
}

impl Leaving {
    /// Frees the packets of one content item in one class, or keeps some of them for further passes.
    /// Returns the number of packets that were freed.
    fn add(&mut self, copies: Box<[ResidentCopies]>) -> u64 {
        let mut copies = copies.into_vec();
        let freed = self.free(&mut copies);
        if !copies.is_empty() {
            self.queue.push(copies);
        }
        freed
    }

    /// Whether packets are left to be freed.
    #[inline(always)]
    fn is_pending(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether [`free_some`](Self::free_some) has something to do: packets were freed since its last
    /// call, or are left.
    #[inline(always)]
    fn needs_pass(&self) -> bool {
        self.left != FREED_IN_A_PASS
    }

    /// Begins a pass, and frees as many packets as one pass may free. Returns their number.
    #[cold]
    fn free_some(&mut self) -> u64 {
        self.left = FREED_IN_A_PASS;
        let mut freed = 0;
        while self.left > 0
            && let Some(mut copies) = self.queue.pop()
        {
            freed += self.free(&mut copies);
            if !copies.is_empty() {
                self.queue.push(copies);
            }
        }
        if self.queue.is_empty() {
            self.left = FREED_IN_A_PASS;
        }
        freed
    }

    /// Frees packets from the end of `copies`, as far as this pass may. Returns their number.
    fn free(&mut self, copies: &mut Vec<ResidentCopies>) -> u64 {
        let mut freed = 0;
        while self.left > 0
            && let Some(last) = copies.last_mut()
        {
            let removed = last.remove_some(self.left);
            freed += removed as u64;
            self.left -= removed.max(1);
            if last.is_empty() {
                copies.pop();
            }
        }
        // The table's memory is given back bit by bit, too: freeing a large one takes long.
        copies.shrink_to_fit();
        freed
    }
}

#[cfg(test)]
#[path = "contents_tests.rs"]
mod tests;
