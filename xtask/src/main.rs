//! Developer commands: `cargo xtask COMMAND`. One file a command.

mod bench;
mod demo;
mod e2e;
mod fuzz;
mod guide;
mod interrupt;
mod loss;
mod markdown;
mod miri;
mod netns;
mod server;
mod setup;
mod shell;
mod structure;
mod test;
mod watched;

use std::process::ExitCode;

use shell::{Failure, Result};

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  setup                          install the Debian packages that are missing
  demo [--once] [--host]         build, serve a sample site and zone, fetch from both
        --once                   end after the check, status 0 only if both were right
        --host                   put the client's end on this host, for a browser
  test [--quick|--full] [FILTER] every check that CI runs
  e2e [--quick|--full] [--list] [--seed N] [--programs DIR] [FILTER]
                                 the end-to-end matrix alone, in network namespaces
        --quick                  a sample that touches every pair of choices (default)
        --full                   every combination
        --seed N                 other losses: the seed of the matrix's first scenario
        --programs DIR           the two programs from DIR instead of a release build
        FILTER                   only scenarios or cases whose name contains this
  fuzz [TARGET]... [--seconds N] [--minimize] [--input FILE] [--sanitizer NAME]
                                 any input to what reads from outside, from the corpus on
        TARGET                   only these of fuzz/fuzz_targets
        --seconds N              for each target; 60 without it
        --minimize               then put the fewest inputs in fuzz/corpus that cover all
        --input FILE             this input alone, with what it is and a backtrace
        --sanitizer NAME         with a nightly compiler's sanitizer, such as address
  structure [CRATE]...           circles of files, open items, long files and functions
        CRATE                    first show what its circles hang on, and its open items
  guide                          build the project that docs/extending.md makes, outside the workspace
  miri                           tests of frames and rings under Miri, with a nightly compiler
  loss [--clients [--full]] [--quick] [--seed N] [--repeats N] [--trace] [--list]
       [--programs DIR] [FILTER]
                                 our TCP beside the kernel's on bad networks, by a userspace
                                 forwarder: the matrix, goodput, repeated bytes, the marks
        --clients                Linux clients of many kinds instead: only whether every byte
                                 arrives; a sample, or with --full every combination
        --quick                  a few cells, once each
        --seed N                 other losses: the seed of the first repeat
        --repeats N              seeds of each cell; 3 without it, 1 with --quick
        --trace                  keep every run's segments in the target folder
        --list                   only name the cells
        --programs DIR           sandstorm and forward from DIR instead of a release build
        FILTER                   only cells whose name contains this
  bench [SELECTION]... [--quick] [--seconds S] [--repeats N] [--server NAME]
        [--peer nsd-xdp=DIR]     the servers beside their peers and the rig's limit
        SELECTION                limit, dns, web (these three without one), paper, all,
                                 or figures by their names (web-offload has more points then)
        --quick                  few points, once each: under 3 minutes
        --seconds S              the length of each measured part
        --repeats N              runs of each point, interleaved; 3 without it
        --server NAME            only servers whose name contains this
        --peer nsd-xdp=DIR       a debootstrap tree in which NSD has an XDP mode
  bench report [FILE]            draw the raw results again: FILE, or the last run's
  bench instructions [--check|--accept]
                                 instructions of our code for a packet or a request
        --check                  status 1 when one has grown by more than 3 %
        --accept                 write them to benches/instructions.json
";

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty()
        || args
            .iter()
            .any(|a| a == "--help" || a == "-h" || a == "help")
    {
        print!("{USAGE}");
        return if args.is_empty() {
            ExitCode::from(2)
        } else {
            ExitCode::SUCCESS
        };
    }
    let command = args.remove(0);
    let outcome = interrupt::install().and_then(|()| dispatch(&command, &args));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask {command}: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: &str, args: &[String]) -> Result<()> {
    match command {
        "setup" => {
            no_more_arguments(args)?;
            setup::run()
        }
        "demo" => demo::run(args),
        "test" => test::run(args),
        "e2e" => e2e::run(args),
        "fuzz" => fuzz::run(args),
        "bench" => bench::run(args),
        "loss" => loss::run(args),
        "miri" => miri::run(args),
        "structure" => structure::run(args),
        "guide" => {
            no_more_arguments(args)?;
            guide::run()
        }
        // Not for people: a part of `e2e`.
        "abuse" => e2e::abusers::run(args),
        other => Err(Failure::new(format!("no such command: {other}\n\n{USAGE}"))),
    }
}

fn no_more_arguments(args: &[String]) -> Result<()> {
    match args.first() {
        None => Ok(()),
        Some(arg) => Err(Failure::new(format!(
            "unexpected argument {arg}\n\n{USAGE}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_usage_is_a_list_of_commands() {
        let mut lines = super::USAGE.lines();
        assert!(lines.next().is_some_and(|line| line.starts_with("Usage: ")));
        for line in lines {
            assert!(line.is_empty() || line.starts_with("  "), "{line}");
        }
    }
}
