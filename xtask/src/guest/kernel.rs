//! Kernels of Debian packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::packages::Packages;
use crate::shell;

/// Flavour of the kernels, which has the drivers of virtual machines only.
const FLAVOUR: &str = "-cloud-amd64";
/// Parts into which Debian splits a kernel. Older kernels have only the first.
const PARTS: [&str; 4] = [
    "linux-image-",
    "linux-binary-",
    "linux-modules-",
    "linux-base-",
];

/// Which kernel a guest boots.
#[derive(Debug)]
pub(super) enum Choice {
    /// The kernel of the host's Debian release.
    Stable,
    /// The newest kernel, usually from the backports.
    Newest,
    /// The kernel for which a module was built.
    Release(String),
}

/// An unpacked kernel.
pub(super) struct Kernel {
    release: String,
    folder: PathBuf,
}

impl Kernel {
    /// Fetches and unpacks the chosen kernel, unless that has been done before.
    pub(super) fn fetch(choice: &Choice, packages: &Packages) -> Result<Self> {
        let names = packages.names("linux-")?;
        let release = match choice {
            Choice::Stable => {
                let needed = packages.dependencies(&format!("{}{}", PARTS[0], &FLAVOUR[1..]))?;
                newest(&needed)
            }
            Choice::Newest => newest(&names),
            Choice::Release(release) => Some(release.clone()),
        };
        let release = release.with_context(|| format!("no package has the kernel {choice:?}"))?;
        let parts = PARTS.map(|part| format!("{part}{release}"));
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|part| names.contains(part))
            .collect();
        ensure!(!parts.is_empty(), "no package has the kernel {release}");
        let folder = packages.unpacked(&format!("linux-{release}"), &parts)?;
        Ok(Self { release, folder })
    }

    /// Returns the kernel's image.
    pub(super) fn image(&self) -> Result<PathBuf> {
        let old = self.folder.join(format!("boot/vmlinuz-{}", self.release));
        let new = self.modules().join("vmlinuz");
        let found = [old, new].into_iter().find(|path| path.is_file());
        found.with_context(|| format!("no image in {}", self.folder.display()))
    }

    fn modules(&self) -> PathBuf {
        let path = |top: &str| self.folder.join(top).join(&self.release);
        let (old, new) = (path("lib/modules"), path("usr/lib/modules"));
        if new.is_dir() { new } else { old }
    }

    /// Writes the module `name` and those that it needs, decompressed, into `folder`. Adds their
    /// names to `order`, in the order in which they must be loaded. A module without a file is a
    /// part of the kernel's image.
    pub(super) fn unpack_module(
        &self,
        name: &str,
        busybox: &Path,
        folder: &Path,
        order: &mut Vec<String>,
    ) -> Result<()> {
        let file = format!("{name}.ko");
        let Some(found) = find(&self.modules().join("kernel"), &file)? else {
            return Ok(());
        };
        let is_plain = found.extension().is_some_and(|end| end == "ko");
        let applet = if is_plain { "cat" } else { "xzcat" };
        let module = shell::capture(Command::new(busybox).arg(applet).arg(found))?;
        let needed = property("depends", &module).unwrap_or_default();
        for needed in needed.split(',').filter(|needed| !needed.is_empty()) {
            self.unpack_module(needed, busybox, folder, order)?;
        }
        if !order.iter().any(|other| other == name) {
            order.push(name.to_owned());
        }
        shell::write(&folder.join(file), module)
    }
}

/// Finds the file `name` or `name.xz` below `folder`. A `-` in its name counts as `_`.
fn find(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    let failed = || format!("reading {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let (path, found) = (entry.path(), entry.file_name());
        if path.is_dir() {
            if let Some(found) = find(&path, name)? {
                return Ok(Some(found));
            }
        } else if found
            .to_string_lossy()
            .trim_end_matches(".xz")
            .replace('-', "_")
            == name
        {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Returns the newest release among the kernels of our flavour in a list of packages.
fn newest(packages: &[String]) -> Option<String> {
    let release = |name: &String| {
        let release = name.strip_prefix(PARTS[0])?;
        let counts =
            release.ends_with(FLAVOUR) && release.starts_with(|c: char| c.is_ascii_digit());
        counts.then(|| release.to_owned())
    };
    let numbers = |release: &String| -> Vec<u32> {
        let words = release.split(|c: char| !c.is_ascii_digit());
        words.filter_map(|word| word.parse().ok()).collect()
    };
    packages.iter().filter_map(release).max_by_key(numbers)
}

/// Returns the release of the kernel for which a module was built.
pub(super) fn release_of_module(module: &Path) -> Result<String> {
    let bytes = std::fs::read(module).with_context(|| format!("reading {}", module.display()))?;
    let magic = property("vermagic", &bytes);
    let magic = magic.with_context(|| format!("{} is not a kernel module", module.display()))?;
    Ok(magic.split(' ').next().unwrap_or_default().to_owned())
}

/// Returns true if `module` is a driver with native netmap.
pub(super) fn needs_netmap(module: &Path) -> bool {
    let needed = std::fs::read(module)
        .ok()
        .and_then(|bytes| property("depends", &bytes));
    needed.is_some_and(|needed| needed.split(',').any(|needed| needed == "netmap"))
}

/// Returns the value of a module's property, as `modinfo` prints it.
fn property(name: &str, module: &[u8]) -> Option<String> {
    let mark = format!("\0{name}=").into_bytes();
    let place = module.windows(mark.len()).position(|bytes| bytes == mark)?;
    let text = module[place + mark.len()..]
        .split(|byte| *byte == 0)
        .next()?;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_found_by_number() {
        let names = [
            "linux-image-cloud-amd64",
            "linux-image-6.9.12+deb13-cloud-amd64",
            "linux-image-6.12.9+deb13-cloud-amd64",
            "linux-image-6.12.10+deb13-cloud-amd64",
            "linux-image-6.12.11+deb13-amd64",
            "linux-image-7.0.1+deb13-cloud-amd64-unsigned",
        ];
        let found = newest(&names.map(str::to_owned));
        assert_eq!(found.as_deref(), Some("6.12.10+deb13-cloud-amd64"));
        assert_eq!(newest(&[]), None);
    }

    #[test]
    fn the_properties_of_a_module_are_read() {
        let module = b"\x7fELF\0license=GPL\0vermagic=6.12.1-amd64 SMP \0depends=\0name=netmap\0";
        let value = |name| property(name, module);
        assert_eq!(value("vermagic").as_deref(), Some("6.12.1-amd64 SMP "));
        assert_eq!(value("depends").as_deref(), Some(""));
        assert_eq!(value("magic"), None);
    }
}
