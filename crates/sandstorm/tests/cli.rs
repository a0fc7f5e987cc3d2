//! Tests the command line of the finished program.

use testkit::cli::expect;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sandstorm");

/// The message of a valid command line whose folder does not exist.
const NO_FOLDER: &str = "there is no folder /none";

#[test]
fn a_folder_is_required() {
    expect(
        PROGRAM,
        &[
            ("serve /none", 1, NO_FOLDER),
            ("serve", 2, "required arguments were not provided"),
            ("/none", 2, "unrecognized subcommand"),
            ("", 2, "Usage:"),
        ],
    );
}

#[test]
fn the_congestion_control_is_cubic_unless_another_is_named() {
    expect(
        PROGRAM,
        &[
            ("serve --help", 0, "[default: cubic]"),
            ("serve /none --congestion cubic", 1, NO_FOLDER),
            ("serve /none --congestion bbr", 1, NO_FOLDER),
            ("serve /none --congestion reno", 1, NO_FOLDER),
            ("serve /none --congestion vegas", 2, "invalid value 'vegas'"),
        ],
    );
}
