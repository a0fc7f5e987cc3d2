//! Compiles the steering program for the kernel's virtual machine.

use std::env;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "bpf/steer.bpf.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let out_dir = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let object = Path::new(&out_dir).join("steer.bpf.o");
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let status = Command::new(&clang)
        .args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf"])
        // The same object wherever the sources lie.
        .arg("-fdebug-compilation-dir=.")
        // Where Debian keeps <asm/types.h>; clang ignores it elsewhere.
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
