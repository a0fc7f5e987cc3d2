//! A table that finds a connection by its local address and port.

/// The value for "no connection".
pub(in super::super) const NOBODY: u32 = u32::MAX;

/// Lowest local port. Lower ports are reserved for system services, and clients do not use them.
const FIRST_PORT: u16 = 1024;
/// Number of ports per address.
const PORTS: usize = 65_536 - FIRST_PORT as usize;
/// Maximum number of slots that one search examines, so that a search in a full table is short.
const MAX_PROBES: usize = 1 << 16;

/// A table of connections, indexed by address and port without a hash. Slots are taken in turn, so
/// that a 4-tuple is reused as late as possible. The reason is TIME-WAIT: a server that closed
/// first remembers the 4-tuple for some time.
#[derive(Debug)]
pub(in super::super) struct Slots {
    /// The connection of each port, or [`NOBODY`]. All ports of the first address come first.
    connections: Vec<u32>,
    next: usize,
}

impl Slots {
    pub(in super::super) fn new(addresses: usize, start: u32) -> Self {
        let connections = vec![NOBODY; addresses * PORTS];
        let next = start as usize % connections.len().max(1);
        Self { connections, next }
    }

    /// Returns the number of slots.
    pub(in super::super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Returns the number of slots in use.
    #[cfg(test)]
    pub(in super::super) fn used(&self) -> usize {
        (self.connections.iter())
            .filter(|id| **id != NOBODY)
            .count()
    }

    /// Gives the next free slot to `connection` and returns its address index and port. Returns
    /// `None` if the search finds no free slot.
    pub(in super::super) fn take(&mut self, connection: u32) -> Option<(u8, u16)> {
        for _ in 0..MAX_PROBES.min(self.connections.len()) {
            let slot = self.next;
            self.next += 1;
            if self.next == self.connections.len() {
                self.next = 0;
            }
            if self.connections[slot] == NOBODY {
                self.connections[slot] = connection;
                let port = FIRST_PORT + (slot % PORTS) as u16;
                return Some(((slot / PORTS) as u8, port));
            }
        }
        None
    }

    #[inline(always)]
    fn at(address: usize, port: u16) -> Option<usize> {
        Some(address * PORTS + usize::from(port.checked_sub(FIRST_PORT)?))
    }

    /// Returns the connection of this address and port, or [`NOBODY`].
    #[inline(always)]
    pub(in super::super) fn get(&self, address: usize, port: u16) -> u32 {
        Self::at(address, port)
            .and_then(|at| self.connections.get(at))
            .copied()
            .unwrap_or(NOBODY)
    }

    pub(in super::super) fn free(&mut self, address: u8, port: u16) {
        let at = Self::at(usize::from(address), port);
        if let Some(slot) = at.and_then(|at| self.connections.get_mut(at)) {
            *slot = NOBODY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_reused_after_all_others() {
        let mut slots = Slots::new(2, 5);
        let first = slots.take(1).unwrap();
        assert_eq!(first, (0, 1029));
        assert_eq!(slots.get(0, 1029), 1);
        slots.free(first.0, first.1);
        assert_eq!(slots.get(0, 1029), NOBODY);
        for i in 1..slots.len() {
            assert_ne!(slots.take(i as u32), Some(first));
        }
        assert_eq!(slots.take(9), Some(first));
        assert_eq!(slots.take(10), None, "no slot is free");
        assert_eq!(slots.get(1, 65_535), slots.len() as u32 - 6);
    }

    #[test]
    fn ports_out_of_range_have_no_connection() {
        let slots = Slots::new(1, 0);
        assert_eq!(slots.get(0, 1023), NOBODY);
        assert_eq!(slots.get(1, 1024), NOBODY);
    }
}
