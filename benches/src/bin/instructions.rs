//! Does a piece of work a number of times, for a count of what it executes:
//! run it twice under `valgrind --tool=callgrind` with different numbers, and
//! the difference is the cost of the work without its set-up.
//!
//! `cargo xtask bench instructions` does that for all of them.

use std::process::ExitCode;

use benches::workload::Workload;
use benches::workload::dns::Zone;
use benches::workload::http::{KeepAlive, OwnConnection};
use benches::workload::tcp::AckToSegment;
use benches::workload::udp::Reflect;
use clap::Parser;
use namestorm::Form;
use namestorm::ReplyMode::{MemCopy, PreCopy, Turnaround};

/// Does a piece of work a number of times and checks that it was right.
#[derive(Parser, Debug)]
struct Cli {
    /// Print the names of all pieces of work and end.
    #[arg(long, exclusive = true)]
    list: bool,

    /// What to do.
    #[arg(required_unless_present = "list")]
    workload: Option<String>,

    /// Requests, rounded up to whole batches where work comes in batches.
    #[arg(required_unless_present = "list")]
    count: Option<u64>,
}

/// Sets the work up and does it for a number of requests.
type Entry = (&'static str, fn(u64));

const WORKLOADS: &[Entry] = &[
    ("reflect-64", |n| repeat(Reflect::new(22), n)),
    ("reflect-1442", |n| repeat(Reflect::new(1400), n)),
    ("dns-turnaround-100", |n| {
        repeat(Zone::new(100, Form::Wire).answer(Turnaround), n);
    }),
    ("dns-memcopy-100", |n| {
        repeat(Zone::new(100, Form::Wire).answer(MemCopy), n);
    }),
    ("dns-precopy-100", |n| {
        repeat(Zone::new(100, Form::Wire).answer(PreCopy), n);
    }),
    ("dns-fqdn-100", |n| {
        repeat(Zone::new(100, Form::Fqdn).answer(Turnaround), n);
    }),
    ("dns-turnaround-10000", |n| {
        repeat(Zone::new(10_000, Form::Wire).answer(Turnaround), n);
    }),
    ("dns-batch-64", |n| {
        // So many that it looks ahead.
        repeat(Zone::new(30_000, Form::Wire).batch::<64>(Turnaround), n);
    }),
    ("dns-nxdomain", |n| {
        repeat(Zone::new(100, Form::Wire).no_such_name(Turnaround), n);
    }),
    ("ack-to-segment-memcopy", |n| {
        repeat(AckToSegment::new(tcpip::SendMode::MemCopy), n);
    }),
    ("ack-to-segment-precopy", |n| {
        repeat(AckToSegment::new(tcpip::SendMode::PreCopy), n);
    }),
    ("http-get-1k-memcopy", |n| {
        repeat(KeepAlive::page(tcpip::SendMode::MemCopy), n);
    }),
    ("http-get-1k-precopy", |n| {
        repeat(KeepAlive::page(tcpip::SendMode::PreCopy), n);
    }),
    ("http-get-1000-pages", |n| {
        repeat(KeepAlive::pages(tcpip::SendMode::MemCopy), n);
    }),
    ("http-get-strangers", |n| {
        repeat(KeepAlive::strangers(tcpip::SendMode::MemCopy), n);
    }),
    ("http-not-found", |n| {
        repeat(KeepAlive::not_found(tcpip::SendMode::MemCopy), n);
    }),
    ("http-new-1k-memcopy", |n| {
        repeat(OwnConnection::new(tcpip::SendMode::MemCopy), n);
    }),
    ("http-new-1k-precopy", |n| {
        repeat(OwnConnection::new(tcpip::SendMode::PreCopy), n);
    }),
];

fn repeat<W: Workload>(mut work: W, requests: u64) {
    for _ in 0..requests.div_ceil(W::REQUESTS) {
        work.run();
    }
    work.check();
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (Some(name), Some(count)) = (cli.workload, cli.count) else {
        for (name, _) in WORKLOADS {
            println!("{name}");
        }
        return ExitCode::SUCCESS;
    };
    let Some((_, run)) = WORKLOADS.iter().find(|(known, _)| *known == name) else {
        eprintln!("instructions: no such workload: {name}; --list names all");
        return ExitCode::from(2);
    };
    run(count);
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_does_its_work() {
        for (name, run) in WORKLOADS {
            eprintln!("{name}");
            run(500);
        }
    }

    #[test]
    fn the_command_line_wants_both_or_a_list() {
        let ok = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        assert!(ok("instructions --list"));
        assert!(ok("instructions reflect-64 10"));
        assert!(!ok("instructions reflect-64"));
        assert!(!ok("instructions --list reflect-64 10"));
        assert!(!ok("instructions"));
    }
}
