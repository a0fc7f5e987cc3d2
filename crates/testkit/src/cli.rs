//! The command line of a finished program.

use std::path::Path;
use std::process::Command;

/// Runs a program with the words of a command line. Returns its exit status, and what it writes to
/// standard output and standard error.
///
/// # Panics
/// If the program cannot be run, is ended by a signal, or writes something other than UTF-8.
pub fn run(program: &str, line: &str) -> (i32, String) {
    run_in(program, Path::new("."), line)
}

/// Same as [`run`], in this folder. `program` is an absolute path.
///
/// # Panics
/// Same as [`run`].
pub fn run_in(program: &str, folder: &Path, line: &str) -> (i32, String) {
    let mut command = Command::new(program);
    let output = command
        .args(line.split_whitespace())
        .current_dir(folder)
        .output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let written = [output.stdout, output.stderr].concat();
    let status = output.status.code().expect("no signal ends the program");
    (
        status,
        String::from_utf8(written).expect("programs write text"),
    )
}

/// Runs a program for at most 20 s. Returns whether it succeeded, and what it wrote to standard output and
/// standard error.
///
/// # Panics
/// If the program cannot be run, or writes something other than UTF-8.
pub fn run_briefly(program: &str, arguments: &[&str]) -> (bool, String) {
    let mut limited = Command::new("timeout");
    let output = limited.args(["20", program]).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("timeout: {error}"));
    let written = [output.stdout, output.stderr].concat();
    let written = String::from_utf8(written).expect("programs write text");
    (output.status.success(), written)
}

/// Checks the exit status of a program and a part of what it writes, for each command line.
///
/// # Panics
/// If a program ends with another status, or does not write the text.
pub fn expect(program: &str, cases: &[(&str, i32, &str)]) {
    for (line, expected, text) in cases {
        let (status, written) = run(program, line);
        assert_eq!(status, *expected, "{line}: {written}");
        assert!(written.contains(text), "{line}: {written}");
    }
}
