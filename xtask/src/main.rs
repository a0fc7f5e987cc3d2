//! Developer commands, run as `cargo xtask COMMAND`. Each command is a module.

mod bench;
mod demo;
mod e2e;
mod fuzz;
mod guest;
mod guide;
mod image;
mod interrupt;
mod loss;
mod markdown;
mod metrics;
mod miri;
mod netns;
mod package;
mod server;
mod setup;
mod shell;
mod structure;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Developer commands for Sandstorm and Namestorm.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install the Debian packages that are missing.
    Setup,
    /// Serve a sample site and a sample zone, then fetch a page and resolve a name.
    Demo(demo::Options),
    /// Run every check that CI runs.
    Test(test::Options),
    /// Test both servers end to end, in network namespaces.
    E2e(e2e::Options),
    /// Test both servers in small guests, on kernels and drivers that the host lacks.
    Guest(guest::Options),
    /// Fuzz the code that reads input from outside, starting from the committed corpus.
    Fuzz(fuzz::Options),
    /// Check import cycles, visibility, and the lengths of files, functions and sentences.
    Structure(structure::Options),
    /// Build the example project of docs/extending.md, outside the workspace.
    Guide,
    /// Write the manual pages and the shell completions of all programs.
    Manual(package::Manual),
    /// Build a Debian package of each program, and try the packages in a container.
    Package(package::Options),
    /// Build an OCI image of Storm with buildah, and try it with crun. This needs root.
    Image(image::Options),
    /// Run netmap-sys's unit tests, and most of those of nmio's that Miri supports, under Miri.
    /// This needs the nightly compiler.
    Miri,
    /// Compare our TCP with the kernel's on lossy, slow and reordering networks.
    Loss(loss::Options),
    /// Compare the servers with other servers, and with what the test rig itself can do.
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    match interrupt::install().and_then(|()| run(&command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Setup => setup::run(),
        Command::Demo(options) => demo::run(options),
        Command::Test(options) => test::run(options),
        Command::E2e(options) => e2e::run(options),
        Command::Guest(options) => guest::run(options),
        Command::Fuzz(options) => fuzz::run(options),
        Command::Structure(options) => structure::run(options),
        Command::Guide => guide::run(),
        Command::Manual(options) => package::manual(options),
        Command::Package(options) => package::run(options),
        Command::Image(options) => image::run(options),
        Command::Miri => miri::run(),
        Command::Loss(options) => loss::run(options),
        Command::Bench(options) => bench::run(options),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
