//! The command `connections`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use hyper::{Method, StatusCode};

use super::socket::{SocketArgs, Wait, cut, read, runtime, unknown};
use crate::args::number;
use crate::table::filter::Filter;
use crate::table::line::Line;

/// The options of `connections`.
#[derive(Args, Clone, Debug)]
pub struct ConnectionsArgs {
    #[command(flatten)]
    filter: Filter,

    /// Maximum number of connections to show. The last line says how many there are.
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = number::<u32>(1..=u32::MAX))]
    limit: u32,

    /// Print a line of JSON for each connection, and one with a summary at the end.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: SocketArgs,
}

impl ConnectionsArgs {
    pub(super) fn run(&self, program: &str) -> Result<ExitCode, String> {
        let socket = self.at.socket(program);
        let query = self.filter.to_query();
        let target = format!("/connections?{query}limit={}", self.limit);
        let mut printer = Printer {
            json: self.json,
            rest: Vec::new(),
            has_ended: false,
        };
        let answer = runtime()?.block_on(read(
            &socket,
            Method::GET,
            &target,
            Wait::Briefly,
            |bytes| printer.take(bytes),
        ));
        match answer {
            Ok(ending) if ending.code == StatusCode::OK && printer.has_ended => {
                Ok(ExitCode::SUCCESS)
            }
            Ok(ending) if ending.code == StatusCode::OK || !ending.is_whole => Err(cut(&socket)),
            Ok(_) => Err(unknown(&socket, &String::from_utf8_lossy(&printer.rest))),
            // The reader of the output has seen enough.
            Err(error) if error == CLOSED => Ok(ExitCode::SUCCESS),
            Err(error) => Err(error),
        }
    }
}

/// The error of a closed standard output.
const CLOSED: &str = "standard output is closed";

/// Prints the lines of a list as they arrive.
struct Printer {
    json: bool,
    /// The bytes after the last complete line.
    rest: Vec<u8>,
    /// Whether the last line of the list has arrived.
    has_ended: bool,
}

impl Printer {
    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.rest.extend_from_slice(bytes);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n');
        let end = end.map_or(0, |end| end + 1);
        let rest = self.rest.split_off(end);
        let lines = std::mem::replace(&mut self.rest, rest);
        let mut text = String::new();
        for line in String::from_utf8_lossy(&lines).lines() {
            let Ok(parsed) = serde_json::from_str::<Line>(line) else {
                // This is an error message, which `run` reports.
                self.rest = lines;
                return Ok(());
            };
            self.has_ended |= matches!(parsed, Line::End { .. });
            // Writing to a string cannot fail.
            let _ = match parsed {
                _ if self.json => writeln!(text, "{line}"),
                Line::Connection(row) => write!(text, "{row}"),
                Line::End { summary } => writeln!(text, "{summary}"),
            };
        }
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => CLOSED.to_owned(),
            _ => format!("cannot write to standard output: {error}"),
        })
    }
}
