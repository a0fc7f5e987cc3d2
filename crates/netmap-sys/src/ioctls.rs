//! The device file and its `ioctl` numbers.
//!
//! The type of an `ioctl` number differs between C libraries. Therefore callers convert it:
//! `libc::ioctl(fd, NIOCTXSYNC as _)`.

use libc::c_ulong;

use crate::requests::nmreq_header;

/// The device file that every user of netmap opens.
pub const NETMAP_DEVICE_NAME: &str = "/dev/netmap";

/// `ioctl` that carries out a request. Its argument is a [`nmreq_header`].
pub const NIOCCTRL: c_ulong = iowr(151, size_of::<nmreq_header>());
/// `ioctl` that hands the TX slots before `head` to the kernel and updates `tail`. It takes no
/// argument. It syncs all bound TX rings, and does not wait.
pub const NIOCTXSYNC: c_ulong = io(148);
/// `ioctl` that returns the RX slots before `head` to the kernel and updates `tail`. It takes no
/// argument. It syncs all bound RX rings, and does not wait.
pub const NIOCRXSYNC: c_ulong = io(149);

/// The group letter of netmap's `ioctl` numbers.
const IOC_GROUP: c_ulong = b'i' as c_ulong;
/// Direction bits of an `ioctl` without an argument. On Linux they are zero, except on the
/// architectures that have taken over the numbers of older systems.
const IOC_VOID: c_ulong = if cfg!(all(
    target_os = "linux",
    not(any(
        target_arch = "mips64",
        target_arch = "mips64r6",
        target_arch = "powerpc64",
        target_arch = "sparc64"
    ))
)) {
    0
} else {
    0x2000_0000
};
/// Direction bits of an `ioctl` whose argument the kernel both reads and writes.
const IOC_INOUT: c_ulong = 0xc000_0000;

const fn io(number: c_ulong) -> c_ulong {
    IOC_VOID | IOC_GROUP << 8 | number
}

const fn iowr(number: c_ulong, size: usize) -> c_ulong {
    IOC_INOUT | (size as c_ulong) << 16 | IOC_GROUP << 8 | number
}
