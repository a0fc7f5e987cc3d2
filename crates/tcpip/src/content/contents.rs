//! All contents of a stack, and the classes that they are cut for.

use std::sync::Arc;

use nmio::{Pool, Resident};

use super::{Class, Family, MAX_SLOT_LEN, Segments, SendMode, Slot};

/// The most bytes of a content: a stream position is found by its distance
/// from another in 32 bits, and a write buffer may lie before it.
pub const MAX_CONTENT_LEN: usize = (u32::MAX - (1 << 20)) as usize;
/// The most contents.
pub const MAX_CONTENTS: usize = 1 << 30;
/// Classes beside each other: one an IP family and maximum segment size.
/// Connections for which there is no place are served by the general path.
pub const MAX_CLASSES: usize = 32;
/// A class that no connection has.
pub(crate) const NO_CLASS: u8 = u8::MAX;
/// Our own MSS of either family: these classes exist for good.
const PINNED_CLASSES: usize = 2;

const _: () = assert!(MAX_CLASSES < NO_CLASS as usize);

/// Names a content of one [`Contents`]. No id of one `Contents` is given
/// twice; another `Contents` gives the same ids again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId {
    index: u32,
    generation: u32,
}

/// Why a content was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// Longer than [`MAX_CONTENT_LEN`].
    #[error("a content of {len} bytes is longer than {MAX_CONTENT_LEN}; serve it in parts")]
    TooLong {
        /// Its bytes.
        len: usize,
    },
    /// The slot is empty, longer than [`MAX_SLOT_LEN`] or not inside the
    /// content.
    #[error(
        "the slot of {} bytes at {} does not lie in the content's {len}, or is empty or longer than {MAX_SLOT_LEN}",
        slot.len, slot.offset
    )]
    BadSlot {
        /// The slot.
        slot: Slot,
        /// The content's bytes.
        len: usize,
    },
    /// There are [`MAX_CONTENTS`] already.
    #[error("there are {MAX_CONTENTS} contents already; remove some")]
    TooMany,
}

/// What was loaded, for whoever tells about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Contents.
    pub contents: u64,
    /// Their bytes, counting bytes that contents share once each time.
    pub bytes: u64,
    /// Segments whose checksums are known or will be kept when they are.
    pub packets: u64,
    /// Packets that live in the port's memory.
    pub residents: u64,
    /// Bytes of memory for checksums and the administration of packets;
    /// neither the contents themselves nor the port's memory.
    pub memory: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Live,
    /// Removed, but streams still refer to it.
    Leaving,
    Free,
}

/// One content, and its segments by class.
#[derive(Debug)]
struct Content {
    bytes: Arc<[u8]>,
    slot: Option<Slot>,
    /// Indexed by class; as long as the highest class that was needed.
    segments: Vec<Segments>,
    /// Stream entries that refer to it.
    refs: u32,
    generation: u32,
    life: Life,
}

/// All contents of one [`Stack`](crate::Stack), with their segments.
///
/// The bytes are shared ([`Arc`]) between the stacks of several cores; the
/// packets made of them belong to one stack and its port.
#[derive(Debug)]
pub struct Contents {
    mode: SendMode,
    list: Vec<Content>,
    free: Vec<u32>,
    classes: Vec<Class>,
    /// Counts uses of classes, to find the one that was not used for longest.
    uses: u64,
    /// Bytes that classes made on demand may take, and take.
    budget: usize,
    on_demand: usize,
    totals: Totals,
    /// Where a packet is put together before it becomes resident.
    workbench: Vec<u8>,
}

