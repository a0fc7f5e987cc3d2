//! The initial RAM file system of a guest: busybox, our servers, their clients, and what both need.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::kernel::Kernel;
use crate::e2e::web::body;
use crate::shell;

const INIT: &str = include_str!("init.sh");
/// Modules that every guest loads, besides those that they need.
const MODULES: [&str; 3] = ["virtio_pci", "virtio_net", "veth"];
/// Parameters of a `virtio_net` with native netmap.
const NATIVE_OPTIONS: &str = " napi_tx=0";
/// Programs of the host that guests use. busybox lacks them or their features.
const TOOLS: [&str; 5] = ["ip", "tc", "ethtool", "curl", "dig"];
/// The servers' user must exist.
const USERS: &str = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n";
const GROUPS: &str = "root:x:0:\nnogroup:x:65534:\n";

/// The site and the zone in the guest.
const SITE: &str = "site";
const ZONE: &str = "storm.test.zone";
/// A file of the site, with 1 MB, and one with 1 KB.
pub(super) const BIG: &str = "big.bin";
pub(super) const SMALL: &str = "small.bin";

/// What a guest gets besides the kernel's modules, busybox, and the programs of the host.
#[derive(Default)]
pub(super) struct Content {
    pub(super) programs: Vec<PathBuf>,
    /// Modules that take the place of the kernel's, or that it lacks.
    pub(super) modules: Vec<PathBuf>,
}

/// Makes the file system for guests with this kernel, and writes it to `file`.
pub(super) fn make(
    kernel: &Kernel,
    busybox: &Path,
    content: &Content,
    folder: &Path,
    file: &Path,
) -> Result<()> {
    let scratch = shell::scratch_in(folder, "initramfs")?;
    let root = scratch.path();
    for part in [
        "bin",
        "usr/local/bin",
        "modules",
        "etc",
        "proc",
        "sys",
        "dev",
        "tmp",
        "run",
    ] {
        shell::make_folder(&root.join(part))?;
    }
    copy(busybox, &root.join("bin/busybox"))?;
    for tool in TOOLS {
        let path = shell::capture_text(Command::new("which").arg(tool))?;
        install(Path::new(path.trim()), root)?;
    }
    for program in &content.programs {
        install(program, root)?;
    }
    let (modules, mut order) = (root.join("modules"), Vec::new());
    for module in MODULES {
        kernel.unpack_module(module, busybox, &modules, &mut order)?;
    }
    for module in &content.modules {
        copy(
            module,
            &modules.join(module.file_name().unwrap_or_default()),
        )?;
        let stem = module.file_stem().unwrap_or_default();
        let name = stem.to_string_lossy().into_owned();
        match order.iter_mut().find(|other| **other == name) {
            // Otherwise the first program that closes the interface would hang in the kernel.
            Some(driver) => driver.push_str(NATIVE_OPTIONS),
            // A driver with native netmap needs netmap.
            None => order.insert(0, name),
        }
    }
    shell::write(&modules.join("order"), order.join("\n") + "\n")?;
    shell::make_folder(&root.join(SITE))?;
    write_site(&root.join(SITE))?;
    let zone = shell::repository().join("xtask/sample/zones/storm.test.zone");
    copy(&zone, &root.join(ZONE))?;
    shell::write(&root.join("etc/passwd"), USERS)?;
    shell::write(&root.join("etc/group"), GROUPS)?;
    let init = root.join("init");
    shell::write(&init, INIT)?;
    fs::set_permissions(&init, Permissions::from_mode(0o755)).context("making init executable")?;
    pack(root, file)
}

/// Writes the files of the site.
pub(super) fn write_site(folder: &Path) -> Result<()> {
    let index = shell::repository().join("xtask/sample/site/index.html");
    copy(&index, &folder.join("index.html"))?;
    shell::write(&folder.join(SMALL), body(1_000))?;
    shell::write(&folder.join(BIG), body(1_000_000))
}

/// Copies a program into the guest's search path, and the libraries that it needs.
fn install(program: &Path, root: &Path) -> Result<()> {
    let name = program.file_name().unwrap_or_default();
    copy(program, &root.join("usr/local/bin").join(name))?;
    let libraries = shell::capture_text(Command::new("ldd").arg(program))?;
    for library in libraries
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        let target = root.join(&library[1..]);
        if !target.exists() {
            shell::make_folder(target.parent().unwrap_or(root))?;
            copy(Path::new(library), &target)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = fs::copy(from, to);
    copied.with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Packs a folder as the kernel unpacks it. All files belong to root.
fn pack(folder: &Path, file: &Path) -> Result<()> {
    let mut pack = Command::new("sh");
    pack.args(["-c", "find . | cpio --quiet -o -H newc -R 0:0 > \"$0\""]);
    shell::capture(pack.arg(file).current_dir(folder)).map(drop)
}
