//! Runs a workload for a given number of requests, so that `valgrind --tool=callgrind` can count
//! its instructions. Two runs with different numbers of requests have the same set-up. The
//! difference of their counts is therefore the cost of the additional requests.
//!
//! `cargo xtask bench instructions` counts all workloads in this way.

use std::process::ExitCode;

use benches::load::dns::zone::Form::{Nsec, Nsec3};
use benches::workload::Workload;
use benches::workload::dns::Zone;
use benches::workload::http::{Httparse, KeepAlive, OwnConnection, Publish};
use benches::workload::netmap;
use benches::workload::tcp::AckToSegment;
use benches::workload::udp::Reflect;
use benches::workload::xdp;
use clap::Parser;
use namestorm::Form;
use namestorm::ReplyMode::{MemCopy, PreCopy, Turnaround};
use tcpip::SendMode;

/// Runs a workload for a given number of requests and checks the results.
#[derive(Parser, Debug)]
struct Cli {
    /// Print the names of all workloads and exit.
    #[arg(long, exclusive = true)]
    list: bool,

    /// Name of the workload.
    #[arg(required_unless_present = "list")]
    workload: Option<String>,

    /// Number of requests, rounded up to whole batches.
    #[arg(required_unless_present = "list")]
    count: Option<u64>,
}

/// Name of a workload, and the function that runs it for a given number of requests.
type Entry = (&'static str, fn(u64));

macro_rules! workloads {
    ($($name:literal $workload:expr;)*) => { &[$(($name, |n| repeat($workload, n))),*] };
}

const WORKLOADS: &[Entry] = workloads! {
    "reflect-64" Reflect::new(22);
    "reflect-1442" Reflect::new(1400);
    "dns-turnaround-100" Zone::new(100, Form::Wire).answer(Turnaround);
    "dns-memcopy-100" Zone::new(100, Form::Wire).answer(MemCopy);
    "dns-precopy-100" Zone::new(100, Form::Wire).answer(PreCopy);
    "dns-fqdn-100" Zone::new(100, Form::Fqdn).answer(Turnaround);
    "dns-turnaround-10000" Zone::new(10_000, Form::Wire).answer(Turnaround);
    "dns-many-zones" Zone::many(300, Form::Wire).answer(Turnaround);
    // With so many names, the server prefetches its data for the queries of a batch.
    "dns-batch-64" Zone::new(30_000, Form::Wire).batch::<64>(Turnaround);
    "dns-nxdomain" Zone::new(100, Form::Wire).no_such_name(Turnaround);
    "dns-signed" Zone::signed(100, Nsec).answer_signed(Turnaround);
    "dns-signed-nxdomain-nsec" Zone::signed(100, Nsec).deny(Turnaround);
    "dns-signed-nxdomain-nsec3" Zone::signed(100, Nsec3).deny(Turnaround);
    "dns-signed-wildcard-nsec3" Zone::signed(100, Nsec3).match_wildcard(Turnaround);
    "ack-to-segment-memcopy" AckToSegment::new(SendMode::MemCopy);
    "ack-to-segment-precopy" AckToSegment::new(SendMode::PreCopy);
    "http-get-1k-memcopy" KeepAlive::page(SendMode::MemCopy);
    "http-get-1k-logged" KeepAlive::logged(SendMode::MemCopy);
    "http-get-1k-precopy" KeepAlive::page(SendMode::PreCopy);
    "http-get-1k-precopy-logged" KeepAlive::logged(SendMode::PreCopy);
    // Instead of a request, this counts a snapshot.
    "http-snapshot" Publish::new();
    "http-get-1000-pages" KeepAlive::pages(SendMode::MemCopy);
    "http-get-strangers" KeepAlive::strangers(SendMode::MemCopy);
    "http-chromium-seen" KeepAlive::chromium(SendMode::MemCopy);
    "http-chromium-1000-pages" KeepAlive::chromium_pages(SendMode::MemCopy);
    "http-chromium-strangers" KeepAlive::chromium_strangers(SendMode::MemCopy);
    "httparse-chromium" Httparse::new();
    "http-304" KeepAlive::not_modified(SendMode::MemCopy);
    "http-200-empty" KeepAlive::empty(SendMode::MemCopy);
    "http-206-1k" KeepAlive::range(SendMode::MemCopy);
    "http-200-as-206" KeepAlive::as_long_as_range(SendMode::MemCopy);
    "http-206-strangers" KeepAlive::range_strangers(SendMode::MemCopy);
    "http-chromium-304" KeepAlive::chromium_not_modified(SendMode::MemCopy);
    "http-chromium-206" KeepAlive::chromium_range(SendMode::MemCopy);
    "http-not-found" KeepAlive::not_found(SendMode::MemCopy);
    "http-new-1k-memcopy" OwnConnection::new(SendMode::MemCopy);
    "http-new-1k-precopy" OwnConnection::new(SendMode::PreCopy);
    "netmap-receive-64" netmap::ReceiveOnly::new(64);
    "netmap-send-64" netmap::SendOnly::new(64);
    "netmap-turn-round-64" netmap::TurnRound::new(64);
    "netmap-get-1k-memcopy" netmap::Get::new(SendMode::MemCopy);
    "netmap-get-1k-precopy" netmap::Get::new(SendMode::PreCopy);
    // Needs root, and a network namespace of its own.
    "xdp-turn-round-64" xdp::TurnRound::new(64);
};

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
        eprintln!("instructions: no such workload: {name}; --list prints all names");
        return ExitCode::from(2);
    };
    run(count);
    ExitCode::SUCCESS
}
