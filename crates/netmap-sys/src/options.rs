//! Options of requests.
//!
//! Each option starts with a [`nmreq_option`]. [`nmreq_push_option`](crate::nmreq_push_option) adds
//! it to a request. At most one option of each type is allowed.
//!
//! After the request, [`nmreq_option::nro_status`] tells whether the kernel has carried out the
//! option. A [`NETMAP_REQ_REGISTER`](crate::NETMAP_REQ_REGISTER) fails with `EOPNOTSUPP` if there
//! is an option that the kernel does not support.

use crate::requests::nmreq_pools_info;

/// Option type ([`nmreq_option::nro_reqtype`]): use the program's own memory. The option is a
/// [`nmreq_opt_extmem`].
pub const NETMAP_REQ_OPT_EXTMEM: u32 = 1;
/// Option type: notify by eventfds. The option is a [`nmreq_opt_sync_kloop_eventfds`].
pub const NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS: u32 = 2;
/// Option type: exchange ring positions through separate memory. The option is a [`nmreq_opt_csb`].
pub const NETMAP_REQ_OPT_CSB: u32 = 3;
/// Option type: sync directly when notified. The option is a [`nmreq_opt_sync_kloop_mode`].
pub const NETMAP_REQ_OPT_SYNC_KLOOP_MODE: u32 = 4;
/// Option type: packets start at an offset in their buffers. The option is a [`nmreq_opt_offsets`].
pub const NETMAP_REQ_OPT_OFFSETS: u32 = 5;
/// One more than the highest option type.
pub const NETMAP_REQ_OPT_MAX: u32 = 6;

/// Mode ([`nmreq_opt_sync_kloop_mode::mode`]): sync TX rings in the context of the notification.
pub const NM_OPT_SYNC_KLOOP_DIRECT_TX: u32 = 1;
/// Mode: sync RX rings in the context of the notification.
pub const NM_OPT_SYNC_KLOOP_DIRECT_RX: u32 = 2;

/// Header of every option.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nmreq_option {
    /// Address of the next option; zero at the end of the list.
    pub nro_next: u64,
    /// Option type, one of `NETMAP_REQ_OPT_*`.
    pub nro_reqtype: u32,
    /// Out: 0 if the kernel has carried out the option, otherwise an error number.
    pub nro_status: u32,
    /// Size of the whole option in bytes, if its type has no fixed size; otherwise 0.
    pub nro_size: u64,
}

impl nmreq_option {
    /// Creates the header of an option of fixed size.
    pub const fn new(reqtype: u32) -> Self {
        Self {
            nro_next: 0,
            nro_reqtype: reqtype,
            nro_status: 0,
            nro_size: 0,
        }
    }
}

/// Option of [`NETMAP_REQ_REGISTER`](crate::NETMAP_REQ_REGISTER): the memory region is memory of
/// the program, for example huge pages. It replaces the mapping of the device.
///
/// The module for Linux has this option only if it was built with it. Each buffer must be in memory
/// that is contiguous for the kernel, otherwise the kernel does not use it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct nmreq_opt_extmem {
    /// The option's header.
    pub nro_opt: nmreq_option,
    /// Address of the memory. The memory must stay mapped while it is used.
    pub nro_usrptr: u64,
    /// In: size of the memory, and numbers and sizes of the objects in each pool. Where a number or
    /// size is 0, the kernel chooses it. Out: the actual values.
    pub nro_info: nmreq_pools_info,
}

impl nmreq_opt_extmem {
    /// Creates the option for `size` bytes of memory at address `memory`.
    pub fn new(memory: u64, size: u64) -> Self {
        Self {
            nro_opt: nmreq_option::new(NETMAP_REQ_OPT_EXTMEM),
            nro_usrptr: memory,
            nro_info: nmreq_pools_info {
                nr_memsize: size,
                ..nmreq_pools_info::default()
            },
        }
    }
}

/// Option of [`NETMAP_REQ_REGISTER`](crate::NETMAP_REQ_REGISTER): each packet starts at an offset
/// in its buffer, which its slot has in `ptr`. See [`netmap_roffset`](crate::netmap_roffset).
///
/// VALE ports, pipes and copying monitors support offsets, and NICs if their drivers do. A VALE
/// switch keeps an offset's position within 64 bytes when it copies a packet. A receiver without
/// this option does not see where such a packet starts. Therefore a sender should use multiples of
/// 64 on a switch.
///
/// The header of FreeBSD 14 lacks this option.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct nmreq_opt_offsets {
    /// The option's header.
    pub nro_opt: nmreq_option,
    /// Maximum offset in bytes, at most the size of a buffer. The kernel takes a larger offset for
    /// this maximum. Out: the actual maximum, which is larger if the ring was in use already.
    pub nro_max_offset: u64,
    /// Offset that all slots get first, at most `nro_max_offset`.
    pub nro_initial_offset: u64,
    /// Number of low bits of `ptr` that hold the offset, 1 to 64. 0 means 64.
    pub nro_offset_bits: u32,
    /// Required alignment of a packet in a TX slot, in bytes.
    pub nro_tx_align: u32,
    /// Reserved; zero.
    pub nro_min_gap: u64,
}

