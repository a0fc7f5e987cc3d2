//! Numbers of queries and transfers of each zone, for the list of zones.
//!
//! Each worker counts queries in a table of its own. So it needs no lock, and shares no cache line with
//! another worker. The list reads all tables while the workers count.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::zone_number::ZoneNumber;

/// Number of counts in a cache line.
const LINE: usize = 8;

/// The counts of eight zones, which fill a cache line. So no other worker's counts are in it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; LINE]);

/// The queries that one worker has answered from each zone.
#[derive(Clone, Debug)]
pub(crate) struct QueryCounts(Arc<[Line]>);

/// Counts nothing.
impl Default for QueryCounts {
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl QueryCounts {
    #[inline(always)]
    fn get(&self, zone: usize) -> Option<&AtomicU64> {
        let line = self.0.get(zone / LINE)?;
        Some(&line.0[zone % LINE])
    }

    /// Counts a query that was answered from this zone, if there is one.
    #[inline(always)]
    pub(crate) fn add(&self, zone: ZoneNumber) {
        if let Some(count) = self.get(zone.position()) {
            // Nobody else changes the count, so this need not be one operation.
            count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }

    /// Takes a query of this zone back.
    pub(crate) fn take_back(&self, zone: ZoneNumber) {
        if let Some(count) = self.get(zone.position()) {
            count.store(count.load(Relaxed).wrapping_sub(1), Relaxed);
        }
    }
}

/// The counts of all workers, for zones with fixed numbers.
#[derive(Debug, Default)]
pub(crate) struct ZoneCounts {
    queries: Mutex<Vec<QueryCounts>>,
    transfers: Box<[AtomicU64]>,
}

impl ZoneCounts {
    /// Creates the counts of so many zones.
    pub(crate) fn new(zones: usize) -> Self {
        Self {
            queries: Mutex::default(),
            transfers: zeros(zones),
        }
    }

    /// Returns the table of one more worker.
    pub(crate) fn open(&self) -> QueryCounts {
        let counts = QueryCounts(zeros(self.transfers.len().div_ceil(LINE)));
        self.queries().push(counts.clone());
        counts
    }

    /// Counts a completed transfer of the zone with this number.
    pub(crate) fn add_transfer(&self, zone: usize) {
        if let Some(count) = self.transfers.get(zone) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Returns the numbers of queries and of transfers of the zone with this number.
    pub(crate) fn of(&self, zone: usize) -> [u64; 2] {
        let number = |count: Option<&AtomicU64>| count.map_or(0, |count| count.load(Relaxed));
        let queries = self.queries();
        let queries = queries.iter().map(|table| number(table.get(zone)));
        [queries.sum(), number(self.transfers.get(zone))]
    }

    fn queries(&self) -> MutexGuard<'_, Vec<QueryCounts>> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn zeros<T: Default, C: FromIterator<T>>(len: usize) -> C {
    std::iter::repeat_with(T::default).take(len).collect()
}
