//! Tests of requests and their options.

use libc::c_char;

use crate::*;

#[test]
fn a_request_holds_an_interface_name_of_at_most_63_bytes() {
    let header = nmreq_header::new(NETMAP_REQ_REGISTER, "eth0", 0x1234).unwrap();
    assert_eq!((header.nr_version, header.nr_reqtype), (14, 1));
    let name = b"eth0\0".map(|c| c.cast_signed() as c_char);
    assert_eq!(header.nr_name[..5], name);
    assert_eq!((header.nr_options, header.nr_body), (0, 0x1234));
    assert!(nmreq_header::new(1, &"x".repeat(63), 0).is_some());
    assert!(nmreq_header::new(1, &"x".repeat(64), 0).is_none());
    assert!(nmreq_header::new(1, "a\0b", 0).is_none());
}

#[test]
fn the_last_option_pushed_is_the_first_of_the_list() {
    let mut header = nmreq_header::new(NETMAP_REQ_REGISTER, "vale0:1", 0).unwrap();
    let mut offsets = nmreq_opt_offsets::new(128, 64);
    let mut memory = nmreq_opt_extmem::new(0x20_0000, 4096);
    let (first, second) = (&raw mut offsets, &raw mut memory);
    // SAFETY: both options start with their headers, and nothing else uses them meanwhile.
    unsafe {
        nmreq_push_option(&mut header, first.cast());
        nmreq_push_option(&mut header, second.cast());
    }
    assert_eq!(header.nr_options, second.addr() as u64);
    assert_eq!(memory.nro_opt.nro_next, first.addr() as u64);
    assert_eq!(offsets.nro_opt.nro_next, 0);
}

#[test]
fn options_carry_their_types_and_arguments() {
    let offsets = nmreq_opt_offsets::new(128, 64);
    assert_eq!(offsets.nro_opt, nmreq_option::new(NETMAP_REQ_OPT_OFFSETS));
    assert_eq!(
        (offsets.nro_max_offset, offsets.nro_initial_offset),
        (128, 64)
    );
    let memory = nmreq_opt_extmem::new(0x20_0000, 4096);
    assert_eq!(memory.nro_opt, nmreq_option::new(NETMAP_REQ_OPT_EXTMEM));
    assert_eq!(
        (memory.nro_usrptr, memory.nro_info.nr_memsize),
        (0x20_0000, 4096)
    );
    let csb = nmreq_opt_csb::new(64, 128);
    assert_eq!(csb.nro_opt, nmreq_option::new(NETMAP_REQ_OPT_CSB));
    assert_eq!((csb.csb_atok, csb.csb_ktoa), (64, 128));
    let mode = nmreq_opt_sync_kloop_mode::new(NM_OPT_SYNC_KLOOP_DIRECT_TX);
    assert_eq!(mode.nro_opt.nro_reqtype, NETMAP_REQ_OPT_SYNC_KLOOP_MODE);
    assert_eq!(mode.mode, 1);
}

#[test]
fn the_eventfd_option_says_its_size() {
    let option = nmreq_opt_sync_kloop_eventfds::new(3);
    assert_eq!(
        option.nro_opt.nro_reqtype,
        NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS
    );
    assert_eq!(option.nro_opt.nro_size, 24 + 3 * 8);
    assert_eq!(nmreq_opt_sync_kloop_eventfds::size(0), 24);
}

#[test]
fn positions_pass_through_csb_entries() {
    let mut atok = nm_csb_atok::default();
    let mut ktoa = nm_csb_ktoa {
        hwcur: 5,
        hwtail: 9,
        ..nm_csb_ktoa::default()
    };
    // SAFETY: nothing else uses the entries.
    let positions = unsafe {
        nm_sync_kloop_appl_write(&raw mut atok, 7, 6);
        nm_sync_kloop_appl_read(&raw mut ktoa)
    };
    assert_eq!((atok.cur, atok.head), (7, 6));
    assert_eq!(positions, (9, 5));
}
