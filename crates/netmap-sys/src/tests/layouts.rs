//! The layout of every structure, as a C compiler computes it from the headers of API 14 for 64-bit
//! targets.

use std::mem::offset_of;

use crate::*;

/// Returns the size of the field that `field` points to.
const fn size_of_field<S, F>(_field: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Returns the alignment of the field that `field` points to.
const fn align_of_field<S, F>(_field: fn(&S) -> &F) -> usize {
    align_of::<F>()
}

/// Checks a structure's size and alignment, and each field's offset, size and alignment, in bytes. The
/// compiler does this, so that it also checks targets on which no test runs. The table must list each
/// field.
macro_rules! layout {
    ($name:ident, size $size:literal, align $align:literal, {
        $($field:ident: $offset:literal, $bytes:literal, $field_align:literal;)+
    }) => {
        const _: () = {
            let _lists_each_field = |$name { $($field: _),+ }: &$name| {};
            assert!(size_of::<$name>() == $size);
            assert!(align_of::<$name>() == $align);
            $(
                assert!(offset_of!($name, $field) == $offset, stringify!($field));
                assert!(size_of_field(|s: &$name| &s.$field) == $bytes, stringify!($field));
                assert!(
                    align_of_field(|s: &$name| &s.$field) == $field_align,
                    stringify!($field)
                );
            )+
        };
    };
}

layout!(netmap_slot, size 16, align 8, {
    buf_idx: 0, 4, 4;
    len: 4, 2, 2;
    flags: 6, 2, 2;
    ptr: 8, 8, 8;
});
layout!(netmap_ring, size 256, align 128, {
    buf_ofs: 0, 8, 8;
    num_slots: 8, 4, 4;
    nr_buf_size: 12, 4, 4;
    ringid: 16, 2, 2;
    dir: 18, 2, 2;
    head: 20, 4, 4;
    cur: 24, 4, 4;
    tail: 28, 4, 4;
    flags: 32, 4, 4;
    ts: 40, 16, 8;
    offset_mask: 56, 8, 8;
    buf_align: 64, 8, 8;
    sem: 128, 128, 128;
    slot: 256, 0, 8;
});
layout!(netmap_if, size 56, align 8, {
    ni_name: 0, 16, 1;
    ni_version: 16, 4, 4;
    ni_flags: 20, 4, 4;
    ni_tx_rings: 24, 4, 4;
    ni_rx_rings: 28, 4, 4;
    ni_bufs_head: 32, 4, 4;
    ni_host_tx_rings: 36, 4, 4;
    ni_host_rx_rings: 40, 4, 4;
    ni_spare1: 44, 12, 4;
    ring_ofs: 56, 0, 8;
});
layout!(nmreq_option, size 24, align 8, {
    nro_next: 0, 8, 8;
    nro_reqtype: 8, 4, 4;
    nro_status: 12, 4, 4;
    nro_size: 16, 8, 8;
});
layout!(nmreq_header, size 88, align 8, {
    nr_version: 0, 2, 2;
    nr_reqtype: 2, 2, 2;
    nr_reserved: 4, 4, 4;
    nr_name: 8, 64, 1;
    nr_options: 72, 8, 8;
    nr_body: 80, 8, 8;
});
layout!(nmreq_register, size 56, align 8, {
    nr_offset: 0, 8, 8;
    nr_memsize: 8, 8, 8;
    nr_tx_slots: 16, 4, 4;
    nr_rx_slots: 20, 4, 4;
    nr_tx_rings: 24, 2, 2;
    nr_rx_rings: 26, 2, 2;
    nr_host_tx_rings: 28, 2, 2;
    nr_host_rx_rings: 30, 2, 2;
    nr_mem_id: 32, 2, 2;
    nr_ringid: 34, 2, 2;
    nr_mode: 36, 4, 4;
    nr_extra_bufs: 40, 4, 4;
    nr_flags: 48, 8, 8;
});
layout!(nmreq_port_info_get, size 32, align 8, {
    nr_memsize: 0, 8, 8;
    nr_tx_slots: 8, 4, 4;
    nr_rx_slots: 12, 4, 4;
    nr_tx_rings: 16, 2, 2;
    nr_rx_rings: 18, 2, 2;
    nr_host_tx_rings: 20, 2, 2;
    nr_host_rx_rings: 22, 2, 2;
    nr_mem_id: 24, 2, 2;
    pad: 26, 6, 2;
});
layout!(nmreq_vale_attach, size 64, align 8, {
    reg: 0, 56, 8;
    port_index: 56, 4, 4;
    pad1: 60, 4, 4;
});
layout!(nmreq_vale_detach, size 8, align 4, {
    port_index: 0, 4, 4;
    pad1: 4, 4, 4;
});
layout!(nmreq_vale_list, size 8, align 4, {
    nr_bridge_idx: 0, 2, 2;
    pad1: 2, 2, 2;
    nr_port_idx: 4, 4, 4;
});
layout!(nmreq_port_hdr, size 8, align 4, {
    nr_hdr_len: 0, 4, 4;
    pad1: 4, 4, 4;
});
layout!(nmreq_vale_newif, size 16, align 4, {
    nr_tx_slots: 0, 4, 4;
    nr_rx_slots: 4, 4, 4;
    nr_tx_rings: 8, 2, 2;
    nr_rx_rings: 10, 2, 2;
    nr_mem_id: 12, 2, 2;
    pad1: 14, 2, 2;
});
layout!(nmreq_vale_polling, size 16, align 4, {
    nr_mode: 0, 4, 4;
    nr_first_cpu_id: 4, 4, 4;
    nr_num_polling_cpus: 8, 4, 4;
    pad1: 12, 4, 4;
});
layout!(nmreq_pools_info, size 64, align 8, {
    nr_memsize: 0, 8, 8;
    nr_mem_id: 8, 2, 2;
    pad1: 10, 6, 2;
    nr_if_pool_offset: 16, 8, 8;
    nr_if_pool_objtotal: 24, 4, 4;
    nr_if_pool_objsize: 28, 4, 4;
    nr_ring_pool_offset: 32, 8, 8;
    nr_ring_pool_objtotal: 40, 4, 4;
    nr_ring_pool_objsize: 44, 4, 4;
    nr_buf_pool_offset: 48, 8, 8;
    nr_buf_pool_objtotal: 56, 4, 4;
    nr_buf_pool_objsize: 60, 4, 4;
});
layout!(nmreq_sync_kloop_start, size 8, align 4, {
    sleep_us: 0, 4, 4;
    pad1: 4, 4, 4;
});
layout!(nm_csb_atok, size 64, align 4, {
    head: 0, 4, 4;
    cur: 4, 4, 4;
    appl_need_kick: 8, 4, 4;
    sync_flags: 12, 4, 4;
    pad: 16, 48, 4;
});
layout!(nm_csb_ktoa, size 64, align 4, {
    hwcur: 0, 4, 4;
    hwtail: 4, 4, 4;
    kern_need_kick: 8, 4, 4;
    pad: 12, 52, 4;
});
layout!(nmreq_opt_sync_kloop_eventfds, size 24, align 8, {
    nro_opt: 0, 24, 8;
    eventfds: 24, 0, 4;
});
layout!(nmreq_kloop_eventfd, size 8, align 4, {
    ioeventfd: 0, 4, 4;
    irqfd: 4, 4, 4;
});
layout!(nmreq_opt_sync_kloop_mode, size 32, align 8, {
    nro_opt: 0, 24, 8;
    mode: 24, 4, 4;
});
layout!(nmreq_opt_extmem, size 96, align 8, {
    nro_opt: 0, 24, 8;
    nro_usrptr: 24, 8, 8;
    nro_info: 32, 64, 8;
});
layout!(nmreq_opt_csb, size 40, align 8, {
    nro_opt: 0, 24, 8;
    csb_atok: 24, 8, 8;
    csb_ktoa: 32, 8, 8;
});
layout!(nmreq_opt_offsets, size 56, align 8, {
    nro_opt: 0, 24, 8;
    nro_max_offset: 24, 8, 8;
    nro_initial_offset: 32, 8, 8;
    nro_offset_bits: 40, 4, 4;
    nro_tx_align: 44, 4, 4;
    nro_min_gap: 48, 8, 8;
});
layout!(nm_vnet_hdr, size 10, align 2, {
    flags: 0, 1, 1;
    gso_type: 1, 1, 1;
    hdr_len: 2, 2, 2;
    gso_size: 4, 2, 2;
    csum_start: 6, 2, 2;
    csum_offset: 8, 2, 2;
});
