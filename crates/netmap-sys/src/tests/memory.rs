//! Tests of interfaces, rings, slots and buffers in a region.

use std::ptr::NonNull;

use libc::timeval;

use crate::*;

/// A memory region as netmap would map it, aligned for rings.
#[repr(C, align(128))]
struct Region([u8; 8192]);

const IF_AT: usize = 64;
const RINGS_AT: usize = 256;
const RING_SIZE: usize = 384;
const BUFFERS_AT: usize = 4096;
const BUFFER_SIZE: usize = 512;

impl Region {
    fn new() -> Box<Self> {
        Box::new(Self([0; 8192]))
    }

    /// Writes an interface with five rings, and returns its address.
    fn fill(&mut self) -> *mut netmap_if {
        let region = &raw mut *self;
        // SAFETY: every access is in the region, at an offset aligned for its type. The netmap_if
        // and its five ring offsets are at 64, and five rings with 8 slots at 256.
        unsafe {
            let nifp = region.byte_add(IF_AT).cast::<netmap_if>();
            (*nifp).ni_tx_rings = 2;
            (*nifp).ni_host_tx_rings = 1;
            (*nifp).ni_rx_rings = 1;
            (*nifp).ni_host_rx_rings = 1;
            let offsets = nifp.byte_add(56).cast::<isize>();
            for i in 0..5 {
                let at = RINGS_AT + i * RING_SIZE;
                *offsets.add(i) = (at - IF_AT).cast_signed();
                let ring = region.byte_add(at).cast::<netmap_ring>();
                (*ring).ringid = i as u16;
                (*ring).num_slots = 8;
                (*ring).nr_buf_size = BUFFER_SIZE as u32;
                (*ring).buf_ofs = (BUFFERS_AT - at).cast_signed() as i64;
            }
            nifp
        }
    }
}

#[test]
fn rings_slots_and_buffers_are_found_from_the_interface() {
    let mut region = Region::new();
    let nifp = region.fill();
    // SAFETY: `fill` has written the interface and its rings, which have 8 slots. The region has 8
    // buffers.
    unsafe {
        let base = nifp.byte_sub(IF_AT).cast::<u8>();
        assert_eq!((*netmap_txring(nifp, 0)).ringid, 0);
        assert_eq!((*netmap_txring(nifp, 1)).ringid, 1);
        assert_eq!((*netmap_txring(nifp, 2)).ringid, 2, "the host's TX ring");
        assert_eq!((*netmap_rxring(nifp, 0)).ringid, 3);
        assert_eq!((*netmap_rxring(nifp, 1)).ringid, 4, "the host's RX ring");
        for ring in [netmap_txring(nifp, 1), netmap_rxring(nifp, 0)] {
            let buffer = base.add(BUFFERS_AT + 3 * BUFFER_SIZE);
            assert_eq!(netmap_buf(ring, 3), buffer);
            assert_eq!(netmap_buf_idx(ring, buffer), Some(3));
            assert_eq!(netmap_buf_idx(ring, buffer.add(BUFFER_SIZE - 1)), Some(3));
            assert_eq!(netmap_buf_idx(ring, base.add(BUFFERS_AT - 1)), None);
            let slot = netmap_slot_at(ring, 7);
            assert_eq!(slot.cast(), ring.cast::<u8>().add(256 + 7 * 16));
            (*slot).buf_idx = 3;
            (*ring).offset_mask = 0xff;
            netmap_woffset(&*ring, &mut *slot, 20);
            assert_eq!(netmap_buf_offset(ring, slot), buffer.add(20));
        }
    }
}

