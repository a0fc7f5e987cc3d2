//! How packets are sent: as the operator says, or as the memory allows.

use control::{WorkerContext, free_memory, report};
use tcpip::SendMode;

use crate::memory_budget::MemoryBudget;

/// Maximum number of resident packets per worker. At an MTU of 1,500 bytes, they take 1 GiB. Any
/// further packets are copied when they are sent.
const MAX_RESIDENTS: u64 = 1 << 19;
/// Number of additional resident packets, because a packet can be in flight several times. The
/// number equals the slots of two TX rings.
pub(crate) const SPARE_RESIDENTS: u64 = 4_096;
/// Memory of the tables for a resident packet, in bytes.
const TABLES_PER_RESIDENT: u64 = 256;

/// A site, as far as the choice depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteDemand {
    /// Number of packets of one worker.
    pub(crate) packets: u64,
    /// The memory of the responses, in bytes.
    pub(crate) used: u64,
    pub(crate) memory: Option<MemoryBudget>,
}

/// How packets are sent. The choice holds until the server ends, so a reload cannot change it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) mode: SendMode,
    /// Number of resident packets of one worker.
    pub(crate) residents: u32,
    /// What resident packets take from the budget of each site, in bytes. Empty for nothing.
    taken: Vec<u64>,
    /// Why the mode was chosen, unless the operator has set it.
    why: Option<String>,
}

impl Sending {
    /// Sends in this mode. A worker has `packets` packets.
    pub(crate) fn forced(mode: SendMode, packets: u64) -> Self {
        let residents = match mode {
            SendMode::PreCopy => (packets + SPARE_RESIDENTS).min(MAX_RESIDENTS),
            SendMode::MemCopy => 0,
        };
        Self {
            mode,
            residents: residents as u32,
            taken: Vec::new(),
            why: None,
        }
    }

    /// Keeps the packets of `sites` resident if all fit beside the responses. A worker has `packets`
    /// packets in total.
    pub(crate) fn chosen(sites: &[SiteDemand], packets: u64, context: &WorkerContext) -> Self {
        match taken_by(sites, packets, context) {
            Ok(taken) => {
                let bytes = report::bytes(taken.iter().sum());
                Self {
                    taken,
                    why: Some(format!(
                        "they fit into the memory, of which they take {bytes}"
                    )),
                    ..Self::forced(SendMode::PreCopy, packets)
                }
            }
            Err(why) => Self {
                why: Some(format!("none is kept in place, because {why}")),
                ..Self::forced(SendMode::MemCopy, packets)
            },
        }
    }

    /// What resident packets take from the budget of the site with this index, in bytes.
    pub(crate) fn taken_from(&self, site: usize) -> u64 {
        self.taken.get(site).copied().unwrap_or_default()
    }

    /// What resident packets take from the budgets of all sites, in bytes.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.iter().sum()
    }

    /// Describes the mode for the operator.
    pub(crate) fn describe(&self) -> String {
        let mode = describe(self.mode);
        match &self.why {
            None => mode.to_owned(),
            Some(why) => format!("{mode}; {why}"),
        }
    }
}

/// Describes a mode for the operator.
pub(crate) fn describe(mode: SendMode) -> &'static str {
    match mode {
        SendMode::PreCopy => "pre-copy: packets are patched and sent in place",
        SendMode::MemCopy => "memcopy: each packet is copied into a free frame and sent",
    }
}

/// Returns what resident packets take from the budget of each site, or why there are none.
fn taken_by(
    sites: &[SiteDemand],
    packets: u64,
    context: &WorkerContext,
) -> Result<Vec<u64>, String> {
    let frame = context.resident_len?;
    if packets + SPARE_RESIDENTS > MAX_RESIDENTS {
        let (packets, most) = (report::count(packets), MAX_RESIDENTS - SPARE_RESIDENTS);
        return Err(format!(
            "a worker has {packets} packets, and room for {}",
            report::count(most)
        ));
    }
    let each = (frame as u64 + TABLES_PER_RESIDENT) * u64::from(context.workers);
    let spare = SPARE_RESIDENTS.div_ceil(sites.len().max(1) as u64);
    let taken: Vec<_> = sites
        .iter()
        .map(|one| each * (one.packets + spare))
        .collect();
    let all = taken.iter().sum();
    let fits = |(site, taken): (&SiteDemand, &u64)| {
        let memory = site.memory.as_ref();
        memory.is_some_and(|memory| memory.has_room_for_packets(*taken, site.used))
    };
    let pinned = sites.iter().map(|site| Some(site.memory?.pinned()));
    if let Some(pinned) = pinned.sum::<Option<u64>>()
        && all > pinned
    {
        return Err(format!(
            "they would take {}, and --pinned allows {}",
            report::bytes(all),
            report::bytes(pinned)
        ));
    }
    let is_free = free_memory().is_none_or(|free| all <= free / 2);
    if is_free && sites.iter().zip(&taken).all(fits) {
        Ok(taken)
    } else {
        let all = report::bytes(all);
        Err(format!("that would take too much of the memory: {all}"))
    }
}

#[cfg(test)]
#[path = "sending_tests.rs"]
mod tests;
