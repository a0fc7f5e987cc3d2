//! The packet memory of a port, for another process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The packet memory that a port shares with the kernel, as a file that another process can map. That
/// process registers it for a new queue, which may need a capability that the port's process has
/// dropped.
#[derive(Clone, Debug)]
pub struct PacketMemory {
    facts: MemoryFacts,
    file: Arc<OwnedFd>,
}

/// The properties of packet memory that can be sent as text.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MemoryFacts {
    /// Size in bytes.
    pub(crate) len: usize,
    /// Size in bytes of the chunks that the kernel receives into.
    pub(crate) chunk: u32,
}

impl PacketMemory {
    /// Combines the parts that [`facts`](Self::facts) and [`file`](Self::file) have returned, perhaps
    /// in another process.
    pub fn from_parts(facts: MemoryFacts, file: OwnedFd) -> Self {
        Self {
            facts,
            file: Arc::new(file),
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn new(facts: MemoryFacts, file: Arc<OwnedFd>) -> Self {
        Self { facts, file }
    }

    /// Returns the properties of the memory.
    pub fn facts(&self) -> MemoryFacts {
        self.facts
    }

    /// Returns the file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