#[test]
fn a_ring_must_describe_buffers_in_the_region() {
    let mut region = Region::new();
    let nifp = region.fill();
    // The ring is at offset 256. Each row: `buf_ofs`, `nr_buf_size`, the region's size, and the
    // number of buffers.
    let rows = [
        (3840, 512, 8192, Some(8)),
        (3840, 512, 8191, Some(7)),
        (7936, 512, 8192, Some(0)),
        (-128, 512, 640, Some(1)),
        (7937, 512, 8192, None),
        (-257, 512, 8192, None),
        (i64::MAX, 512, 8192, None),
        (i64::MIN, 512, 8192, None),
        (0, 3, 8192, None),
        (0, 0, 8192, None),
    ];
    for (buf_ofs, size, len, count) in rows {
        // SAFETY: `fill` has written the interface and its rings, in this region.
        unsafe {
            let base = NonNull::new_unchecked(nifp.byte_sub(IF_AT).cast::<u8>());
            let ring = netmap_txring(nifp, 0);
            (*ring).buf_ofs = buf_ofs;
            (*ring).nr_buf_size = size;
            let buffers = Buffers::find(ring, base, len);
            assert_eq!(
                buffers.map(|found| found.count()),
                count,
                "{buf_ofs} {size}"
            );
            assert!(buffers.is_none_or(|found| found.size() == size));
        }
    }
}

#[test]
fn an_index_is_checked_against_the_number_of_buffers() {
    let mut region = Region::new();
    let nifp = region.fill();
    let buffers = buffers(nifp);
    // SAFETY: the region has 8 buffers, and starts before the interface.
    let seventh = unsafe { nifp.byte_add(BUFFERS_AT + 7 * BUFFER_SIZE - IF_AT) };
    assert_eq!(buffers.get(7).map(NonNull::as_ptr), Some(seventh.cast()));
    assert_eq!(buffers.get(8), None);
    assert_eq!(buffers.get(u32::MAX), None);
    // Later changes of the ring do not matter.
    // SAFETY: `fill` has written the ring.
    unsafe { (*netmap_txring(nifp, 0)).buf_ofs = 1 << 40 };
    assert_eq!(buffers.get(7).map(NonNull::as_ptr), Some(seventh.cast()));
}

/// Returns the buffers of a region that `Region::fill` has written.
fn buffers(nifp: *mut netmap_if) -> Buffers {
    // SAFETY: the interface and its rings are in a region of 8192 bytes.
    unsafe {
        let base = NonNull::new_unchecked(nifp.byte_sub(IF_AT).cast::<u8>());
        Buffers::find(netmap_txring(nifp, 0), base, 8192).unwrap()
    }
}

/// Writes the list of extra buffers that begins with the first of `links`: the buffer of each link
/// gets the next link.
///
/// # Safety
/// `nifp` is in a region, and all links but the last are buffers in that region.
unsafe fn link(nifp: *mut netmap_if, links: &[u32]) {
    // SAFETY: the caller guarantees that the buffers exist.
    unsafe {
        let ring = netmap_txring(nifp, 0);
        (*nifp).ni_bufs_head = links[0];
        for pair in links.windows(2) {
            netmap_buf(ring, pair[0])
                .cast::<u32>()
                .write_unaligned(pair[1]);
        }
    }
}

#[test]
fn extra_buffers_are_taken_from_the_list_and_given_back() {
    let mut region = Region::new();
    let nifp = region.fill();
    // SAFETY: `fill` has written the interface and its rings. All buffers are in the region.
    unsafe {
        let buffers = buffers(nifp);
        link(nifp, &[6, 2, 7, 0]);
        let mut taken = [0; 2];
        let take = |taken: &mut [u32]| buffers.take_extra(nifp, taken);
        assert_eq!(take(&mut taken), Ok(2));
        assert_eq!(taken, [6, 2]);
        assert_eq!((*nifp).ni_bufs_head, 7);
        assert_eq!(take(&mut taken), Ok(1));
        assert_eq!(taken, [7, 2]);
        assert_eq!((*nifp).ni_bufs_head, 0);
        assert_eq!(take(&mut taken), Ok(0));

        buffers.give_extra(nifp, &[3, 4]);
        buffers.give_extra(nifp, &[0, 1, 8, u32::MAX, 5]);
        assert_eq!((*nifp).ni_bufs_head, 5);
        let mut taken = [0; 8];
        assert_eq!(take(&mut taken), Ok(3));
        assert_eq!(taken[..3], [5, 4, 3]);
    }
}

