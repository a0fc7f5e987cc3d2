//! The value of every constant, as a C compiler computes it from the headers of API 14.

use crate::*;

/// Checks constants of any integer type. The compiler does this, on every target.
macro_rules! constants {
    ($($name:ident = $value:literal;)+) => {
        const _: () = {
            $(assert!($name as u64 == $value, stringify!($name));)+
        };
    };
}

// Request types.
constants! {
    NETMAP_REQ_REGISTER = 0x1;
    NETMAP_REQ_PORT_INFO_GET = 0x2;
    NETMAP_REQ_VALE_ATTACH = 0x3;
    NETMAP_REQ_VALE_DETACH = 0x4;
    NETMAP_REQ_VALE_LIST = 0x5;
    NETMAP_REQ_PORT_HDR_SET = 0x6;
    NETMAP_REQ_PORT_HDR_GET = 0x7;
    NETMAP_REQ_VALE_NEWIF = 0x8;
    NETMAP_REQ_VALE_DELIF = 0x9;
    NETMAP_REQ_VALE_POLLING_ENABLE = 0xa;
    NETMAP_REQ_VALE_POLLING_DISABLE = 0xb;
    NETMAP_REQ_POOLS_INFO_GET = 0xc;
    NETMAP_REQ_SYNC_KLOOP_START = 0xd;
    NETMAP_REQ_SYNC_KLOOP_STOP = 0xe;
    NETMAP_REQ_CSB_ENABLE = 0xf;
}

// Option types and modes.
constants! {
    NETMAP_REQ_OPT_EXTMEM = 0x1;
    NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS = 0x2;
    NETMAP_REQ_OPT_CSB = 0x3;
    NETMAP_REQ_OPT_SYNC_KLOOP_MODE = 0x4;
    NETMAP_REQ_OPT_OFFSETS = 0x5;
    NETMAP_REQ_OPT_MAX = 0x6;
    NM_OPT_SYNC_KLOOP_DIRECT_TX = 0x1;
    NM_OPT_SYNC_KLOOP_DIRECT_RX = 0x2;
}

// Binding modes and flags.
constants! {
    NR_MONITOR_TX = 0x100;
    NR_MONITOR_RX = 0x200;
    NR_ZCOPY_MON = 0x400;
    NR_EXCLUSIVE = 0x800;
    NR_RX_RINGS_ONLY = 0x2000;
    NR_TX_RINGS_ONLY = 0x4000;
    NR_ACCEPT_VNET_HDR = 0x8000;
    NR_DO_RX_POLL = 0x1_0000;
    NR_NO_TX_POLL = 0x2_0000;
    NR_REG_DEFAULT = 0x0;
    NR_REG_ALL_NIC = 0x1;
    NR_REG_SW = 0x2;
    NR_REG_NIC_SW = 0x3;
    NR_REG_ONE_NIC = 0x4;
    NR_REG_PIPE_MASTER = 0x5;
    NR_REG_PIPE_SLAVE = 0x6;
    NR_REG_NULL = 0x7;
    NR_REG_ONE_SW = 0x8;
}

// Slot ring and interface flags.
constants! {
    NS_BUF_CHANGED = 0x1;
    NS_REPORT = 0x2;
    NS_FORWARD = 0x4;
    NS_NO_LEARN = 0x8;
    NS_INDIRECT = 0x10;
    NS_MOREFRAG = 0x20;
    NS_TXMON = 0x40;
    NS_PORT_SHIFT = 0x8;
    NS_PORT_MASK = 0xff00;
    NR_TIMESTAMP = 0x2;
    NR_FORWARD = 0x4;
    NI_PRIV_MEM = 0x1;
}

// Versions limits and polling modes.
constants! {
    NETMAP_API = 0xe;
    NETMAP_MIN_API = 0xe;
    NETMAP_MAX_API = 0xf;
    NM_CACHE_ALIGN = 0x80;
    NETMAP_MAX_FRAGS = 0x40;
    NETMAP_REQ_MAXSIZE = 0x1000;
    NETMAP_REQ_IFNAMSIZ = 0x40;
    NETMAP_POLLING_MODE_SINGLE_CPU = 0x1;
    NETMAP_POLLING_MODE_MULTI_CPU = 0x2;
}

// The `ioctl` numbers. Those without an argument differ between the systems.
constants! {
    NIOCCTRL = 0xc058_6997;
}
#[cfg(target_os = "linux")]
constants! {
    NIOCTXSYNC = 0x6994;
    NIOCRXSYNC = 0x6995;
}
#[cfg(target_os = "freebsd")]
constants! {
    NIOCTXSYNC = 0x2000_6994;
    NIOCRXSYNC = 0x2000_6995;
}

// The virtio-net header, from the header of Linux.
constants! {
    NM_VNET_HDR_LEN = 10;
    NM_VNET_HDR_MRG_LEN = 12;
    VIRTIO_NET_HDR_F_NEEDS_CSUM = 1;
    VIRTIO_NET_HDR_F_DATA_VALID = 2;
    VIRTIO_NET_HDR_GSO_NONE = 0;
    VIRTIO_NET_HDR_GSO_TCPV4 = 1;
    VIRTIO_NET_HDR_GSO_UDP = 3;
    VIRTIO_NET_HDR_GSO_TCPV6 = 4;
    VIRTIO_NET_HDR_GSO_ECN = 0x80;
}

#[test]
fn names() {
    assert_eq!(NM_BDG_NAME, "vale");
    assert_eq!(NETMAP_DEVICE_NAME, "/dev/netmap");
}
