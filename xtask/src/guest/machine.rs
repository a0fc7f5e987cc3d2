//! A guest: a QEMU process without KVM, and the channel through which it runs command lines.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

use crate::server::Server;
use crate::{interrupt, shell};

/// Time limit for a guest to boot.
const BOOT_LIMIT: Duration = Duration::from_mins(2);
/// Time limit for one command line in a guest.
const RUN_LIMIT: Duration = Duration::from_mins(2);
/// Time limit for a guest to power off.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// How long one attempt to read from a guest waits.
const READ_LIMIT: Duration = Duration::from_millis(50);

/// What a guest boots, and its devices.
pub(super) struct Machine<'a> {
    pub(super) image: &'a Path,
    pub(super) initramfs: &'a Path,
    pub(super) cores: u32,
    /// One instruction takes one nanosecond of the guest's time.
    pub(super) counts_instructions: bool,
    /// QEMU's options for network devices, separated by spaces.
    pub(super) network: String,
    /// The file that gets everything that the guest prints.
    pub(super) log: PathBuf,
}

/// The guests' processor. QEMU 7.2 computes wrong flags for `cmpxchg16b`, with which Linux allocates memory.
/// If an interrupt follows at once, the guest's kernel panics with a double fault. Linux can do without.
const CPU: &str = "max,cx16=off";

/// Options of the guests' kernel. `virtio_net` as a module reads the header of a zero-copy frame from a
/// wrong physical address. It is that of the variable, as if the module were part of the kernel. Without
/// random addresses, it is in these 64 MiB. Neither the kernel nor its initramfs, which QEMU puts at the
/// end of the memory, uses them, so the header is always zero.
const KERNEL_OPTIONS: &str = "nokaslr memmap=64M$1024M";

/// A running guest. Dropping it ends its QEMU process.
pub(super) struct Guest {
    qemu: Server,
    channel: UnixStream,
    /// The guest's log. QEMU appends what the kernel prints.
    log: File,
    /// Folder of the channel's socket.
    _scratch: TempDir,
}

impl Guest {
    /// Boots a guest. `command` runs QEMU in the right network namespace.
    pub(super) fn boot(machine: &Machine<'_>, mut command: Command) -> Result<Self> {
        shell::write(&machine.log, "")?;
        let opened = File::options().append(true).open(&machine.log);
        let file = opened.with_context(|| machine.log.display().to_string())?;
        let scratch = shell::scratch("guest")?;
        let socket = scratch.path().join("channel");
        let (log, path) = (machine.log.display(), socket.display());
        command.args([
            "-accel", "tcg", "-machine", "q35", "-cpu", CPU, "-m", "1536",
        ]);
        command.args([
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ]);
        command.args(["-smp", &machine.cores.to_string()]);
        command.arg("-kernel").arg(machine.image);
        command.arg("-initrd").arg(machine.initramfs);
        let options = format!("console=ttyS0 quiet panic=-1 {KERNEL_OPTIONS}");
        command.args(["-append", &options]);
        let console = format!("file,id=console,path={log},append=on");
        let channel = format!("socket,id=channel,path={path},server=on,wait=off");
        for (device, name) in [(console, "console"), (channel, "channel")] {
            command.args(["-chardev", &device, "-serial", &format!("chardev:{name}")]);
        }
        if machine.counts_instructions {
            command.args(["-icount", "shift=0"]);
        }
        command.args(machine.network.split(' '));
        let mut qemu = Server::spawn(&mut command)?;
        let connected = interrupt::wait_for(BOOT_LIMIT, || {
            qemu.expect_running()?;
            Ok(UnixStream::connect(&socket).ok())
        })?;
        let channel = connected.context("QEMU does not open its socket")?;
        channel
            .set_read_timeout(Some(READ_LIMIT))
            .context("setting a time limit")?;
        let guest = Self {
            qemu,
            channel,
            log: file,
            _scratch: scratch,
        };
        let is_ready = |text: &str| text.ends_with("ready\n").then_some(());
        guest
            .read_until(BOOT_LIMIT, is_ready)
            .context("booting a guest")?;
        Ok(guest)
    }

    /// Runs a line of shell in the guest. Returns its output, or an error if its status is not 0.
    pub(super) fn run(&self, line: &str) -> Result<String> {
        self.run_within(RUN_LIMIT, line)
    }

    /// Does the same as [`run`](Self::run), with a time limit for the line.
    pub(super) fn run_within(&self, limit: Duration, line: &str) -> Result<String> {
        self.note(format!("$ {line}\n").as_bytes())?;
        let sent = (&self.channel).write_all(format!("{line}\n").as_bytes());
        sent.with_context(|| format!("sending to the guest: {line}"))?;
        let answer = self.read_until(limit, answer);
        let (output, status) = answer.with_context(|| format!("in the guest: {line}"))?;
        ensure!(
            status == 0,
            "in the guest: {line}: status {status}:\n{output}"
        );
        Ok(output)
    }

    fn note(&self, bytes: &[u8]) -> Result<()> {
        (&self.log)
            .write_all(bytes)
            .context("writing a guest's log")
    }

    /// Reads what the guest sends, until `found` returns a value for it.
    fn read_until<T>(&self, limit: Duration, found: impl Fn(&str) -> Option<T>) -> Result<T> {
        let mut bytes = Vec::new();
        let value = interrupt::wait_for(limit, || {
            let mut part = [0; 4096];
            match (&self.channel).read(&mut part) {
                Ok(0) => bail!("QEMU has ended:\n{}", self.qemu.output()),
                Ok(read) => {
                    bytes.extend_from_slice(&part[..read]);
                    self.note(&part[..read])?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("reading from the guest"),
            }
            Ok(found(&String::from_utf8_lossy(&bytes)))
        })?;
        value.with_context(|| format!("no answer within {limit:?}"))
    }

    /// Returns an error if the guest's kernel has reported a fault, and powers the guest off.
    pub(super) fn power_off(mut self) -> Result<()> {
        let faults = self.run("dmesg | grep -E 'WARNING:|BUG:|Oops|Call Trace' || true")?;
        ensure!(
            faults.trim().is_empty(),
            "the guest's kernel reports:\n{faults}"
        );
        let sent = (&self.channel).write_all(b"poweroff -f\n");
        sent.context("powering a guest off")?;
        let ended = self.qemu.wait(STOP_LIMIT)?;
        ensure!(ended.is_some(), "the guest does not power off");
        Ok(())
    }
}

/// Parses the output and the status of a command line, once both have arrived.
fn answer(text: &str) -> Option<(String, u8)> {
    let (output, status) = text.strip_suffix('\n')?.rsplit_once("\n::status ")?;
    Some((output.to_owned(), status.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_with_its_status() {
        assert_eq!(answer("a\n::status 0\nb\n\n::status"), None);
        let (output, status) = answer("a\n::status 0\nb\n\n::status 12\n").unwrap();
        assert_eq!((&*output, status), ("a\n::status 0\nb\n", 12));
        assert_eq!(answer("\n::status 0\n"), Some((String::new(), 0)));
    }
}
