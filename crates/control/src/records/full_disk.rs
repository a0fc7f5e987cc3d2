//! A disk that is full, for tests.

#[cfg(target_os = "linux")]
use std::ffi::CStr;
use std::io::{self, ErrorKind, Write};
#[cfg(target_os = "linux")]
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use nix::sched::{CloneFlags, unshare};
#[cfg(target_os = "linux")]
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};

/// A disk with room for some bytes.
pub(super) struct Disk {
    pub(super) bytes: Vec<u8>,
    pub(super) room: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(self.room);
        if len == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(&bytes[..len]);
        self.room -= len;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A small disk, which only the thread sees that has made it.
#[cfg(target_os = "linux")]
pub(super) struct SmallDisk(PathBuf);

#[cfg(target_os = "linux")]
impl SmallDisk {
    /// Makes a disk at `path`. Returns `None` if the thread may not do so.
    pub(super) fn mount(path: &Path, options: &CStr) -> Option<Self> {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        unshare(CloneFlags::CLONE_NEWNS).ok()?;
        mount_change("/", private).ok()?;
        mount("disk", path, "tmpfs", MountFlags::empty(), options).ok()?;
        Some(Self(path.to_owned()))
    }
}

#[cfg(target_os = "linux")]
impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Otherwise the folder could not be removed.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}
