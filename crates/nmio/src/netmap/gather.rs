//! Joins the slots of a received packet that takes several (`NS_MOREFRAG`).

use netmap_sys::NETMAP_MAX_FRAGS;

use crate::assembly::{Assembly, Piece};
use crate::frame::{Frame, Pool};
use crate::vnet::{self, FINISHED, VNET_HEADER};

/// Size of an Ethernet header, in bytes. A shorter frame is invalid.
pub(super) const ETHERNET_HEADER: usize = 14;

/// The packet whose slots are arriving.
pub(super) struct Gather {
    assembly: Assembly,
    /// Number of its slots that have arrived.
    slots: u32,
    vnet: [u8; VNET_HEADER],
}

impl Gather {
    pub(super) fn new() -> Self {
        Self {
            assembly: Assembly::default(),
            slots: 0,
            vnet: FINISHED,
        }
    }

    /// Returns true if the next slot is the first of a packet.
    pub(super) fn is_at_start(&self) -> bool {
        self.slots == 0
    }

    /// Sets the packet's virtio-net header. Without it, the packet is already complete.
    pub(super) fn set_header(&mut self, vnet: [u8; VNET_HEADER]) {
        self.vnet = vnet;
    }

    /// Adds what a slot holds. `None` stands for an invalid slot. `continues` says whether the packet
    /// continues in the next slot.
    ///
    /// Returns the packet with its last slot, or an error if the packet cannot be used.
    pub(super) fn add(
        &mut self,
        piece: Option<impl Piece>,
        continues: bool,
        pool: &Pool,
    ) -> Result<Option<Frame>, ()> {
        let piece = piece.filter(|_| (self.slots as usize) < NETMAP_MAX_FRAGS);
        self.slots = if continues {
            self.slots.saturating_add(1)
        } else {
            0
        };
        let Some(mut frame) = self.assembly.add(piece, continues, pool)? else {
            return Ok(None);
        };
        if frame.len() >= ETHERNET_HEADER && vnet::complete(self.vnet, &mut frame) {
            Ok(Some(frame))
        } else {
            Err(())
        }
    }
}