impl Contents {
    /// No contents yet; `mss_v4` and `mss_v6` are our own maximum segment
    /// sizes, and `budget` bounds what other classes take.
    pub(crate) fn new(mode: SendMode, mss_v4: u16, mss_v6: u16, budget: usize) -> Self {
        Self {
            mode,
            list: Vec::new(),
            free: Vec::new(),
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

    /// Adds a content. Nothing is segmented yet: see
    /// [`prepare`](Self::prepare).
    ///
    /// # Errors
    /// [`ContentError`]; nothing is added then.
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
                    segments: Vec::new(),
                    refs: 0,
                    generation: 0,
                    life: Life::Free,
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

    /// Segments a content for clients of one family that take our own maximum
    /// segment size, as nearly all do, so that its first client finds the
    /// work done: sums every segment and, in [`SendMode::PreCopy`], makes a
    /// resident packet of each, as far as the port's share for residents
    /// goes. Returns the residents made.
    ///
    /// Whatever is not prepared here is prepared when it is first sent.
    pub fn prepare(&mut self, id: ContentId, pool: &Pool, family: Family) -> u32 {
        let Some((index, len)) = self.lookup(id) else {
            return 0;
        };
        let class = match family {
            Family::V4 => 0,
            Family::V6 => 1,
        };
        if len == 0 || !self.ensure_segments(index, class) {
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

    /// [Prepares](Self::prepare) all contents that there are.
    pub fn prepare_all(&mut self, pool: &Pool, family: Family) {
        for index in 0..self.list.len() as u32 {
            let generation = self.list[index as usize].generation;
            // One that was removed has no id any more.
            self.prepare(ContentId { index, generation }, pool, family);
        }
    }

    /// Removes a content: nothing more can be written from it. Its memory is
    /// freed when the last stream that refers to it has been acknowledged.
    /// `false` when it was removed before.
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

    /// What is loaded now.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// A content's bytes; `None` when it was removed.
    pub fn bytes(&self, id: ContentId) -> Option<&Arc<[u8]>> {
        let (index, _) = self.lookup(id)?;
        Some(&self.list[index as usize].bytes)
    }

    /// Index and length of a content that can be written.
    #[inline(always)]
    pub(crate) fn lookup(&self, id: ContentId) -> Option<(u32, u32)> {
        let content = self.list.get(id.index as usize)?;
        let live = content.generation == id.generation && content.life == Life::Live;
        live.then_some((id.index, content.bytes.len() as u32))
    }

    /// The bytes of a content that a stream refers to, and its slot.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> (&Arc<[u8]>, Option<Slot>) {
        let content = &self.list[index as usize];
        (&content.bytes, content.slot)
    }

    /// A stream refers to it.
    #[inline(always)]
    pub(crate) fn acquire(&mut self, index: u32) {
        self.list[index as usize].refs += 1;
    }

    /// A stream no longer refers to it.
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
        content.bytes = Arc::new([]);
        content.slot = None;
        content.segments = Vec::new();
        content.life = Life::Free;
        // An id must not come again: an index whose generations are used up
        // is left out.
        if let Some(next) = content.generation.checked_add(1) {
            content.generation = next;
            self.free.push(index);
        }
    }

    /// A class for a connection; [`NO_CLASS`] when all places are taken.
    pub(crate) fn acquire_class(&mut self, family: Family, mss: u16) -> u8 {
        self.uses += 1;
        let known = self
            .classes
            .iter()
            .position(|class| class.family == family && class.mss == mss);
        let class = match known {
            Some(class) => class,
            None if self.classes.len() < MAX_CLASSES => {
                self.classes.push(Class::new(family, mss));
                self.classes.len() - 1
            }
            None => {
                let Some(idle) = self.idle_class() else {
                    return NO_CLASS;
                };
                self.empty_class(idle);
                self.classes[idle] = Class::new(family, mss);
                idle
            }
        };
        self.classes[class].connections += 1;
        self.classes[class].used = self.uses;
        class as u8
    }

    /// A connection no longer needs its class.
    #[inline]
    pub(crate) fn release_class(&mut self, class: u8) {
        if class != NO_CLASS {
            self.uses += 1;
            let class = &mut self.classes[usize::from(class)];
            class.connections -= 1;
            class.used = self.uses;
        }
    }

    /// The class that nobody has used for longest, of those that may go.
    fn idle_class(&self) -> Option<usize> {
        (PINNED_CLASSES..self.classes.len())
            .filter(|class| self.classes[*class].connections == 0)
            .min_by_key(|class| self.classes[*class].used)
    }

    /// Frees what a class has taken: as much work as was done to fill it.
    fn empty_class(&mut self, class: usize) {
        while let Some(index) = self.classes[class].contents.pop() {
            self.drop_segments(index, class);
        }
    }

    /// Frees a content's segments in one class; `false` when it had none.
    fn drop_segments(&mut self, index: u32, class: usize) -> bool {
        let segments = std::mem::take(&mut self.list[index as usize].segments[class]);
        if segments.len() == 0 {
            return false;
        }
        self.totals.packets -= segments.len() as u64;
        self.totals.residents -= segments.residents();
        self.totals.memory -= segments.memory() as u64;
        if class >= PINNED_CLASSES {
            self.on_demand -= segments.memory();
        }
        true
    }

    /// Takes a content from the list of an on-demand class.
    fn unlist(&mut self, class: usize, place: usize) {
        let list = &mut self.classes[class].contents;
        list.swap_remove(place);
        if let Some(moved) = list.get(place) {
            self.list[*moved as usize].segments[class].place = place;
        }
    }

    /// Makes place for the segments of a content in a class, without summing
    /// any; `false` when the budget does not allow it.
    #[cold]
    fn ensure_segments(&mut self, index: u32, class: u8) -> bool {
        if class == NO_CLASS {
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
            content.segments.resize_with(at + 1, Segments::default);
        }
        content.segments[at] = Segments::new(count, self.mode, place);
        true
    }

    /// The payload sum of a segment, its slot taken as zeros. `None` when there is
    /// no place for the segments of its class.
    #[inline(always)]
    pub(crate) fn sum(&mut self, index: u32, class: u8, segment: u32) -> Option<u16> {
        let segments = &self.list[index as usize].segments;
        let known = segments
            .get(usize::from(class))
            .and_then(|segments| segments.sum(segment));
        match known {
            Some(sum) => Some(sum),
            None => self.first_sum(index, class, segment),
        }
    }

    /// Sums a segment that is sent for the first time in its class.
    #[cold]
    fn first_sum(&mut self, index: u32, class: u8, segment: u32) -> Option<u16> {
        self.ensure_segments(index, class)
            .then(|| self.add_sum(index, class, segment))
    }

    /// Sums a segment, for which place must have been made.
    fn add_sum(&mut self, index: u32, class: u8, segment: u32) -> u16 {
        let mss = u32::from(self.classes[usize::from(class)].mss);
        let content = &mut self.list[index as usize];
        content.segments[usize::from(class)].add_sum(&content.bytes, content.slot, mss, segment)
    }

    /// A resident packet of a segment that is not in flight, to be patched
    /// and sent, and the content's slot. One more is made when there is none;
    /// `None` when the port has no memory for it. There must be place for the
    /// segment.
    #[inline(always)]
    pub(crate) fn resident(
        &mut self,
        index: u32,
        class: u8,
        segment: u32,
        pool: &Pool,
    ) -> Option<(&mut Resident, Option<Slot>)> {
        let content = &mut self.list[index as usize];
        let copies = content.segments[usize::from(class)].copies(segment)?;
        let (classes, bytes) = (&self.classes, &content.bytes);
        let (workbench, residents) = (&mut self.workbench, &mut self.totals.residents);
        let resident = copies.free(|| {
            let class = &classes[usize::from(class)];
            let packet = class.write_packet(workbench, bytes, segment);
            let resident = pool.make_resident(packet)?;
            *residents += 1;
            Some(resident)
        })?;
        Some((resident, content.slot))
    }
}

#[cfg(test)]
#[path = "contents_tests.rs"]
mod tests;
