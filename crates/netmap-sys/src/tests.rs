//! Checks that structures and `ioctl` numbers are those that the kernel expects, and tests the
//! functions of this crate.
#![allow(unsafe_code)]

use std::mem::offset_of;

use super::*;

// The sizes and offsets that a C compiler computes for the structures of API 14 on 64-bit machines.
const _: () = {
    assert!(size_of::<nmreq_header>() == 88);
    assert!(offset_of!(nmreq_header, nr_reqtype) == 2);
    assert!(offset_of!(nmreq_header, nr_name) == 8);
    assert!(offset_of!(nmreq_header, nr_options) == 72);
    assert!(offset_of!(nmreq_header, nr_body) == 80);

    assert!(size_of::<nmreq_register>() == 56);
    assert!(offset_of!(nmreq_register, nr_memsize) == 8);
    assert!(offset_of!(nmreq_register, nr_tx_slots) == 16);
    assert!(offset_of!(nmreq_register, nr_tx_rings) == 24);
    assert!(offset_of!(nmreq_register, nr_mem_id) == 32);
    assert!(offset_of!(nmreq_register, nr_ringid) == 34);
    assert!(offset_of!(nmreq_register, nr_mode) == 36);
    assert!(offset_of!(nmreq_register, nr_extra_bufs) == 40);
    assert!(offset_of!(nmreq_register, nr_flags) == 48);

    assert!(size_of::<nmreq_port_info_get>() == 32);
    assert!(offset_of!(nmreq_port_info_get, nr_tx_rings) == 16);
    assert!(offset_of!(nmreq_port_info_get, nr_mem_id) == 24);

    assert!(size_of::<netmap_if>() == 56);
    assert!(offset_of!(netmap_if, ni_version) == 16);
    assert!(offset_of!(netmap_if, ni_tx_rings) == 24);
    assert!(offset_of!(netmap_if, ni_bufs_head) == 32);
    assert!(offset_of!(netmap_if, ni_host_rx_rings) == 40);
    assert!(offset_of!(netmap_if, ring_ofs) == 56);

    assert!(size_of::<netmap_slot>() == 16);
    assert!(offset_of!(netmap_slot, len) == 4);
    assert!(offset_of!(netmap_slot, flags) == 6);
    assert!(offset_of!(netmap_slot, ptr) == 8);

    assert!(size_of::<netmap_ring>() == 256);
    assert!(align_of::<netmap_ring>() == 128);
    assert!(offset_of!(netmap_ring, num_slots) == 8);
    assert!(offset_of!(netmap_ring, ringid) == 16);
    assert!(offset_of!(netmap_ring, head) == 20);
    assert!(offset_of!(netmap_ring, cur) == 24);
    assert!(offset_of!(netmap_ring, tail) == 28);
    assert!(offset_of!(netmap_ring, flags) == 32);
    assert!(offset_of!(netmap_ring, ts) == 40);
    assert!(offset_of!(netmap_ring, offset_mask) == 56);
    assert!(offset_of!(netmap_ring, buf_align) == 64);
    assert!(offset_of!(netmap_ring, sem) == 128);
    assert!(offset_of!(netmap_ring, slot) == 256);
};

#[test]
fn ioctl_numbers_match_the_kernels() {
    assert_eq!(NIOCCTRL, 0xc058_6997);
    if cfg!(target_os = "linux") {
        assert_eq!((NIOCTXSYNC, NIOCRXSYNC), (0x6994, 0x6995));
    } else {
        assert_eq!((NIOCTXSYNC, NIOCRXSYNC), (0x2000_6994, 0x2000_6995));
    }
}

#[test]
fn a_request_holds_an_interface_name_of_at_most_63_bytes() {
    let header = nmreq_header::new(NETMAP_REQ_REGISTER, "eth0", 0x1234).unwrap();
    assert_eq!((header.nr_version, header.nr_reqtype), (14, 1));
    let name = b"eth0\0".map(|c| c.cast_signed() as c_char);
    assert_eq!(header.nr_name[..5], name);
    assert_eq!(header.nr_body, 0x1234);
    assert!(nmreq_header::new(1, &"x".repeat(63), 0).is_some());
    assert!(nmreq_header::new(1, &"x".repeat(64), 0).is_none());
    assert!(nmreq_header::new(1, "a\0b", 0).is_none());
}

/// A memory region as netmap would map it, aligned for rings.
#[repr(C, align(128))]
struct Region([u8; 4096]);

const IF_AT: usize = 64;
const RINGS_AT: usize = 256;
const BUFFERS_AT: usize = 2048;

#[test]
fn rings_and_buffers_are_found_from_the_interface() {
    let mut region = Box::new(Region([0; 4096]));
    let region = &raw mut *region;
    // SAFETY: every access lies in `region`, at an offset aligned for its type. The netmap_if and
    // its five ring offsets start at 64, rings of 256 bytes at 256, and buffers at 2048.
    unsafe {
        let nifp = region.byte_add(IF_AT).cast::<netmap_if>();
        (*nifp).ni_tx_rings = 2;
        (*nifp).ni_host_tx_rings = 1;
        (*nifp).ni_rx_rings = 1;
        (*nifp).ni_host_rx_rings = 1;
        let offsets = nifp.byte_add(56).cast::<isize>();
        for i in 0..5 {
            *offsets.add(i) = (RINGS_AT + i * 256 - IF_AT).cast_signed();
            let ring = region.byte_add(RINGS_AT + i * 256).cast::<netmap_ring>();
            (*ring).ringid = i as u16;
            (*ring).nr_buf_size = 512;
            (*ring).buf_ofs = (BUFFERS_AT - RINGS_AT - i * 256).cast_signed() as i64;
        }
        assert_eq!((*netmap_txring(nifp, 0)).ringid, 0);
        assert_eq!((*netmap_txring(nifp, 1)).ringid, 1);
        assert_eq!((*netmap_txring(nifp, 2)).ringid, 2, "the host's TX ring");
        assert_eq!((*netmap_rxring(nifp, 0)).ringid, 3);
        assert_eq!((*netmap_rxring(nifp, 1)).ringid, 4, "the host's RX ring");
        for ring in [netmap_txring(nifp, 1), netmap_rxring(nifp, 0)] {
            let buffer = region.byte_add(BUFFERS_AT + 3 * 512).cast();
            assert_eq!(netmap_buf(ring, 3), buffer);
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
