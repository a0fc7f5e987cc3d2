//! A fault of the kernel's driver `virtio_net`.

use std::path::Path;

/// Returns true if the interface's driver sends damaged frames in zero-copy mode.
///
/// `virtio_net` has one header for all frames that it sends with zero-copy. The header is a static
/// variable. In a module, such a variable has no fixed place in physical memory, but the driver
/// computes one (seen in Linux 7.2). So the device reads the header from memory of somebody else.
/// Unless this memory is zero, the device drops the frame, or changes it.
pub(super) fn damages_frames(interface: &str) -> bool {
    let driver = Path::new("/sys/class/net")
        .join(interface)
        .join("device/driver");
    let driver = driver.canonicalize().unwrap_or_default();
    // Only modules have an `initstate`, and not the drivers that are part of the kernel.
    driver.ends_with("virtio_net") && Path::new("/sys/module/virtio_net/initstate").exists()
}
