//! The records of zones before they were reloaded, as long as a transfer sends them.

use std::sync::{Arc, Mutex, PoisonError};

use crate::zone_records::ZoneRecords;

/// The records of zones before they were reloaded, as long as a transfer sends them.
///
/// The records of a large zone take long to free. A worker must not do it at the end of a transfer, so it must
/// not have the last reference.
#[derive(Debug, Default)]
pub(super) struct OldRecords(Mutex<Vec<Arc<ZoneRecords>>>);

impl OldRecords {
    /// Keeps those of `replaced` that a transfer sends. Later transfers send other records.
    pub(super) fn keep<'r>(&self, replaced: impl Iterator<Item = &'r Arc<ZoneRecords>>) {
        let sent = replaced.filter(|records| Arc::strong_count(records) > 1);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(sent.cloned());
    }

    /// Frees the records of transfers that have ended.
    pub(super) fn free(&self) {
        let is_unused = |records: &mut Arc<_>| Arc::strong_count(records) == 1;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unused: Vec<_> = kept.extract_if(.., is_unused).collect();
        // They take long to free, so a reload does not wait for it.
        drop(kept);
        drop(unused);
    }
}
