//! Numbers of queries and transfers of each zone, for the list of zones.
//!
//! Each worker counts queries in a table of its own. So it needs no lock, and shares no cache line with
//! another worker. The list reads all tables while the workers count.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::zone_number::ZoneNumber;

/// The queries that one worker has answered from each zone.
#[derive(Clone, Debug)]
pub(crate) struct QueryCounts(Arc<[AtomicU64]>);

/// Counts nothing.
impl Default for QueryCounts {
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl QueryCounts {
    /// Counts a query that was answered from this zone, if there is one.
    #[inline(always)]
    pub(crate) fn add(&self, zone: ZoneNumber) {
        if let Some(count) = self.0.get(zone.position()) {
            // Nobody else changes the count, so this need not be one operation.
            count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }

    /// Takes a query of this zone back.
    pub(crate) fn take_back(&self, zone: ZoneNumber) {
        if let Some(count) = self.0.get(zone.position()) {
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
        let counts = QueryCounts(zeros(self.transfers.len()));
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
        let queries = queries.iter().map(|table| number(table.0.get(zone)));
        [queries.sum(), number(self.transfers.get(zone))]
    }

    fn queries(&self) -> MutexGuard<'_, Vec<QueryCounts>> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn zeros<C: FromIterator<AtomicU64>>(len: usize) -> C {
    std::iter::repeat_with(AtomicU64::default)
        .take(len)
        .collect()
}
