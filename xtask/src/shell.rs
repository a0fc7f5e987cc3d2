//! Runs commands to completion, and reads and writes the project's files.
//!
//! To run a program in the background, see [`server`](crate::server).

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;

/// Returns the top folder of the repository.
pub(crate) fn repository() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().unwrap_or(&manifest).to_path_buf()
}

/// Returns cargo's target folder. This program is in its `debug` or `release` folder.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let folder = this_program()?.ancestors().nth(2).map(Path::to_path_buf);
    folder.context("this program does not lie in a target folder")
}

/// Returns the path of this program.
pub(crate) fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("finding this program's own file")
}

pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    std::fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}

pub(crate) fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))
}

/// Returns a command for the cargo that started this program, to run in the repository's folder.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(repository());
    if let Ok(folder) = target_folder() {
        // Callers expect the built programs beside this one.
        command.env("CARGO_TARGET_DIR", folder);
    }
    command
}

/// Builds packages with the release profile and shows cargo's progress.
pub(crate) fn build_release(command: &str, packages: &[&str]) -> Result<()> {
    println!("{command}: building (the first time takes some minutes)");
    let packages = packages.iter().flat_map(|package| ["-p", package]);
    run(cargo().args(["build", "--release"]).args(packages))
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns true if a folder in `PATH` has `program`.
pub(crate) fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Returns the first of these programs that is not installed.
pub(crate) fn missing<'p>(programs: &[&'p str]) -> Option<&'p str> {
    let missing = programs.iter().find(|program| !is_installed(program));
    missing.copied()
}

/// Returns a command that runs `program` as root, through sudo if necessary.
pub(crate) fn as_root(program: impl AsRef<OsStr>) -> Result<Command> {
    if is_root() {
        return Ok(Command::new(program));
    }
    let name = program.as_ref().to_string_lossy();
    ensure!(
        is_installed("sudo"),
        "{name} needs root, and sudo is not installed: run this as root"
    );
    let mut command = Command::new("sudo");
    command.arg("-E");
    if let Some(path) = std::env::var_os("PATH") {
        // sudo sets a search path that does not include cargo, so `env` restores ours.
        let mut assignment = std::ffi::OsString::from("PATH=");
        assignment.push(path);
        command.arg("env").arg(assignment);
    }
    command.arg(program);
    Ok(command)
}

/// Runs this program again as root, with the same arguments and `--built`. The build has already
/// run as the user, because only network namespaces and AF_XDP need root. If the new process fails,
/// this one exits with the same status.
pub(crate) fn again_as_root(name: &str) -> Result<()> {
    println!("{name}: going on as root, for network namespaces and AF_XDP");
    let mut command = as_root(this_program()?)?;
    let words = std::env::args_os().skip(1).filter(|word| word != "--built");
    command.args(words).arg("--built");
    let status = command.status().context("running sudo")?;
    if status.success() {
        return Ok(());
    }
    // The process that ran as root has already printed its error.
    std::process::exit(status.code().unwrap_or(1))
}

/// Returns the command line of `command`, for messages.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

/// Runs a command and leaves its output on the terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().context(shown(command))?;
    ensure!(status.success(), "{} ended with {status}", shown(command));
    Ok(())
}

/// Runs a command and returns its output, even if the command fails.
pub(crate) fn output(command: &mut Command) -> Result<Output> {
    let output = command.stdin(Stdio::null()).output();
    output.context(shown(command))
}

/// Runs a command and discards its output. Returns true if the command succeeds.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    output(command).is_ok_and(|output| output.status.success())
}

/// Runs a command that must succeed, and returns its standard output.
pub(crate) fn capture(command: &mut Command) -> Result<Vec<u8>> {
    let output = output(command)?;
    let (status, errors) = (output.status, String::from_utf8_lossy(&output.stderr));
    let command = shown(command);
    ensure!(
        status.success(),
        "{command} ended with {status}: {}",
        errors.trim()
    );
    Ok(output.stdout)
}

/// Like [`capture`], but returns the output as text.
pub(crate) fn capture_text(command: &mut Command) -> Result<String> {
    capture(command).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the last `lines` lines of a program's output.
pub(crate) fn end_of(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Makes the user who called sudo the owner of a folder that root wrote. Otherwise that user could
/// not run `cargo clean`.
pub(crate) fn give_back(folder: &Path) {
    let id = |name| std::env::var(name).ok();
    if let (Some(user), Some(group)) = (id("SUDO_UID"), id("SUDO_GID")) {
        let mut chown = Command::new("chown");
        chown.args(["-R", &format!("{user}:{group}")]).arg(folder);
        if let Err(failure) = capture(&mut chown) {
            eprintln!("{failure:#}");
        }
    }
}

/// Makes a temporary folder that every user may enter. Dropping the returned value removes the
/// folder.
pub(crate) fn scratch(purpose: &str) -> Result<TempDir> {
    scratch_in(&std::env::temp_dir(), purpose)
}

/// Like [`scratch`], but makes the folder in `parent`.
pub(crate) fn scratch_in(parent: &Path, purpose: &str) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix(&format!("storm-{purpose}-"))
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(parent)
        .with_context(|| format!("making a folder in {}", parent.display()))
}

/// Removes all files in a folder from the page cache, as far as they are on the disk, or reads all of them into it.
pub(crate) fn set_cached(folder: &Path, are_cached: bool) -> Result<()> {
    let error = || folder.display().to_string();
    for entry in fs::read_dir(folder).with_context(error)? {
        let path = entry.with_context(error)?.path();
        if path.is_dir() {
            set_cached(&path, are_cached)?;
        } else if are_cached {
            fs::read(&path).with_context(error)?;
        } else {
            let file = fs::File::open(&path).with_context(error)?;
            fadvise(&file, 0, None, Advice::DontNeed).with_context(error)?;
        }
    }
    Ok(())
}