#[test]
fn a_damaged_list_of_extra_buffers_ends_before_the_damage() {
    // The links of each list, the index that is wrong, and the buffers before it.
    let lists: [(&[u32], u32, &[u32]); 6] = [
        (&[2, 3, 8], 8, &[3, 2]),
        (&[2, 3, 1], 1, &[3, 2]),
        (&[u32::MAX], u32::MAX, &[]),
        (&[2, 3, 4, 3], 3, &[4, 3, 2]),
        (&[5, 5], 5, &[5]),
        (&[5, u32::MAX], 5, &[]),
    ];
    for (links, wrong, rest) in lists {
        let mut region = Region::new();
        let nifp = region.fill();
        // SAFETY: `fill` has written the interface and its rings. All buffers below 8 are in the
        // region, and all links but the last are below 8.
        unsafe {
            let buffers = buffers(nifp);
            link(nifp, links);
            let mut taken = [0; 8];
            let error = buffers.take_extra(nifp, &mut taken).unwrap_err();
            assert_eq!(error, BadExtraBuffer(wrong), "{links:?}");
            let count = buffers.take_extra(nifp, &mut taken).unwrap();
            assert_eq!(taken[..count], *rest, "{links:?}");
        }
    }
}

fn ring(num_slots: u32, head: u32, tail: u32) -> netmap_ring {
    netmap_ring {
        buf_ofs: 0,
        num_slots,
        nr_buf_size: 2048,
        ringid: 0,
        dir: 0,
        head,
        cur: head,
        tail,
        flags: 0,
        ts: timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        offset_mask: 0,
        buf_align: 0,
        sem: netmap_sem([0; 128]),
        slot: [],
    }
}

#[test]
fn positions_wrap_at_the_end_of_the_ring() {
    assert_eq!(nm_ring_next(&ring(4, 0, 0), 2), 3);
    assert_eq!(nm_ring_next(&ring(4, 0, 0), 3), 0);
    assert_eq!(nm_ring_space(&ring(4, 1, 3)), 2);
    assert_eq!(nm_ring_space(&ring(4, 3, 1)), 2);
    assert_eq!(nm_ring_space(&ring(4, 2, 2)), 0);
    assert!(nm_ring_empty(&ring(4, 2, 2)));
    assert!(!nm_ring_empty(&ring(4, 2, 3)));
    assert!(!nm_tx_pending(&ring(4, 0, 3)), "all packets are sent");
    assert!(nm_tx_pending(&ring(4, 1, 3)));
}

#[test]
fn an_offset_uses_only_the_bits_of_the_mask() {
    let mut ring = ring(4, 0, 0);
    let mut slot = netmap_slot {
        ptr: 0xabcd_1234,
        ..netmap_slot::default()
    };
    netmap_woffset(&ring, &mut slot, 5);
    assert_eq!((slot.ptr, netmap_roffset(&ring, &slot)), (0xabcd_1234, 0));
    ring.offset_mask = 0xffff;
    assert_eq!(netmap_roffset(&ring, &slot), 0x1234);
    netmap_woffset(&ring, &mut slot, 0x7_0042);
    assert_eq!(slot.ptr, 0xabcd_0042);
    ring.offset_mask = u64::MAX;
    netmap_woffset(&ring, &mut slot, 64);
    assert_eq!(slot.ptr, 64);
}

#[test]
fn the_number_of_fragments_is_in_the_high_bits_of_the_flags() {
    let slot = netmap_slot {
        flags: 0x0300 | NS_MOREFRAG,
        ..netmap_slot::default()
    };
    assert_eq!(ns_rfrags(&slot), 3);
}
