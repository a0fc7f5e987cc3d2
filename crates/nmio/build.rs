//! Checks for the system packages that the build needs, and compiles the steering program to BPF.
//!
//! The build script of libbpf needs most of these packages too, but reports missing ones less
//! clearly. If Cargo runs that script first, it shows its messages instead. The README lists all
//! packages.

use std::env;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const SOURCE: &str = "bpf/steer.bpf.c";

/// Programs that the build runs, each with the Debian package that contains it.
const PROGRAMS: [(&str, &str); 3] = [
    ("make", "build-essential"),
    ("pkg-config", "pkg-config"),
    ("clang", "clang"),
];
/// Headers that the build reads, each with the Debian package that contains it.
const HEADERS: [(&str, &str); 2] = [("libelf.h", "libelf-dev"), ("zlib.h", "zlib1g-dev")];

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CLANG");
    // Only Linux has XDP.
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system != "linux") {
        return;
    }
    let missing = missing();
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|(what, _)| *what).collect();
        let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
        packages.dedup();
        println!(
            "cargo::error=the build needs {}, not found here; on Debian: apt-get install {} (or \
             cargo xtask setup)",
            names.join(", "),
            packages.join(" ")
        );
        return;
    }
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let out_dir = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let object = Path::new(&out_dir).join("steer.bpf.o");
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let status = Command::new(&clang)
        .args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf"])
        // Keeps the path of the build directory out of the object file.
        .arg("-fdebug-compilation-dir=.")
        // Debian keeps <asm/types.h> in this directory. If it does not exist, clang ignores the
        // option.
        .arg(format!("-I/usr/include/{machine}-linux-gnu"))
        .args(["-c", SOURCE, "-o"])
        .arg(&object)
        .status();
    let problem = match status {
        Ok(status) if status.success() => return,
        Ok(_) => format!(
            "{clang} could not compile {SOURCE}; if <linux/bpf.h> or <asm/types.h> is missing, \
             install linux-libc-dev"
        ),
        Err(error) => format!(
            "{clang} cannot be run ({error}), and the XDP steering program needs it: install the \
             package clang, or name another clang in the environment variable CLANG"
        ),
    };
    println!("cargo::error={problem}");
}

/// Returns the missing programs and headers, each with its package.
fn missing() -> Vec<(&'static str, &'static str)> {
    let headers = HEADERS.into_iter().filter(|(name, _)| !is_header(name));
    PROGRAMS
        .into_iter()
        .filter(|(name, _)| !is_program(name))
        .chain(headers)
        .collect()
}

fn is_program(name: &str) -> bool {
    if name == "clang" && env::var_os("CLANG").is_some() {
        return true;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Returns true if the C compiler finds the header. Also returns true if there is no C compiler. In
/// that case `make` is normally missing too and is reported: the same Debian package installs both.
fn is_header(name: &str) -> bool {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-E", "-x", "c", "-", "-o", "/dev/null"]);
    let child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else {
        return true;
    };
    let written = child
        .stdin
        .take()
        .is_none_or(|mut pipe| writeln!(pipe, "#include <{name}>").is_ok());
    let status = child.wait();
    written && status.is_ok_and(|status| status.success())
}
