//! Running other programs, and saying clearly what failed.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Why a command of ours ends: one message for a person.
#[derive(Debug)]
pub(crate) struct Failure(String);

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// What Ctrl-C leads to.
    pub(crate) fn interrupted() -> Self {
        Self::new("interrupted")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Adds what was being tried to an error.
pub(crate) trait Context<T> {
    fn context(self, doing: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, doing: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure::new(format!("{doing}: {error}")))
    }
}

/// The repository's top folder.
pub(crate) fn repository() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest
        .parent()
        .map_or(manifest.clone(), Path::to_path_buf)
}

/// Where cargo puts what it builds: this program lies there itself, in a
/// folder named after its profile.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("finding this program's own file")?;
    exe.ancestors()
        .nth(2)
        .map(Path::to_path_buf)
        .ok_or_else(|| Failure::new("this program does not lie in a target folder"))
}

/// The cargo that runs us, in the repository's folder.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(repository());
    if let Ok(folder) = target_folder() {
        // What is built is looked for beside this program.
        command.env("CARGO_TARGET_DIR", folder);
    }
    command
}

/// Builds programs as users run them, for `command`; cargo tells how far it is.
pub(crate) fn build_release(command: &str, packages: &[&str]) -> Result<()> {
    println!("{command}: building (the first time takes some minutes)");
    let mut build = cargo();
    build.args(["build", "--release"]);
    for package in packages {
        build.args(["-p", package]);
    }
    run(&mut build)
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether `program` is found on the search path.
pub(crate) fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// `program`, through sudo when we are not root.
pub(crate) fn as_root(program: impl AsRef<OsStr>) -> Result<Command> {
    if is_root() {
        return Ok(Command::new(program));
    }
    if !is_installed("sudo") {
        return Err(Failure::new(format!(
            "{} needs root, and there is no sudo here: run this as root",
            program.as_ref().to_string_lossy()
        )));
    }
    let mut command = Command::new("sudo");
    command.arg("-E");
    if let Some(path) = std::env::var_os("PATH") {
        // sudo has a search path of its own, which knows no cargo.
        let mut assignment = std::ffi::OsString::from("PATH=");
        assignment.push(path);
        command.arg("env").arg(assignment);
    }
    command.arg(program);
    Ok(command)
}

/// Runs this program again as root, with the same arguments and `--built`. Only
/// network namespaces need root, so builds stay the user's own.
pub(crate) fn again_as_root(name: &str) -> Result<()> {
    println!("{name}: going on as root, for network namespaces and AF_XDP");
    let exe = std::env::current_exe().context("finding this program's own file")?;
    let mut command = as_root(exe)?;
    command.args(std::env::args_os().skip(1)).arg("--built");
    let status = command.status().context("running sudo")?;
    // The other one has said what was wrong.
    if status.success() {
        Ok(())
    } else {
        std::process::exit(status.code().unwrap_or(1))
    }
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs a command whose output goes to the terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .context(format_args!("running {}", shown(command)))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} ended with {status}",
        shown(command)
    )))
}

/// Runs a command and returns what it wrote, whether or not it succeeded.
pub(crate) fn output(command: &mut Command) -> Result<Output> {
    command
        .stdin(Stdio::null())
        .output()
        .context(format_args!("running {}", shown(command)))
}

/// Runs a command that must succeed, and returns its standard output.
pub(crate) fn capture(command: &mut Command) -> Result<Vec<u8>> {
    let output = output(command)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Failure::new(format!(
        "{} ended with {}: {}",
        shown(command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// Like [`capture`], for text.
pub(crate) fn capture_text(command: &mut Command) -> Result<String> {
    capture(command).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// What root has written belongs to the one who has called sudo, so that
/// `cargo clean` still works.
pub(crate) fn give_back(folder: &Path) {
    let id = |name| std::env::var(name).ok();
    if let (Some(user), Some(group)) = (id("SUDO_UID"), id("SUDO_GID")) {
        let mut chown = Command::new("chown");
        chown.args(["-R", &format!("{user}:{group}")]).arg(folder);
        if let Err(failure) = capture(&mut chown) {
            eprintln!("{failure}");
        }
    }
}

/// A folder for files of one run, removed with everything in it at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn create(purpose: &str) -> Result<Self> {
        Self::create_in(&std::env::temp_dir(), purpose)
    }

    /// Makes the folder in `parent`.
    pub(crate) fn create_in(parent: &Path, purpose: &str) -> Result<Self> {
        let name = format!("storm-{purpose}-{}", std::process::id());
        let path = parent.join(name);
        std::fs::create_dir(&path).context(format_args!("making {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("could not remove {}: {error}", self.0.display());
        }
    }
}