impl nmreq_opt_offsets {
    /// Creates the option for offsets up to `max`, with `initial` as the first offset of all slots.
    pub const fn new(max: u64, initial: u64) -> Self {
        Self {
            nro_opt: nmreq_option::new(NETMAP_REQ_OPT_OFFSETS),
            nro_max_offset: max,
            nro_initial_offset: initial,
            nro_offset_bits: 0,
            nro_tx_align: 0,
            nro_min_gap: 0,
        }
    }
}

/// Option of [`NETMAP_REQ_REGISTER`](crate::NETMAP_REQ_REGISTER) and
/// [`NETMAP_REQ_CSB_ENABLE`](crate::NETMAP_REQ_CSB_ENABLE): switch to CSB mode; see
/// [`kloop`](crate::kloop).
///
/// Both arrays have one entry per bound ring, the TX rings first. The binding must have the flag
/// [`NR_EXCLUSIVE`](crate::NR_EXCLUSIVE).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct nmreq_opt_csb {
    /// The option's header.
    pub nro_opt: nmreq_option,
    /// Address of an array of [`nm_csb_atok`](crate::nm_csb_atok), a multiple of 64.
    pub csb_atok: u64,
    /// Address of an array of [`nm_csb_ktoa`](crate::nm_csb_ktoa), a multiple of 64.
    pub csb_ktoa: u64,
}

impl nmreq_opt_csb {
    /// Creates the option for the arrays at the addresses `atok` and `ktoa`.
    pub const fn new(atok: u64, ktoa: u64) -> Self {
        Self {
            nro_opt: nmreq_option::new(NETMAP_REQ_OPT_CSB),
            csb_atok: atok,
            csb_ktoa: ktoa,
        }
    }
}

/// Option of [`NETMAP_REQ_SYNC_KLOOP_START`](crate::NETMAP_REQ_SYNC_KLOOP_START), on Linux only:
/// kernel and program notify each other by eventfds.
///
/// One [`nmreq_kloop_eventfd`] per bound ring follows directly after this structure, the TX rings
/// first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct nmreq_opt_sync_kloop_eventfds {
    /// The option's header. Its `nro_size` is [`Self::size`].
    pub nro_opt: nmreq_option,
    /// The entries start here.
    pub eventfds: [nmreq_kloop_eventfd; 0],
}

impl nmreq_opt_sync_kloop_eventfds {
    /// Creates the first part of the option for `rings` bound rings.
    pub const fn new(rings: u16) -> Self {
        let mut nro_opt = nmreq_option::new(NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS);
        nro_opt.nro_size = Self::size(rings);
        Self {
            nro_opt,
            eventfds: [],
        }
    }

    /// Returns the size of the option with its entries, in bytes. The kernel refuses others.
    pub const fn size(rings: u16) -> u64 {
        (size_of::<Self>() + rings as usize * size_of::<nmreq_kloop_eventfd>()) as u64
    }
}

/// Entry of [`nmreq_opt_sync_kloop_eventfds`]. The header of netmap gives this structure no name.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct nmreq_kloop_eventfd {
    /// Eventfd by which the program wakes the kernel. If any of them is negative, the kernel sleeps
    /// between its syncs instead.
    pub ioeventfd: i32,
    /// Eventfd by which the kernel wakes the program. If it is negative, the kernel does not notify.
    pub irqfd: i32,
}

/// Option of [`NETMAP_REQ_SYNC_KLOOP_START`](crate::NETMAP_REQ_SYNC_KLOOP_START), in addition to
/// [`nmreq_opt_sync_kloop_eventfds`]: sync a ring in the context of the program's notification. All
/// `ioeventfd`s must be valid.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct nmreq_opt_sync_kloop_mode {
    /// The option's header.
    pub nro_opt: nmreq_option,
    /// Any of [`NM_OPT_SYNC_KLOOP_DIRECT_TX`] and [`NM_OPT_SYNC_KLOOP_DIRECT_RX`].
    pub mode: u32,
}

impl nmreq_opt_sync_kloop_mode {
    /// Creates the option.
    pub const fn new(mode: u32) -> Self {
        Self {
            nro_opt: nmreq_option::new(NETMAP_REQ_OPT_SYNC_KLOOP_MODE),
            mode,
        }
    }
}
